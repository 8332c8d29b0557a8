//! Reads files that others name: plain files, bounded, and never one that a reader would wait for (a pipe, a device). Called by `config`,
//! `policies` and `cli`.

use std::fs::{File, OpenOptions};
use std::io::{Error, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a plain file.
///
/// # Errors
/// Also if it is something else: a folder, a pipe, a device.
pub fn open(path: &Path) -> Result<File> {
    // Opening a pipe waits for somebody to write to it, unless it is asked not to.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Error::other("it is not a plain file")) }
}

/// The first `most` bytes of a plain file.
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path, most: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_a_plain_file_is_read_and_nothing_is_waited_for() {
        let dir = std::env::temp_dir().join(format!("lockgate-plain-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (pipe, file) = (dir.join("pipe"), dir.join("file"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::fs::write(&file, "0123").unwrap();
        assert_eq!(read(&file, 3).unwrap(), b"012");
        for other in [&pipe, &dir, Path::new("/dev/zero")] {
            assert!(read(other, 3).unwrap_err().to_string().contains("not a plain file"), "{}", other.display());
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
