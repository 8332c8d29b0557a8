impl Lifecycle for Policy {
    fn opened(s: &Session) -> Result<Welcome, Failure> {
        let setting: Setting = s.setting_as()?;
        s.log(Level::Info, "a session opens");
        Ok(welcome(&setting, &s.principal()))
    }
}

