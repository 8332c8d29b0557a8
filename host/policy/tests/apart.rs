//! Large components are compiled in a process of their own: here this test program, which is started with the arguments that the gateway's gets.
//! The test runner takes `policy compile-component IN OUT` for names of tests, so it runs `policy_compiler_process`; no other name here has one of
//! those words in it.

mod common;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::*;
use lockgate_policy::{Kind, LoadError, Policy, Terms, compile_component};

#[test]
fn policy_compiler_process() {
    let args: Vec<String> = std::env::args().collect();
    let [_, first, second, input, output, ..] = &args[..] else { return };
    if (first.as_str(), second.as_str()) != ("policy", "compile-component") {
        return;
    }
    let code = match compile_component(Path::new(input), Path::new(output)) {
        Ok(()) => 0,
        Err(reason) => {
            let _ = std::io::stderr().write_all(reason.as_bytes());
            1
        }
    };
    std::process::exit(code);
}

fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// A program that does what the text says, as a shell script.
struct Script(PathBuf);

impl Script {
    fn new(text: &str) -> Script {
        let path = std::env::temp_dir().join(format!("lockgate-apart-test-{:016x}", getrandom::u64().unwrap()));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o700).open(&path).unwrap();
        file.write_all(format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
        Script(path)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn code_that_was_made_elsewhere_runs_here() {
    let engine = engine_with(|c| (c.compiler, c.compile_apart_bytes) = (Some(this_program()), 100));
    let chain = chain_of(&engine, &alias_guest("", ""));
    assert_eq!(chain.alias(&session(&["a"]), Kind::Tool, "x").await.unwrap(), None);
    assert_eq!(engine.compiles(), 1);
}

#[test]
fn small_ones_stay_here() {
    let engine = engine_with(|c| c.compiler = Some("/nowhere".into()));
    assert!(Policy::load(&engine, "p", &alias_guest("", ""), &Terms::default()).is_ok());
}

#[test]
fn what_is_wrong_with_a_component_is_told_by_the_other_process() {
    let engine = engine_with(|c| (c.compiler, c.compile_apart_bytes) = (Some(this_program()), 5));
    let here = Policy::load(&common::engine(), "p", b"\0asm\x0d\0\x01\0\xff".as_slice(), &Terms::default()).unwrap_err().to_string();
    let elsewhere = Policy::load(&engine, "p", b"\0asm\x0d\0\x01\0\xff".as_slice(), &Terms::default()).unwrap_err().to_string();
    assert!(elsewhere.starts_with("policy p: not a WASM component that can be compiled: "), "{elsewhere}");
    assert_eq!(here, elsewhere);
}

#[test]
fn a_process_that_takes_too_long_is_ended() {
    let pid = std::env::temp_dir().join(format!("lockgate-apart-pid-{:016x}", getrandom::u64().unwrap()));
    let slow = Script::new(&format!("echo $$ > {}; exec sleep 600", pid.display()));
    let engine = engine_with(|c| {
        (c.compiler, c.compile_apart_bytes, c.compile_time) = (Some(slow.0.clone()), 100, Duration::from_secs(1));
    });
    let start = Instant::now();
    let refused = Policy::load(&engine, "p", &alias_guest("", ""), &Terms::default()).unwrap_err();
    assert!(matches!(&refused, LoadError::Compile { reason, .. } if reason == "compiling it took more than 1 seconds"), "{refused}");
    assert!(start.elapsed() < Duration::from_secs(60));
    let written = fs::read_to_string(&pid).unwrap();
    let _ = fs::remove_file(&pid);
    assert!(!Path::new("/proc").join(written.trim()).exists(), "it is gone");
}

#[test]
fn a_process_that_dies_is_the_components_end_and_says_how() {
    let dies = Script::new("kill -9 $$");
    let engine = engine_with(|c| (c.compiler, c.compile_apart_bytes) = (Some(dies.0.clone()), 100));
    let refused = Policy::load(&engine, "p", &alias_guest("", ""), &Terms::default()).unwrap_err().to_string();
    assert!(refused.contains("signal: 9"), "{refused}");
}

#[tokio::test]
async fn what_is_no_help_is_done_without() {
    // Does not exist; does nothing; gives back something else.
    let (idle, wrong) = (Script::new("exit 0"), Script::new("echo nonsense > \"$4\""));
    for program in ["/nowhere/at/all".into(), idle.0.clone(), wrong.0.clone()] {
        let engine = engine_with(|c| (c.compiler, c.compile_apart_bytes) = (Some(program.clone()), 100));
        let chain = chain_of(&engine, &alias_guest("", ""));
        assert_eq!(chain.alias(&session(&["a"]), Kind::Tool, "x").await.unwrap(), None, "{}", program.display());
    }
}

/// The gateway may die without a word: nobody wants the code then.
#[test]
fn it_ends_when_the_one_that_asked_is_gone() {
    use std::process::{Command, Stdio};
    let dir = std::env::temp_dir().join(format!("lockgate-apart-dir-{:016x}", getrandom::u64().unwrap()));
    fs::create_dir(&dir).unwrap();
    // A pipe that nobody writes to: reading the component takes for ever.
    let input = dir.join("in");
    assert!(Command::new("mkfifo").arg(&input).status().unwrap().success());
    let mut command = Command::new(this_program());
    command.args(["policy", "compile-component"]).arg(&input).arg(dir.join("out")).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"reservation\":4294967296}\n").unwrap();
    assert!(child.try_wait().unwrap().is_none());
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let _ = fs::remove_dir_all(&dir);
}
