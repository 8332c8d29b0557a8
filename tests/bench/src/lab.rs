//! Where everything runs: which cores there are, the server behind the gateways, the folder for configurations and logs.

use std::{path::PathBuf, process::Command, sync::Arc};

use anyhow::{Context, Result};

use crate::{
    client::{Era, Target},
    proc,
    process::{Folder, Process, beside},
};

/// The machine, set up.
#[derive(Debug)]
pub struct Lab {
    /// The subject runs on this one, if there is more than one.
    pub subject: Vec<usize>,
    /// Load and server run on the others.
    pub load: Vec<usize>,
    /// The server, at `http://…` without a path.
    pub backend: String,
    /// Open files of one process.
    pub files: usize,
    /// `target`, with what is installed and written below it.
    pub target: PathBuf,
    pub folder: Folder,
    /// Processes that wanted to run at the beginning, on average over a minute: what else the machine did.
    pub busy: f64,
    /// What could not be done, a line each.
    pub remarks: std::cell::RefCell<Vec<String>>,
    _backend: Process,
}

impl Lab {
    /// Pins this thread and starts the server, on `port` or on one that is free.
    pub fn set_up(port: u16) -> Result<Lab> {
        let (files, busy) = (proc::open_files(), proc::load_average());
        let mut load = proc::cores();
        let subject: Vec<usize> = if load.len() > 1 { load.pop().into_iter().collect() } else { Vec::new() };
        let mut remarks = Vec::new();
        if subject.is_empty() {
            remarks.push("one core only: subject, load and server share it".to_owned());
            load.clear();
        } else if let Err(error) = proc::pin(&load) {
            remarks.push(format!("nothing could be pinned to a core: {error}"));
        }
        if busy > 0.5 {
            println!("the machine does other things too (load {busy:.1}): trust ratios of processor time, and nothing else");
        }
        // target/PROFILE/lockgate-bench
        let exe = std::env::current_exe()?;
        let target = exe.parent().and_then(|folder| folder.parent()).context("the benchmark runs from target/")?.to_owned();
        let folder = Folder::new(&target.join("bench"), "run")?;
        let mut command = Command::new(beside("lockgate-bench")?);
        command.arg("backend").arg("--port").arg(port.to_string());
        let (process, backend) = Process::start_announced(command, &load, &folder.path().join("backend.log"))?;
        Ok(Lab { subject, load, backend, files, target, folder, busy, remarks: remarks.into(), _backend: process })
    }

    /// The server's endpoint of an era.
    pub fn endpoint(&self, era: Era) -> String {
        match era {
            Era::Legacy => format!("{}/mcp", self.backend),
            Era::Modern => format!("{}/modern", self.backend),
        }
    }

    /// An endpoint with `count` tools, whose names begin with `name`.
    pub fn list(&self, name: &str, count: usize) -> String {
        format!("{}/list/{name}/{count}", self.backend)
    }

    /// Says once what could not be done.
    pub fn remark(&self, remark: impl Into<String>) {
        let remark = remark.into();
        let mut remarks = self.remarks.borrow_mut();
        if !remarks.contains(&remark) {
            println!("  {remark}");
            remarks.push(remark);
        }
    }

    pub fn target_of(url: &str) -> Result<Arc<Target>> {
        Ok(Arc::new(Target::parse(url)?))
    }
}
