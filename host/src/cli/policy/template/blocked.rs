/// Whether nobody may have this tool.
fn is_blocked(setting: &Setting, kind: Kind, own_name: &str) -> bool {
    kind == Kind::Tool && setting.blocked.iter().any(|name| name == own_name)
}

