//! From the start of the process to the first answer, with five policies whose compiled code is in the cache.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::{
    client::Era,
    lab::Lab,
    process::{Process, free_address},
    results::Results,
    rounds::Plan,
    stats::Spread,
    subjects,
};

pub fn run(lab: &Lab, plan: Plan, results: &mut Results) -> Result<()> {
    let starts = if plan.quick { 5 } else { 20 };
    let mut times = Vec::new();
    for start in 0..=starts {
        let address = free_address()?;
        let config = lab.folder.write("start.yaml", &subjects::five_policies(address, &lab.endpoint(Era::Legacy)))?;
        let command = subjects::lockgate(lab, &config)?;
        let begun = Instant::now();
        let mut process = Process::start(command, &lab.subject, &lab.folder.path().join("start.log"))?;
        process.listens(address)?;
        answers(address).context("the first answer")?;
        // The first one may have had to compile.
        if start > 0 {
            times.push(begun.elapsed().as_secs_f64());
        }
    }
    results.start = Spread::of(times);
    if let Some(start) = results.start {
        println!(
            "start with five policies from the cache: {:.0} ms (quartiles {:.0} to {:.0})",
            start.median * 1e3,
            start.low * 1e3,
            start.high * 1e3
        );
    }
    Ok(())
}

/// Any answer at all says that it serves.
fn answers(address: SocketAddr) -> Result<()> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    socket.write_all(format!("GET /mcp HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes())?;
    socket.read_exact(&mut [0; 12])?;
    Ok(())
}
