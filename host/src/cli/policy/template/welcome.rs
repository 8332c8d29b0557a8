/// Whether a session of this principal may open.
fn welcome(setting: &Setting, principal: &str) -> Welcome {
    match setting.banned.iter().any(|name| name == principal) {
        true => Welcome::Refuse("you are not welcome here".to_owned()),
        false => Welcome::Accept,
    }
}

