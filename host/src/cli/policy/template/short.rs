/// `/name` is short for the tool `name` of the main backend.
fn short(setting: &Setting, kind: Kind, public: &str) -> Option<Target> {
    let name = public.strip_prefix('/').filter(|_| kind == Kind::Tool)?;
    Some(Target::new(&setting.main, name))
}

