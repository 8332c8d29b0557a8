//! The path of every change: new code is built and tried out while the old runs, and then takes its place at once on all virtual hosts
//! that are meant, or on none.

use super::control::{Control, Failure, FailureKind, Host};
use super::load::{Bytecode, Compiled, Loader, Source, Spec, sha256_hex};
use crate::catalog::Table;
use bytes::Bytes;
use lockgate_policy::{Chain, Entry, PolicyError, Scratch, SessionView, Warm};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// Sessions whose lists new policies are tried on.
const SAMPLES: usize = 8;

/// A component that is to take the place of a policy's code.
#[derive(Clone, Debug)]
pub struct Push {
    /// The operator's name of the policy.
    pub policy: String,
    /// Where; none: wherever the policy runs.
    pub virtual_host: Option<String>,
    /// The digest that it must have, 64 hexadecimal digits, on top of what the configuration pins.
    pub sha256: Option<String>,
    pub component: Bytes,
}

/// A policy that was swapped in.
#[derive(Clone, Debug, Serialize)]
pub struct Swapped {
    pub virtual_host: Arc<str>,
    pub generation: u64,
    pub policy: Arc<str>,
    pub version: String,
    pub digest: String,
}

/// What is to run on one virtual host.
pub(super) struct Planned {
    /// Index in `Control::hosts`.
    pub host: usize,
    pub specs: Arc<[Spec]>,
    pub entries: Vec<Entry>,
}

/// Lists and the session that they are of.
struct Sample {
    view: SessionView,
    tables: [Arc<Table>; 4],
}

impl Control {
    /// Swaps in a component that came through the admin API. It runs until the next reload or restart.
    ///
    /// # Errors
    /// [`Failure`]; then nothing has changed.
    pub async fn push(self: &Arc<Self>, push: Push) -> Result<Vec<Swapped>, Failure> {
        self.in_turn(move |control| async move {
            let Push { policy, virtual_host, sha256, component } = push;
            let on = |host: &Host| virtual_host.as_ref().is_none_or(|wanted| **wanted == **host.path());
            let places = control.places(|host, spec| *spec.name == *policy && on(host));
            if places.is_empty() {
                let paths: Vec<&str> = control.hosts.iter().map(|host| &**host.path()).collect();
                let message = match &virtual_host {
                    Some(wanted) if !paths.contains(&wanted.as_str()) => {
                        format!("there is no virtual host {wanted}; there are {}", paths.join(", "))
                    }
                    Some(wanted) => format!("no policy {policy} runs on {wanted}"),
                    None => format!("no policy {policy} runs on any virtual host"),
                };
                return Err(control.failure(FailureKind::Unknown, message));
            }
            let code = Bytecode { component: component.to_vec(), manifest: None };
            control.replace("api", places, Source::Pushed, sha256, code).await
        })
        .await
    }

    /// Swaps in what a file holds now, wherever it is the policy's code. What runs already stays.
    pub(super) async fn take_file(self: &Arc<Self>, path: &Path, code: Bytecode) -> Result<Vec<Swapped>, Failure> {
        let source = Source::File(path.to_owned());
        let digest = code.digest();
        let is_news = move |spec: &Spec, source: &Source| spec.source == *source && spec.code != digest;
        if self.places(|_, spec| is_news(spec, &source)).is_empty() {
            return Ok(Vec::new());
        }
        self.in_turn(move |control| async move {
            let places = control.places(|_, spec| is_news(spec, &source));
            control.replace("file", places, source, None, code).await
        })
        .await
    }

    /// Where the policies run that are meant: index of the virtual host, and of the policy there.
    fn places(&self, meant: impl Fn(&Host, &Spec) -> bool) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        for (at, host) in self.hosts.iter().enumerate() {
            let specs = host.running().1;
            places.extend((0..specs.len()).filter(|&i| meant(host, &specs[i])).map(|i| (at, i)));
        }
        places
    }

    /// Puts one code in place of that of several policies. The turn is this task's.
    async fn replace(
        self: &Arc<Self>,
        by: &'static str,
        places: Vec<(usize, usize)>,
        source: Source,
        sha256: Option<String>,
        code: Bytecode,
    ) -> Result<Vec<Swapped>, Failure> {
        let mut hosts: Vec<usize> = places.iter().map(|(host, _)| *host).collect();
        hosts.dedup();
        let done = self.try_replace(&places, source, sha256, code).await;
        self.conclude(by, &hosts, done).await?;
        Ok(places
            .iter()
            .filter_map(|&(host, at)| {
                let chain = self.hosts[host].running().0;
                let policy = chain.entries().get(at)?.policy();
                Some(Swapped {
                    virtual_host: self.hosts[host].path().clone(),
                    generation: chain.generation(),
                    policy: policy.name().into(),
                    version: policy.version().to_owned(),
                    digest: policy.digest().to_owned(),
                })
            })
            .collect())
    }

    async fn try_replace(
        self: &Arc<Self>,
        places: &[(usize, usize)],
        source: Source,
        sha256: Option<String>,
        code: Bytecode,
    ) -> Result<Vec<Planned>, String> {
        if let Some(wanted) = sha256 {
            let found = sha256_hex(&code.component);
            if !wanted.eq_ignore_ascii_case(&found) {
                return Err(format!(
                    "the SHA-256 of the component is {found}, but {wanted} was asked for: it is another one, or was changed on its way"
                ));
            }
        }
        let mut plans: Vec<(usize, Vec<Spec>, Vec<Entry>)> = Vec::new();
        for &(host, at) in places {
            let plan = match plans.iter_mut().find(|(of, ..)| *of == host) {
                Some(plan) => plan,
                None => {
                    let (chain, specs) = self.hosts[host].running();
                    plans.push((host, specs.to_vec(), chain.entries().to_vec()));
                    let last = plans.len() - 1;
                    &mut plans[last]
                }
            };
            // New code may have gone back to what was there before it, meanwhile.
            match plan.1.get_mut(at) {
                Some(spec) if at < plan.2.len() => spec.source = source.clone(),
                _ => return Err("the policies went back to those before meanwhile; try again".into()),
            }
        }
        let (engine, places) = (self.engine.clone(), places.to_vec());
        // One at a time, because a change has the turn. It cannot be broken off, and is let finish where nobody waits any more.
        let compiled = tokio::task::spawn_blocking(move || {
            let mut loader = Loader::new(engine, Vec::new());
            let plan = |(host, mut specs, mut entries): (usize, Vec<Spec>, Vec<Entry>)| {
                for (_, at) in places.iter().filter(|(of, _)| *of == host) {
                    entries[*at] = loader.entry(&mut specs[*at], &code)?;
                }
                Ok(Planned { host, specs: specs.into(), entries })
            };
            plans.into_iter().map(plan).collect::<Result<Vec<_>, String>>()
        });
        compiled.await.map_err(|e| format!("compiling was broken off: {e}"))?
    }

    /// Tries out what was planned, and flips to it. Whatever fails, on whichever virtual host, nothing changes on any. Says so in the log and
    /// the status of all `hosts` that were meant.
    pub(super) async fn conclude(
        self: &Arc<Self>,
        by: &'static str,
        hosts: &[usize],
        planned: Result<Vec<Planned>, String>,
    ) -> Result<(), Failure> {
        let mut ready = Vec::new();
        let mut refused = planned.as_ref().err().cloned();
        for Planned { host, specs, entries } in planned.unwrap_or_default() {
            let host = &self.hosts[host];
            let chain = Arc::new(Chain::new(self.engine.clone(), host.path().clone(), entries));
            match self.try_out(host, &chain).await {
                Ok(()) => ready.push((host, chain, specs)),
                Err(error) => {
                    refused = Some(format!("it did not stand the trial on {}: {error}", host.path()));
                    break;
                }
            }
        }
        if let Some(reason) = refused {
            for &host in hosts {
                self.hosts[host].note(self.gateway.metrics(), by, Some(reason.clone()));
            }
            tracing::warn!(by, reason, "policies are not swapped, and those before go on");
            let kept = hosts.iter().map(|&host| self.hosts[host].kept()).collect();
            return Err(Failure { kind: FailureKind::Refused, error: reason, problems: Vec::new(), kept });
        }
        for (host, chain, specs) in ready {
            let (generation, before) = (chain.generation(), host.virtual_host.policies.generation());
            let policies: Vec<String> = chain.entries().iter().map(|e| format!("{} {}", e.policy().name(), e.policy().version())).collect();
            host.flip(chain, specs, self.config.policy.probation);
            host.note(self.gateway.metrics(), by, None);
            tracing::info!(virtual_host = %host.path(), generation, before, by, policies = policies.join(", "), "policies swapped");
        }
        self.gateway.policies_swapped();
        Ok(())
    }

    /// Asks new policies about nothing, and for the names of what sessions have listed.
    async fn try_out(&self, host: &Host, chain: &Chain) -> Result<(), PolicyError> {
        let view = self.gateway.view_of(&host.virtual_host, self.config.auth.principals().next());
        chain.try_out(&view).await?;
        for sample in self.samples(host, &view) {
            self.gateway.try_names(&host.virtual_host, &sample.view, chain, &sample.tables).await?;
        }
        Ok(())
    }

    /// The lists of the newest sessions, or of one that has ended. What policies remember meanwhile is forgotten with the sample.
    fn samples(&self, host: &Host, view: &SessionView) -> Vec<Sample> {
        let mut samples: Vec<Sample> = Vec::new();
        for session in self.gateway.sessions_of(&host.virtual_host) {
            let tables = session.published().tables();
            if tables.iter().any(|table| !table.is_empty()) {
                samples.push(Sample { view: SessionView { scratch: Scratch::new(), warm: Warm::new(), ..session.view() }, tables });
            }
            if samples.len() == SAMPLES {
                return samples;
            }
        }
        if samples.is_empty() {
            samples.extend(host.virtual_host.last_names.get().map(|tables| Sample { view: view.clone(), tables }));
        }
        samples
    }
}

/// What runs, for a loader that need not compile it again.
pub(super) fn compiled(hosts: &[Host]) -> Vec<Compiled> {
    let mut all = Vec::new();
    for host in hosts {
        let (chain, specs) = host.running();
        all.extend(specs.iter().zip(chain.entries()).map(|(spec, entry)| Compiled::new(spec, entry.policy().clone())));
    }
    all
}
