impl Namespace for Policy {
    fn expose(s: &Session, kind: Kind, items: &[ItemHead]) -> Result<Vec<Verdict>, Failure> {
        let setting: Setting = s.setting_as()?;
        let verdict = |item: &ItemHead| match is_blocked(&setting, kind, &item.name) {
            true => Verdict::Hide,
            false => Verdict::Keep,
        };
        Ok(items.iter().map(verdict).collect())
    }
}

