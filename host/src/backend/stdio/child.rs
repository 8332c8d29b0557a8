//! The life of one child process: its own process group, its pipes, and an end that leaves nothing behind.

use super::lines::{Line, Lines};
use super::stderr;
use crate::backend::error::BackendError;
use crate::backend::inner::Inner;
use crate::backend::link::{Link, Wiring};
use crate::backend::modern::era;
use crate::backend::pipe::{LastWord, OUTGOING, Outgoing, Outlet, Pipe};
use crate::backend::target::Target;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

/// What a child gets from the gateway's own environment. Nothing else, so that no secret of the gateway reaches a backend.
const ENVIRONMENT: [&str; 8] = ["PATH", "HOME", "LANG", "TERM", "TMPDIR", "USER", "SHELL", "TZ"];
/// After the end of its input a child may take so long to exit by itself.
const AFTER_EOF: Duration = Duration::from_secs(1);
/// And so long after SIGTERM, before SIGKILL.
const AFTER_TERM: Duration = Duration::from_secs(2);
/// Output that a child left in its pipe is read for so long after its exit.
const LEFT_OVER: Duration = Duration::from_millis(250);
/// How long after the end of a pipe an exit may follow.
const EXIT_AFTER_PIPE: Duration = Duration::from_millis(100);
/// A message up to this size is written in one piece.
const ONE_WRITE: usize = 64 * 1024;

/// Starts the child and shakes hands. The caller bounds the time; an unfinished child is ended.
pub async fn open(inner: &Arc<Inner>, epoch: u64) -> Result<Link, BackendError> {
    let mut child = command(inner)?.spawn().map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound => "its program or working directory does not exist".to_owned(),
            _ => format!("its program cannot be started: {error}"),
        };
        inner.unavailable(reason, None)
    })?;
    let group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) else {
        return Err(inner.unavailable("its program has no pipes", None));
    };
    let (sender, outgoing) = mpsc::channel(OUTGOING);
    let pipe = Pipe::new(Outlet::Child(sender), inner.stop.child_token());
    let guard = pipe.stop.clone().drop_guard();
    tracing::info!(backend = %inner.backend.name, session = %inner.hello.session_tag, pid = child.id(), "started");
    inner.tasks.spawn(live(inner.clone(), pipe.clone(), Parts { child, group, stdin, stdout, stderr, outgoing }));

    let hello = era::shake(inner, &pipe).await?;
    guard.disarm();
    Ok(Link { epoch, hello: Arc::new(hello), wiring: Wiring::Pipe(pipe) })
}

fn command(inner: &Inner) -> Result<Command, BackendError> {
    let Target::Stdio { program, args, env, cwd } = &inner.backend.target else {
        return Err(inner.unavailable("it has no program to start", None));
    };
    let mut command = Command::new(program);
    command.args(args).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(std::env::vars_os().filter(|(name, _)| inherited(name)));
    command.envs(env.iter().map(|(name, value)| (name, value)));
    if let Some(cwd) = cwd {
        command.current_dir(cwd);
    }
    command.process_group(0).kill_on_drop(true);
    Ok(command)
}

fn inherited(name: &OsString) -> bool {
    name.to_str().is_some_and(|name| ENVIRONMENT.contains(&name) || name.starts_with("LC_"))
}

struct Parts {
    child: Child,
    group: Group,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: tokio::process::ChildStderr,
    outgoing: mpsc::Receiver<Outgoing>,
}

/// The task of a child. Everything that belongs to the child ends with it.
async fn live(inner: Arc<Inner>, pipe: Arc<Pipe>, parts: Parts) {
    let _last = LastWord(pipe.clone());
    let Parts { mut child, mut group, stdin, stdout, stderr, outgoing } = parts;
    let mut reading = Box::pin(read(&inner, &pipe, stdout));
    let mut writing = Some(Box::pin(write(stdin, outgoing)));
    let mut logging = Box::pin(stderr::forward(stderr, &inner));
    let (mut read_all, mut logged_all) = (false, false);
    let mut exited = loop {
        tokio::select! {
            status = child.wait() => break Some(status),
            () = &mut reading, if !read_all => { read_all = true; break None }
            () = async { if let Some(writing) = &mut writing { writing.await } }, if writing.is_some() => { writing = None; break None }
            () = &mut logging, if !logged_all => logged_all = true,
            () = pipe.stop.cancelled() => break None,
            () = inner.kill.cancelled() => break None,
        }
    };
    if exited.is_none() {
        if pipe.stop.is_cancelled() || inner.kill.is_cancelled() {
            pipe.close("it was closed");
        } else {
            // The end of a pipe is mostly the first sign of an exit, and the exit says more.
            exited = tokio::time::timeout(EXIT_AFTER_PIPE, child.wait()).await.ok();
        }
    }
    let status = match exited {
        Some(status) => {
            group.kill(Signal::KILL);
            let left = async {
                tokio::join!(
                    async {
                        if !read_all {
                            reading.as_mut().await
                        }
                    },
                    async {
                        if !logged_all {
                            logging.as_mut().await
                        }
                    }
                )
            };
            let _ = tokio::time::timeout(LEFT_OVER, left).await;
            status
        }
        None => {
            pipe.close("its process closed its pipes");
            drop(writing.take());
            let ending = end(&mut child, &group, &inner);
            tokio::pin!(ending);
            loop {
                tokio::select! {
                    status = &mut ending => break status,
                    () = &mut reading, if !read_all => read_all = true,
                    () = &mut logging, if !logged_all => logged_all = true,
                }
            }
        }
    };
    // Reaped: the number may soon be another's.
    group.0 = None;
    let why = describe(&status);
    tracing::info!(backend = %inner.backend.name, session = %inner.hello.session_tag, "{why}");
    pipe.gone(&why);
}

/// Its input is closed already. Waits, asks, insists; the child is reaped when this returns.
async fn end(child: &mut Child, group: &Group, inner: &Inner) -> std::io::Result<ExitStatus> {
    for (wait, then) in [(AFTER_EOF, Signal::TERM), (AFTER_TERM, Signal::KILL)] {
        let hurry = inner.kill.cancelled();
        tokio::select! {
            status = child.wait() => {
                group.kill(Signal::KILL);
                return status;
            }
            () = tokio::time::sleep(wait) => group.kill(then),
            () = hurry => group.kill(Signal::KILL),
        }
    }
    child.wait().await
}

fn describe(status: &std::io::Result<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("its process ended with exit status {code}"),
            (None, Some(signal)) => format!("its process was ended by signal {signal}"),
            (None, None) => "its process ended".into(),
        },
        Err(error) => format!("its process was lost: {error}"),
    }
}

async fn read(inner: &Arc<Inner>, pipe: &Arc<Pipe>, stdout: ChildStdout) {
    let mut lines = Lines::new(stdout, inner.backend.limits.message, inner.room.clone());
    while let Ok(Some(line)) = lines.next().await {
        match line {
            Line::Text(line) if line[0] == b'{' => pipe.take(inner, line, lines.reading()).await,
            Line::Text(_) => inner.noise("a line on stdout that is no MCP message was skipped"),
            Line::TooLong { head } => pipe.too_large(inner, &head),
        }
    }
}

async fn write(mut stdin: ChildStdin, mut outgoing: mpsc::Receiver<Outgoing>) {
    while let Some(Outgoing { message, written }) = outgoing.recv().await {
        if let Some(written) = written {
            written.store(true, Ordering::Relaxed);
        }
        let line = message.into_line();
        let done = if line.len() <= ONE_WRITE {
            stdin.write_all(&line.into_bytes()).await
        } else {
            let mut done = Ok(());
            for part in line.parts() {
                done = stdin.write_all(part).await;
                if done.is_err() {
                    break;
                }
            }
            done
        };
        if done.is_err() {
            return;
        }
    }
}

/// The child's process group. Killed when dropped: whatever happens to the task, nothing of the child stays.
struct Group(Option<Pid>);

impl Group {
    fn kill(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // An error means that nobody is left.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill(Signal::KILL);
    }
}
