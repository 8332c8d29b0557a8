//! Processes that the benchmark starts: on their core, with their log in a file, and ended when it ends.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::proc;

/// How long a server may take until it listens. A gateway compiles its policies at the first start.
const START: Duration = Duration::from_secs(90);
const STOP: Duration = Duration::from_secs(8);

/// A running process. Ended with SIGTERM, or killed, when it is dropped.
#[derive(Debug)]
pub struct Process {
    pub pid: u32,
    child: Child,
    /// Some of them end when this does.
    _input: Option<ChildStdin>,
    log: PathBuf,
}

/// A folder below `target/bench`, removed when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(parent: &Path, name: &str) -> Result<Folder> {
        let path = parent.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Folder(path.canonicalize()?))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Process {
    /// Starts `command` on `cores` (anywhere where there are none), with its output in `log`.
    pub fn start(command: Command, cores: &[usize], log: &Path) -> Result<Process> {
        let output = File::create(log).with_context(|| log.display().to_string())?;
        Process::spawn(command, cores, log, Stdio::from(output)).map(|(process, _)| process)
    }

    /// As `start`, for programs that print their URL first and end with their standard input.
    pub fn start_announced(command: Command, cores: &[usize], log: &Path) -> Result<(Process, String)> {
        let (process, output) = Process::spawn(command, cores, log, Stdio::piped())?;
        let mut lines = BufReader::new(output.context("its output is piped")?).lines();
        let url = lines.find_map(|line| line.ok().filter(|line| line.starts_with("http://")));
        let url = url.with_context(|| format!("it ended before it printed its address: {}", process.tail()))?;
        // Whatever it prints later is read, so that it never blocks on a full pipe. Ends with the process.
        std::thread::spawn(move || lines.for_each(drop));
        Ok((process, url))
    }

    fn spawn(mut command: Command, cores: &[usize], log: &Path, output: Stdio) -> Result<(Process, Option<std::process::ChildStdout>)> {
        let errors = File::options().create(true).append(true).open(log).with_context(|| log.display().to_string())?;
        command.stdin(Stdio::piped()).stdout(output).stderr(errors);
        // A process runs where the thread ran that started it, so that it counts its cores rightly from the beginning.
        let started = std::thread::scope(|scope| {
            let starting = scope.spawn(|| {
                if !cores.is_empty() {
                    proc::pin(cores)?;
                }
                command.spawn()
            });
            starting.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread that starts it panicked")))
        });
        let mut child = started.with_context(|| format!("{}", command.get_program().display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Ok((Process { pid: child.id(), child, _input: input, log: log.to_owned() }, output))
    }

    /// Waits until something accepts connections at `address`.
    pub fn listens(&mut self, address: SocketAddr) -> Result<()> {
        let begun = Instant::now();
        loop {
            if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status}: {}", self.tail());
            }
            if begun.elapsed() > START {
                bail!("it does not listen after {START:?}: {}", self.tail());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// It and its children.
    pub fn tree(&self) -> Vec<u32> {
        proc::tree(self.pid)
    }

    /// Ends it in order and waits. Gives what it logged.
    pub fn stop(mut self) -> String {
        self.end();
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The end of its log.
    fn tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    fn end(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // SAFETY: sends a signal to a child that was not waited for, so that its id is its own.
        unsafe { libc::kill(self.pid.cast_signed(), libc::SIGTERM) };
        let begun = Instant::now();
        while begun.elapsed() < STOP {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The binary `name` beside this one.
pub fn beside(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if !path.exists() {
        bail!("{} is not there: `make bench` builds it", path.display());
    }
    Ok(path)
}

/// The program `name` in `PATH`, or in the folders of system programs, which are not everybody's.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// An address of the loopback that was free a moment ago.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
