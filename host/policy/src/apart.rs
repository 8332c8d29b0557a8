//! Large components are compiled in a process of their own: seconds of CPU and hundreds of MiB that are not the gateway's, and given back when
//! it ends. The process is the same program with other arguments. It ends when its work is done, when its deadline has passed, or
//! when the one that asked is gone. Called by `compile` on the one side and by the program's `main` on the other.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::code::{self, Sealed, Unfit};
use crate::compile::translate;
use crate::engine::code_settings;
use crate::log::clean;

/// What the process is told, as one line of JSON on its standard input. That stays open for as long as the answer is wanted.
#[derive(Serialize, Deserialize)]
struct Settings {
    /// Address space of one memory, in bytes.
    reservation: u64,
}

/// Why there is no code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// It is the component's fault, or it takes too much: the same would happen in this process.
    #[error("{0}")]
    Component(String),
    #[error("{what}: {reason}")]
    Io { what: &'static str, reason: io::Error },
    #[error("what the process gave back is not used: {0} (is it of the same version as this one?)")]
    Unfit(#[from] Unfit),
}

/// A folder that is removed when this is dropped.
struct Scratch(PathBuf);

/// A process that is ended when this is dropped.
struct Running(Child);

/// Bytes of a message that are read.
const MOST_MESSAGE: u64 = 2 << 10;

/// Between two looks at whether the process has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs `program policy compile-component IN OUT`.
pub(crate) fn compile(program: &Path, component: &[u8], key: &str, reservation: u64, within: Duration) -> Result<Sealed, Failed> {
    let io = |what| move |reason| Failed::Io { what, reason };
    let scratch = Scratch::new().map_err(io("no folder for it can be made"))?;
    let [input, output, errors] = ["component.wasm", "code", "errors"].map(|name| scratch.0.join(name));
    new_file(&input).and_then(|mut f| f.write_all(component)).map_err(io("its input cannot be written"))?;
    let errors_to = new_file(&errors).map_err(io("its input cannot be written"))?;
    let mut command = Command::new(program);
    command.args(["policy", "compile-component"]).arg(&input).arg(&output);
    // Nothing of this process's environment is needed for it, and some of it may be secret.
    command.env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors_to);
    let mut child = Running(command.spawn().map_err(io("it cannot be started"))?);
    let mut stdin = child.0.stdin.take();
    let mut line = serde_json::to_vec(&Settings { reservation }).map_err(|e| io("its settings cannot be written")(e.into()))?;
    line.push(b'\n');
    if let Some(stdin) = &mut stdin {
        match stdin.write_all(&line) {
            // It has ended before it read them; how, it has said itself.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            written => written.map_err(io("its settings cannot be written"))?,
        }
    }
    let until = Instant::now() + within;
    let status = loop {
        if let Some(status) = child.0.try_wait().map_err(io("it cannot be waited for"))? {
            break status;
        }
        if Instant::now() >= until {
            return Err(Failed::Component(format!("compiling it took more than {} seconds", within.as_secs())));
        }
        std::thread::sleep(PAUSE);
    };
    drop(stdin);
    if !status.success() {
        let said = File::open(&errors).map(|f| message(f, MOST_MESSAGE)).unwrap_or_default();
        return Err(Failed::Component(if said.is_empty() { format!("the process that compiles it ended with {status}") } else { said }));
    }
    let bytes = fs::read(&output).map_err(io("what it made cannot be read"))?;
    Ok(Sealed::check(bytes, key)?)
}

/// The other side: compiles the component in the file `input`, and writes the code to the new file `output`. Reads settings from standard
/// input, and **ends the process** when that is closed, for then nobody wants the code any more. To be called by the program that is named as
/// [`EngineConfig::compiler`](crate::EngineConfig::compiler) when it is started with `policy compile-component INPUT OUTPUT`; an error is to be
/// printed to standard error and to end in a status other than 0.
///
/// # Errors
///
/// In words, for people: what the component lacks, or which file cannot be read or written.
pub fn compile_component(input: &Path, output: &Path) -> Result<(), String> {
    let mut stdin = BufReader::new(io::stdin());
    let mut line = String::new();
    stdin.by_ref().take(MOST_MESSAGE).read_line(&mut line).map_err(|e| format!("the settings cannot be read: {e}"))?;
    let Settings { reservation } =
        serde_json::from_str(&line).map_err(|e| format!("the settings cannot be read, one line of JSON on standard input: {e}"))?;
    // It ends with the process, at the latest when the one that asked closes the pipe.
    std::thread::spawn(move || {
        let _ = io::copy(&mut stdin, &mut io::sink());
        std::process::exit(3);
    });
    let component = fs::read(input).map_err(|e| format!("{} cannot be read: {e}", input.display()))?;
    let engine = wasmtime::Engine::new(&code_settings(reservation)).map_err(|e| format!("the WASM engine cannot be set up: {e:#}"))?;
    let code = translate(&engine, &component).map_err(|e| format!("{e:#}"))?;
    let key = code::key(&code::hex(&Sha256::digest(&component)), &code::compatibility(&engine));
    let sealed = Sealed::new(&key, &code);
    new_file(output).and_then(|mut f| f.write_all(sealed.bytes())).map_err(|e| format!("{} cannot be written: {e}", output.display()))
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// The start of what it said, as one line.
fn message(file: File, most: u64) -> String {
    let mut bytes = Vec::new();
    let _ = file.take(most).read_to_end(&mut bytes);
    clean(String::from_utf8_lossy(&bytes).trim(), bytes.len())
}

// === impl Scratch ===

impl Scratch {
    /// Only this user can enter it; its name cannot be guessed, and nothing was there under it.
    fn new() -> io::Result<Scratch> {
        let dir = std::env::temp_dir().join(format!("lockgate-compile-{:016x}", getrandom::u64().map_err(io::Error::other)?));
        DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(Scratch(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

// === impl Running ===

impl Drop for Running {
    fn drop(&mut self) {
        // Both do nothing if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
