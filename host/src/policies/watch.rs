//! The files of components, looked at now and then. One that has changed is taken when it rests: half a file is never compiled.

use super::control::{Control, Failure, FailureKind};
use super::load::{Bytecode, Source, manifest_beside};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// A component and the manifest beside it.
type Stamps = (Option<Stamp>, Option<Stamp>);

/// What was seen of a component's file.
#[derive(Default)]
struct Seen {
    last: Option<Stamps>,
    /// What was dealt with, for better or worse: it is not looked at again until it changes.
    done: Option<Stamps>,
}

impl Control {
    /// Looks at the files as often as the configuration says, in a task of the room.
    pub(super) fn start_watching(self: &Arc<Self>) {
        let Some(pause) = self.config.policy.watch else { return };
        let (control, stopped) = (Arc::downgrade(self), self.stopped.clone());
        self.tasks.spawn(async move {
            let watch = async {
                let mut files = HashMap::new();
                loop {
                    tokio::time::sleep(pause).await;
                    let Some(control) = control.upgrade() else { return };
                    control.look(&mut files).await;
                }
            };
            tokio::select! {
                biased;
                () = stopped.cancelled() => {}
                () = watch => {}
            }
        });
    }

    async fn look(self: &Arc<Self>, files: &mut HashMap<PathBuf, Seen>) {
        let limits = self.files();
        files.retain(|path, _| limits.contains_key(path));
        let paths: Vec<PathBuf> = limits.keys().cloned().collect();
        let looked = tokio::task::spawn_blocking(move || paths.into_iter().map(|path| (stamps(&path), path)).collect::<Vec<_>>());
        let Ok(looked) = looked.await else { return };
        for (now, path) in looked {
            let seen = files.entry(path.clone()).or_default();
            let rests = seen.last == Some(now);
            seen.last = Some(now);
            // A file that is gone may be on its way back: whoever writes it anew removes it first.
            if !rests || seen.done == Some(now) || now.0.is_none() {
                continue;
            }
            seen.done = Some(now);
            let limit = limits.get(&path).copied().unwrap_or_default();
            if !self.take(path.clone(), now, limit).await {
                seen.done = None;
            }
        }
    }

    /// Takes what a file holds. False: it has to be tried again though the file is the same.
    async fn take(self: &Arc<Self>, path: PathBuf, seen: Stamps, limit: usize) -> bool {
        let read = {
            let path = path.clone();
            tokio::task::spawn_blocking(move || {
                let code = Bytecode::read(&path, limit);
                (code, stamps(&path) == seen)
            })
        };
        match read.await {
            // It was written to while it was read; the next look finds that it has changed.
            Err(_) | Ok((_, false)) => false,
            Ok((Ok(code), true)) => !matches!(self.take_file(&path, code).await, Err(Failure { kind: FailureKind::Busy, .. })),
            Ok((Err(reason), true)) => {
                let source = Source::File(path);
                let hosts: Vec<usize> =
                    (0..self.hosts.len()).filter(|&h| self.hosts[h].running().1.iter().any(|s| s.source == source)).collect();
                let _ = self.conclude("file", &hosts, Err(reason)).await;
                true
            }
        }
    }

    /// The files of policies that run, and how large each may be.
    fn files(&self) -> HashMap<PathBuf, usize> {
        let mut files: HashMap<PathBuf, usize> = HashMap::new();
        for host in &self.hosts {
            for spec in host.running().1.iter() {
                if let Source::File(path) = &spec.source {
                    let limit = files.entry(path.clone()).or_default();
                    *limit = spec.terms.limits.component_bytes.max(*limit);
                }
            }
        }
        files
    }
}

fn stamps(component: &Path) -> Stamps {
    (stamp(component), stamp(&manifest_beside(component)))
}

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = std::fs::metadata(path).ok()?;
    Some(Stamp { inode: meta.ino(), bytes: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()) })
}
