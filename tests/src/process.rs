//! Child processes that are always reaped, folders that are always removed, and what `/proc` says about both.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdin, Command},
};

use crate::within;

/// A folder of this test, removed with everything in it when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("lockgate-test-{name}-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server of the tests' own that prints its URL as the first line and ends when its standard input does.
#[derive(Debug)]
pub struct Server {
    pub url: String,
    pub pid: u32,
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Server {
    /// Starts `command` and waits for the line with its URL.
    pub async fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let pid = child.id().expect("a process that was just started has an id");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let url = loop {
            let line = within("the address of a server", lines.next_line()).await.expect("its output can be read");
            let line = line.unwrap_or_else(|| panic!("{command:?} ended before it printed its address"));
            if line.starts_with("http://") {
                break line;
            }
        };
        // Whatever it prints later is read and dropped, so that it never blocks on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { url, pid, stdin: child.stdin.take(), child }
    }

    /// Ends it by closing its standard input and waits for it.
    pub async fn stop(mut self) {
        drop(self.stdin.take());
        within("the end of a server", self.child.wait()).await.expect("it can be waited for");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        reap(&mut self.child);
    }
}

/// Kills and reaps `child`, without a runtime: for `Drop`.
pub(crate) fn reap(child: &mut Child) {
    if child.try_wait().is_ok_and(|status| status.is_some()) {
        return;
    }
    let _ = child.start_kill();
    for _ in 0..500 {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(std::time::Duration::from_millis(10)),
            _ => return,
        }
    }
}

/// Sends `signal` to the process `pid`, as a terminal or a service manager would.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("pids fit")).expect("pids are not zero");
    rustix::process::kill_process(pid, signal).unwrap_or_else(|error| panic!("signal to {pid:?}: {error}"));
}

/// The binary `name` beside the test executable, where `cargo build --workspace --bins` puts it.
pub fn binary(name: &str) -> PathBuf {
    let mut folder = std::env::current_exe().expect("the test knows its own path");
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let path = folder.join(name);
    assert!(path.exists(), "{} is not there: run `cargo build --workspace --bins` first", path.display());
    path
}

/// True while `pid` exists and is not a zombie.
pub fn alive(pid: u32) -> bool {
    status_field(pid, "State:").is_some_and(|state| !state.starts_with('Z'))
}

/// Resident memory of `pid` in bytes.
pub fn resident(pid: u32) -> u64 {
    let field = status_field(pid, "VmRSS:").unwrap_or_else(|| panic!("process {pid} is gone"));
    let kib: u64 = field.trim_end_matches("kB").trim().parse().expect("VmRSS is a number of kB");
    kib * 1024
}

/// The ids of the direct children of `pid`, zombies included.
pub fn children(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc can be read");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&child| status_field(child, "PPid:").is_some_and(|parent| parent == pid.to_string())).collect()
}

/// How many file descriptors `pid` has open.
pub fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count).unwrap_or(0)
}

/// How many files this process and those that it starts may open, after this one may open as many as it is allowed to.
pub fn open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.and_then(|files| files.try_into().ok()).unwrap_or(usize::MAX)
}

fn status_field(pid: u32, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
}
