//! From what the file says to a [`Config`] that can be served: every check that needs no network.
//!
//! Each part reports all that is wrong with it and answers with something usable, so that the next part is checked too; the
//! result counts only if nothing was reported. Looks at the file system (programs, directories, components), never writes.

mod backends;
mod limits;
mod listen;
mod modern;
mod policies;
mod virtual_hosts;

pub use backends::words;
pub use policies::default_cache;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::file::{AdminAddress, BackendFile, File};
use super::model::Config;
use super::problem::{Place, Problem, Problems};
use super::source::expand::Lookup;
use super::source::tree::{Doc, Step};

/// One file that has been read: the tree for places, and the directory that its relative paths start from.
pub struct Source<'a> {
    pub doc: &'a Doc,
    pub base: PathBuf,
}

/// A backend to be, from either kind of file.
pub struct Draft<'a> {
    pub name: String,
    pub source: &'a Source<'a>,
    /// Where it stands in its document.
    pub path: [Step<'a>; 2],
    pub entry: BackendFile,
}

/// What the command line says in place of the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Not empty: listen here instead.
    pub listen: Vec<SocketAddr>,
    pub admin: Option<AdminAddress>,
}

/// What all checks share.
pub struct Cx<'a> {
    pub env: Lookup<'a>,
    pub problems: &'a mut Problems,
    pub warnings: &'a mut Problems,
}

// === impl Cx ===

impl Cx<'_> {
    pub fn problem(&mut self, place: Place, message: impl Into<String>) {
        self.problems.push(Problem::new(place, message));
    }

    pub fn warn(&mut self, place: Place, message: impl Into<String>) {
        self.warnings.push(Problem::new(place, message));
    }

    /// The value, its default, or a problem if it is out of bounds. `why` is said when it is too large.
    fn bounded<T: PartialOrd + Copy>(&mut self, place: impl FnOnce() -> Place, value: Option<T>, bounds: Bounds<T>) -> T {
        let Some(value) = value else { return bounds.default };
        let show = bounds.show;
        if value < bounds.least {
            let message = format!("{} is too small; the least is {}", show(value), show(bounds.least));
            self.problem(place(), message);
            return bounds.default;
        }
        if value > bounds.most {
            let message = format!("{} is too much; the most is {}{}", show(value), show(bounds.most), bounds.why);
            self.problem(place(), message);
            return bounds.default;
        }
        value
    }
}

/// Default and bounds of a number, size or duration.
struct Bounds<T> {
    default: T,
    least: T,
    most: T,
    show: fn(T) -> String,
    why: &'static str,
}

/// Checks everything and builds the configuration. Meaningful only if no problem was reported.
pub fn resolve(main: &Source<'_>, file: &File, drafts: Vec<Draft<'_>>, overrides: &Overrides, cx: &mut Cx<'_>) -> Config {
    let (listen, admin) = listen::addresses(main, file, overrides, cx);
    let admin_token = listen::admin_token(main, file, admin, cx);
    let auth = listen::auth(main, file, &listen, overrides, cx);
    let http = listen::http(main, file, &listen, cx);
    let session = limits::session(main, file, cx);
    let limits = limits::limits(main, file, cx);
    let admission = limits::admission(main, file, cx);
    let modern = modern::modern(main, file, cx);
    let log = limits::log(main, file, cx);
    let shutdown = limits::shutdown(main, file, cx);
    let (backends, places) = backends::backends(drafts, &limits, &listen, cx);
    let policy = policies::plane(main, file, cx);
    let virtual_hosts = virtual_hosts::virtual_hosts(main, file, &policy, &backends, &places, cx);
    Config { listen, admin, admin_token, backends, virtual_hosts, policy, auth, session, limits, admission, modern, http, log, shutdown }
}

/// The path relative to the file's directory, unless it is absolute; a `~` is refused where it would be a surprise.
fn resolve_path(base: &Path, text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("is empty; write a path or remove the key".to_owned());
    }
    if text == "~" || text.starts_with("~/") {
        return Err("`~` is not expanded here; write ${HOME} in its place".to_owned());
    }
    // Collected anew, so that `./x` shows as `x`.
    Ok(base.join(text).components().collect())
}

/// What is wrong with the name of a backend or a policy, if anything.
pub fn name_fault(name: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || name.len() > 64 {
        return Some(format!("a name has 1 to 64 characters, this one has {}", name.len()));
    }
    if let Some(c) = name.chars().find(|c| !allowed(*c)) {
        return Some(format!("{c:?} cannot be in a name; use letters, digits, `-` and `_`"));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Some("a name starts with a letter or a digit".to_owned());
    }
    None
}
