//! Configuration text for the scripted stdio backend. What its tools do is written at the top of `src/bin/stdio-backend.rs`.

use std::path::Path;

use crate::process;

/// The command line of a scripted stdio backend that writes what happens to it to `log`, with more `flags`.
pub fn command(log: &Path, flags: &[&str]) -> Vec<String> {
    let program = process::binary("stdio-backend").display().to_string();
    let log = log.display().to_string();
    [program, "--log".to_owned(), log].into_iter().chain(flags.iter().map(|&flag| flag.to_owned())).collect()
}

/// One line of that log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub pid: u32,
    /// `start`, `in` (a message from the gateway), `eof` or `exit`.
    pub what: String,
    /// The message, for `in`.
    pub text: String,
}

/// The log so far; empty when nothing was started yet.
pub fn read(log: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ' ');
            let (pid, what) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
            Some(Line { pid, what, text: parts.next().unwrap_or_default().to_owned() })
        })
        .collect()
}

/// The process ids of all backends that were started, oldest first.
pub fn started(log: &Path) -> Vec<u32> {
    read(log).iter().filter(|line| line.what == "start").map(|line| line.pid).collect()
}
