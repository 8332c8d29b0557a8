impl Alias for Policy {
    fn resolve(s: &Session, kind: Kind, public: &str) -> Result<Option<Target>, Failure> {
        let setting: Setting = s.setting_as()?;
        let target = short(&setting, kind, public);
        Ok(target.filter(|t| s.has_backend(&t.backend)))
    }
}

