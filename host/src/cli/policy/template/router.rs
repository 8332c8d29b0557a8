impl Router for Policy {
    fn resolve(s: &Session, kind: Kind, _: &str, target: &Target) -> Result<Decision, Failure> {
        let setting: Setting = s.setting_as()?;
        Ok(match is_blocked(&setting, kind, &target.name) {
            true => Decision::Refuse(format!("{} is blocked here", target.name)),
            false => Decision::Pass,
        })
    }
}

