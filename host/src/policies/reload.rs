//! The configuration read again: its policies are put in place of those that run, as far as their virtual hosts exist; what else has changed
//! is named, because it needs a restart. All of it must be good, or nothing is applied.

use super::control::{Control, Failure, FailureKind};
use super::load::{Loader, Spec};
use super::status::Kept;
use super::swap::{self, Planned};
use crate::config::{self, Config, Problems, Sources};
use lockgate_policy::{Chain, Entry};
use serde::Serialize;
use std::sync::Arc;

/// What a reload did.
#[derive(Clone, Debug, Serialize)]
pub struct Reloaded {
    /// The virtual hosts whose policies were swapped.
    pub swapped: Vec<Kept>,
    /// Those whose policies are as they were.
    pub unchanged: Vec<Kept>,
    /// The keys that have changed and are not applied.
    pub needs_restart: Vec<String>,
    /// What is not wrong but worth a look.
    pub warnings: Vec<String>,
}

/// A configuration that is good.
struct Read {
    config: Config,
    warnings: Problems,
    /// By index in `Control::hosts`.
    hosts: Vec<(usize, Arc<[Spec]>, Vec<Entry>)>,
}

impl Control {
    /// Reads the configuration again, with the flags that the process was started with, and applies what can be applied.
    ///
    /// # Errors
    /// [`Failure`]; then nothing has changed.
    pub async fn reload(self: &Arc<Self>) -> Result<Reloaded, Failure> {
        let Some(sources) = self.sources.clone() else {
            return Err(self
                .failure(FailureKind::Unknown, "this gateway was not started from a configuration file, so there is none to read again"));
        };
        self.in_turn(move |control| async move { control.reload_now(sources).await }).await
    }

    /// As [`Control::reload`], for nobody who waits: how it ends is in the log.
    pub fn reload_soon(self: &Arc<Self>) {
        let control = self.clone();
        self.tasks.spawn(async move {
            match control.reload().await {
                // What was refused has been logged.
                Ok(_) | Err(Failure { kind: FailureKind::Refused, .. }) => {}
                Err(failure) => tracing::warn!(error = failure.error, "the configuration was not read again"),
            }
        });
    }

    async fn reload_now(self: &Arc<Self>, sources: Sources) -> Result<Reloaded, Failure> {
        let (engine, compiled) = (self.engine.clone(), swap::compiled(&self.hosts));
        let paths: Vec<Arc<str>> = self.hosts.iter().map(|host| host.path().clone()).collect();
        let read = tokio::task::spawn_blocking(move || read(&sources, &paths, Loader::new(engine, compiled)));
        let Read { config, warnings, hosts } = match read.await {
            Ok(Ok(read)) => read,
            Ok(Err(problems)) => return self.refuse_reload(&problems).await,
            Err(error) => return Err(self.failure(FailureKind::Internal, format!("reading the configuration was broken off: {error}"))),
        };
        let (mut planned, mut unchanged) = (Vec::new(), Vec::new());
        for (host, specs, entries) in hosts {
            if same(&self.hosts[host].running().0, &entries) {
                unchanged.push((host, specs));
            } else {
                planned.push(Planned { host, specs, entries });
            }
        }
        let changed: Vec<usize> = planned.iter().map(|plan| plan.host).collect();
        self.conclude("reload", &changed, Ok(planned)).await?;
        let kept = |host: usize| self.hosts[host].kept();
        let reloaded = Reloaded {
            swapped: changed.into_iter().map(kept).collect(),
            unchanged: unchanged.iter().map(|(host, _)| kept(*host)).collect(),
            needs_restart: config::restart_keys(&self.config, &config),
            warnings: warnings.iter().map(ToString::to_string).collect(),
        };
        for (host, specs) in unchanged {
            self.hosts[host].respecify(specs);
        }
        for warning in &reloaded.warnings {
            tracing::warn!("{warning}");
        }
        if reloaded.needs_restart.is_empty() {
            tracing::info!(swapped = reloaded.swapped.len(), "the configuration was read again");
        } else {
            let keys = reloaded.needs_restart.join(", ");
            tracing::warn!(swapped = reloaded.swapped.len(), keys, "the configuration was read again; these changes need a restart");
        }
        Ok(reloaded)
    }

    async fn refuse_reload<T>(self: &Arc<Self>, problems: &Problems) -> Result<T, Failure> {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let reason = match &lines[..] {
            [only] => only.clone(),
            _ => format!("the configuration has {} problems: {}", lines.len(), lines.join("; ")),
        };
        let all: Vec<usize> = (0..self.hosts.len()).collect();
        let failure = match self.conclude("reload", &all, Err(reason)).await {
            Err(failure) => failure,
            Ok(()) => self.failure(FailureKind::Internal, "the configuration was refused"),
        };
        Err(Failure { problems: lines, ..failure })
    }
}

/// Reads and checks all of it, also the policies of virtual hosts that are not served yet.
fn read(sources: &Sources, paths: &[Arc<str>], mut loader: Loader) -> Result<Read, Problems> {
    let loaded = config::load(sources)?;
    let mut problems = Problems::default();
    let mut hosts = Vec::new();
    for host in &loaded.config.virtual_hosts {
        let (specs, entries) = loader.host(&loaded.config, host, &mut problems);
        if let Some(at) = paths.iter().position(|path| **path == *host.path) {
            hosts.push((at, specs, entries));
        }
    }
    if problems.is_empty() { Ok(Read { config: loaded.config, warnings: loaded.warnings, hosts }) } else { Err(problems) }
}

/// Whether a chain has these policies already.
fn same(chain: &Chain, entries: &[Entry]) -> bool {
    let same = |(a, b): (&Entry, &Entry)| Arc::ptr_eq(a.policy(), b.policy()) && a.setting() == b.setting() && a.failing() == b.failing();
    chain.entries().len() == entries.len() && chain.entries().iter().zip(entries).all(same)
}
