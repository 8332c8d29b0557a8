//! Compiled code on disk, so that a start takes no compile. A folder of this user's own, with one file for each component and engine. What another
//! user could have written is not used; what cannot be used or written costs a warning and a compile, never a start. Called by `compile`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::code::Sealed;

/// See the module.
pub(crate) struct Cache {
    dir: PathBuf,
    most_bytes: u64,
    warned: AtomicBool,
}

/// Bytes of one file that are read: the code of a 64 MiB component, about.
const MOST_FILE: u64 = 512 << 20;

/// What files of compiled code end in.
const CODE: &str = "code";

/// What files end in that are being written. Those of a process that died are removed when they are this old.
const PARTIAL: &str = "partial";
const PARTIAL_AGE: Duration = Duration::from_secs(3_600);

// === impl Cache ===

impl Cache {
    /// A cache in this folder, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// It cannot be made, or is not safe, in words.
    pub(crate) fn open(dir: PathBuf, most_bytes: u64) -> Result<Cache, String> {
        match private_dir(&dir) {
            Ok(()) => Ok(Cache { dir, most_bytes, warned: AtomicBool::new(false) }),
            Err(reason) => Err(format!("{}: {reason}", dir.display())),
        }
    }

    /// The code that is kept under a key, as far as it can be told to be what was put there.
    pub(crate) fn get(&self, key: &str) -> Option<Sealed> {
        let path = self.path(key);
        let read = private_file(&path).and_then(|(file, bytes)| {
            // What is used stays. That it was used is a hint, no more.
            let _ = file.set_modified(SystemTime::now());
            Sealed::check(bytes, key).map_err(io::Error::other)
        });
        match read {
            Ok(sealed) => Some(sealed),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(reason) => {
                self.warn(&path, &reason, "compiled code is not taken from the cache");
                None
            }
        }
    }

    /// Keeps code under its key, and removes what was not used for longest if there is too much.
    pub(crate) fn put(&self, key: &str, sealed: &Sealed) {
        let path = self.path(key);
        if let Err(reason) = self.write(&path, sealed.bytes()) {
            self.warn(&path, &reason, "compiled code cannot be kept in the cache: it is compiled again at the next start");
        }
        self.tidy(&path);
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let partial = self.dir.join(format!("{:016x}.{PARTIAL}", getrandom::u64().map_err(io::Error::other)?));
        // `create_new` follows no link, and fails on whatever is there.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        let done = file.write_all(bytes).and_then(|()| fs::rename(&partial, path));
        if done.is_err() {
            let _ = fs::remove_file(&partial);
        }
        done
    }

    fn tidy(&self, newest: &Path) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        let mut kept: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(meta) = entry.metadata() else { continue };
            let Ok(used) = meta.modified() else { continue };
            match path.extension().and_then(|e| e.to_str()) {
                Some(CODE) if path != newest => kept.push((used, meta.len(), path)),
                Some(PARTIAL) if used.elapsed().is_ok_and(|age| age > PARTIAL_AGE) => _ = fs::remove_file(&path),
                _ => {}
            }
        }
        kept.sort();
        let mut bytes = kept.iter().map(|(_, bytes, _)| bytes).sum::<u64>() + fs::metadata(newest).map_or(0, |m| m.len());
        for (_, size, path) in kept {
            if bytes <= self.most_bytes {
                break;
            }
            if fs::remove_file(&path).is_ok() {
                bytes = bytes.saturating_sub(size);
            }
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.dir.join(key).with_extension(CODE)
    }

    /// Once: a full disk is told by one line, not by one for each policy.
    fn warn(&self, path: &Path, reason: &io::Error, what: &str) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(file = %path.display(), %reason, "{what}");
        }
    }
}

/// Makes a folder that only this user can enter, or finds that there is one that only this user can write to.
fn private_dir(dir: &Path) -> io::Result<()> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let found = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY).open(dir)?.metadata()?;
    if found.uid() != this_user() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if found.mode() & 0o022 != 0 {
        return Err(io::Error::other("other users may write to it: take that away with `chmod go-w`"));
    }
    Ok(())
}

/// The contents of a plain file that only this user could have written. What is checked is the open file, not its name.
fn private_file(path: &Path) -> io::Result<(File, Vec<u8>)> {
    // Not to wait if it is a pipe.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != this_user() || found.mode() & 0o077 != 0 {
        return Err(io::Error::other("it is not a plain file that only this user can read and write"));
    }
    if found.len() > MOST_FILE {
        return Err(io::Error::other("it is larger than compiled code can be"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or(0));
    (&file).take(MOST_FILE).read_to_end(&mut bytes)?;
    Ok((file, bytes))
}

fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}
