//! The configuration: read, checked and resolved before anything is bound.
//!
//! [`load`] is the one way in, for `serve` and `check` alike, so that what one refuses the other refuses with the same words. It
//! answers with a [`Config`] that needs no further check, or with everything that is wrong at once, each with file, line, key and
//! what to do. The rest of the gateway reads `Config` through an `Arc`; only start-up and reload call this module.
//!
//! # Layout
//! `file` (the file's types, and the JSON Schema made of them) · `source` (YAML and JSON to a tree with places) · `mcp_servers` (the
//! lists of desktop clients) · `resolve` (the checks) · `model`, `auth`, `hosts`, `secret` (the result) · `problem` (the words).

mod auth;
mod changes;
mod file;
mod hosts;
mod mcp_servers;
mod model;
pub mod plain_file;
mod problem;
mod resolve;
mod secret;
mod source;
mod units;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use auth::{ANONYMOUS, AdminToken, Auth, Token};
pub use changes::restart_keys;
pub use file::{AdminAddress, parse_address};
pub use hosts::HttpConfig;
pub use model::{
    AdmissionConfig, Alias, AliasKind, Backend, Config, DEFAULT_POLICIES, Limits, LogConfig, LogFormat, ModernConfig, PolicyConfig,
    PolicyRef, PolicySource, SHIPPED_POLICIES, SessionConfig, ShutdownConfig, Target, Timeouts, Transport, VirtualHost,
};
pub use problem::{Place, Problem, Problems};
pub use resolve::{Overrides, default_cache};
pub use secret::{Secret, StateKey};
pub use units::{parse_duration, parse_size, show_duration, show_size};

use mcp_servers::McpServersFile;
use resolve::{Cx, Draft, Source};
use source::decode::{Unknown, decode};
use source::expand::{Lookup, expand};
use source::tree::{Doc, Kind, Mark, Node};

/// Read when no file is named.
pub const DEFAULT_FILE: &str = "lockgate.yaml";
/// A configuration file larger than this is refused unread.
const MAX_FILE: u64 = 8 << 20;

/// Where the configuration comes from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The configuration file. Absent, with no `mcp_servers` either: [`DEFAULT_FILE`] in the working directory.
    pub config: Option<PathBuf>,
    /// A desktop client's list of servers; its backends come after those of the file.
    pub mcp_servers: Option<PathBuf>,
    pub overrides: Overrides,
}

/// A valid configuration and what its author might still want to know.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    pub warnings: Problems,
    /// The files that were read, as they were named.
    pub files: Vec<PathBuf>,
}

/// Reads and checks everything. Errors: [`Problems`], all of them, in the order of the files.
pub fn load(sources: &Sources) -> Result<Loaded, Problems> {
    load_with(sources, &|name| std::env::var(name).ok())
}

/// As [`load`], with the environment as a parameter.
pub fn load_with(sources: &Sources, env: Lookup<'_>) -> Result<Loaded, Problems> {
    let mut problems = Problems::default();
    let config = match (&sources.config, &sources.mcp_servers) {
        (None, None) if Path::new(DEFAULT_FILE).exists() => Some(PathBuf::from(DEFAULT_FILE)),
        (None, None) => {
            let message = format!("needed, or --mcp-servers; there is no {DEFAULT_FILE} in this directory either");
            return Err(Problem::new(Place::named("--config"), message).into());
        }
        (config, _) => config.clone(),
    };
    let main_text = config.as_deref().and_then(|path| read(path, &mut problems));
    let mcp_text = sources.mcp_servers.as_deref().and_then(|path| read(path, &mut problems));
    // A file that cannot be read at all leaves nothing to check against.
    if !problems.is_empty() {
        return Err(problems);
    }
    let files = config.iter().chain(&sources.mcp_servers).cloned().collect();
    check(main_text, mcp_text, &sources.overrides, env, files)
}

/// As [`load`], of a configuration that is in memory. `name` stands for the file in messages; relative paths start at the working
/// directory.
pub fn load_text(name: &str, text: &str) -> Result<Loaded, Problems> {
    let base = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let input = Input { name: name.into(), text: text.to_owned(), base };
    check(Some(input), None, &Overrides::default(), &|name| std::env::var(name).ok(), Vec::new())
}

/// A file's text, its name in messages, and where its relative paths start.
struct Input {
    name: Arc<str>,
    text: String,
    base: PathBuf,
}

fn check(main: Option<Input>, mcp: Option<Input>, overrides: &Overrides, env: Lookup<'_>, files: Vec<PathBuf>) -> Result<Loaded, Problems> {
    let mut problems = Problems::default();
    let mut warnings = Problems::default();

    let mut main_doc = main.as_ref().and_then(|i| source::yaml::parse(i.name.clone(), &i.text, &mut problems));
    let mut mcp_doc = mcp.as_ref().and_then(|i| source::jsonc::parse(i.name.clone(), &i.text, &mut problems));
    if (main.is_some() && main_doc.is_none()) || (mcp.is_some() && mcp_doc.is_none()) {
        problems.sort();
        return Err(problems);
    }

    for doc in main_doc.iter_mut().chain(mcp_doc.iter_mut()) {
        expand(doc, env, &mut problems);
    }
    let mut file: file::File =
        main_doc.as_mut().and_then(|doc| decode(doc, Unknown::Refuse, &mut problems, &mut warnings)).unwrap_or_default();
    let servers: Option<McpServersFile> = mcp_doc.as_mut().and_then(|doc| decode(doc, Unknown::Tolerate, &mut problems, &mut warnings));

    let nothing = Doc::new("(defaults)".into(), Node { id: 0, at: Mark::default(), kind: Kind::Map(Vec::new()) });
    let base = |input: &Option<Input>| input.as_ref().map(|i| i.base.clone()).unwrap_or_default();
    let main = Source { doc: main_doc.as_ref().unwrap_or(&nothing), base: base(&main) };
    let mcp = Source { doc: mcp_doc.as_ref().unwrap_or(&nothing), base: base(&mcp) };

    let mut drafts = main_drafts(&main, &mut file);
    let before = problems.len();
    if let Some(servers) = servers {
        drafts.extend(mcp_servers::drafts(&mcp, servers, &mut problems, &mut warnings));
    }
    // That there is none is news only where none was refused.
    let refused = problems.len() > before || main.doc.incomplete(&["backends".into()]) || mcp.doc.incomplete(&[]);
    if drafts.is_empty() && !refused && !main.doc.is_pruned(main.doc.root.id) {
        let place = match main_doc {
            Some(_) => main.doc.key_place(&["backends".into()]),
            None => mcp.doc.place(&[]),
        };
        problems.push(Problem::new(place, "no backend to serve; name at least one MCP server, with a `url` or a `command`"));
    }
    let mut cx = Cx { env, problems: &mut problems, warnings: &mut warnings };
    let config = resolve::resolve(&main, &file, drafts, overrides, &mut cx);

    problems.sort();
    warnings.sort();
    if problems.is_empty() { Ok(Loaded { config, warnings, files }) } else { Err(problems) }
}

/// The JSON Schema (draft 2020-12) of the configuration file.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(file::File).to_value();
    tidy(&mut schema);
    schema
}

/// Descriptions come from doc comments: their line breaks are those of the source. A default of null says nothing.
fn tidy(schema: &mut serde_json::Value) {
    match schema {
        serde_json::Value::Object(members) => {
            members.retain(|key, value| !(key == "default" && value.is_null()));
            for (key, value) in members {
                match value {
                    serde_json::Value::String(text) if key == "description" => {
                        let paragraphs = text.split("\n\n").map(|p| p.replace('\n', " "));
                        *text = paragraphs.collect::<Vec<_>>().join("\n\n");
                    }
                    value => tidy(value),
                }
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

fn main_drafts<'a>(main: &'a Source<'a>, file: &mut file::File) -> Vec<Draft<'a>> {
    let entries = file.backends.take().unwrap_or_default().0;
    let Some(Kind::Map(nodes)) = main.doc.get(&["backends".into()]).map(|n| &n.kind) else { return Vec::new() };
    let draft = |(name, entry): (String, _)| {
        let key = nodes.iter().find(|e| e.key == name)?.key.as_str();
        Some(Draft { name, source: main, path: ["backends".into(), key.into()], entry })
    };
    entries.into_iter().filter_map(draft).collect()
}

fn read(path: &Path, problems: &mut Problems) -> Option<Input> {
    let name: Arc<str> = path.display().to_string().into();
    let text = std::fs::metadata(path).and_then(|meta| match meta.len() {
        n if n > MAX_FILE => Err(std::io::Error::other(format!("larger than {}", show_size(MAX_FILE)))),
        _ => std::fs::read_to_string(path),
    });
    match text {
        Ok(text) => {
            // The directory that relative paths of the file start from.
            let absolute = std::path::absolute(path).ok();
            let base = absolute.as_deref().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned();
            Some(Input { name, text, base })
        }
        Err(e) => {
            problems.push(Problem::new(Place::named(name), format!("cannot be read: {e}")));
            None
        }
    }
}
