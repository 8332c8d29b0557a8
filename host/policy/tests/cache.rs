//! Compiled code on disk: that a start takes no compile, and that nothing is taken that somebody else could have written.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::*;
use lockgate_policy::{Engine, Kind, LoadError, Policy, Terms};

/// A folder that is removed with the test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        let dir = std::env::temp_dir().join(format!("lockgate-cache-test-{:016x}", getrandom::u64().unwrap()));
        fs::create_dir(&dir).unwrap();
        Dir(dir)
    }

    /// Where the cache goes; the engine makes it.
    fn cache(&self) -> PathBuf {
        self.0.join("below").join("cache")
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(self.cache()).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        files
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// As a start of the gateway: an engine of its own.
fn start(cache: &Path) -> Arc<Engine> {
    engine_with(|c| c.cache = Some(cache.to_owned()))
}

/// Five policies that all differ.
fn five() -> Vec<Vec<u8>> {
    (0..5).map(|i| alias_guest("", &format!("(data (i32.const 0) \"{i}\")"))).collect()
}

async fn load_and_call(engine: &Arc<Engine>, component: &[u8]) {
    let chain = chain_of(engine, component);
    assert_eq!(chain.alias(&session(&["a"]), Kind::Tool, "x").await.unwrap(), None);
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn the_second_start_with_five_policies_takes_no_compile() {
    let dir = Dir::new();
    let first = start(&dir.cache());
    for component in five() {
        load_and_call(&first, &component).await;
    }
    assert_eq!((first.compiles(), dir.files().len()), (5, 5));
    let second = start(&dir.cache());
    for component in five() {
        load_and_call(&second, &component).await;
    }
    assert_eq!((second.compiles(), dir.files().len()), (0, 5));
    // Settings that code depends on.
    let other = engine_with(|c| (c.cache, c.memory_reservation) = (Some(dir.cache()), 64 << 20));
    load_and_call(&other, &five()[0]).await;
    assert_eq!((other.compiles(), dir.files().len()), (1, 6));
    let none = engine();
    load_and_call(&none, &five()[0]).await;
    assert_eq!(none.compiles(), 1);
}

#[tokio::test]
async fn the_folder_and_its_files_are_this_users_alone() {
    let dir = Dir::new();
    load_and_call(&start(&dir.cache()), &five()[0]).await;
    assert_eq!((mode(&dir.cache()), mode(&dir.files()[0])), (0o700, 0o600));
}

#[tokio::test]
async fn a_folder_that_others_may_write_to_or_that_is_a_link_is_not_used() {
    let dir = Dir::new();
    load_and_call(&start(&dir.cache()), &five()[0]).await;
    for open in [0o720, 0o702, 0o777] {
        set_mode(&dir.cache(), open);
        let engine = start(&dir.cache());
        load_and_call(&engine, &five()[0]).await;
        assert_eq!(engine.compiles(), 1, "{open:o}");
    }
    set_mode(&dir.cache(), 0o700);
    let link = dir.0.join("link");
    symlink(dir.cache(), &link).unwrap();
    let engine = start(&link);
    load_and_call(&engine, &five()[0]).await;
    assert_eq!(engine.compiles(), 1);
    let engine = start(&dir.files()[0]);
    load_and_call(&engine, &five()[0]).await;
    assert_eq!(engine.compiles(), 1, "a file is no folder");
    let engine = start(&dir.cache());
    load_and_call(&engine, &five()[0]).await;
    assert_eq!(engine.compiles(), 0);
}

#[tokio::test]
async fn a_file_that_is_changed_cut_off_open_to_others_or_a_link_is_not_taken_and_is_replaced() {
    let dir = Dir::new();
    load_and_call(&start(&dir.cache()), &five()[0]).await;
    let file = dir.files().remove(0);
    let whole = fs::read(&file).unwrap();
    let spoil: [(&str, &dyn Fn()); 6] = [
        ("changed", &|| {
            let mut changed = whole.clone();
            *changed.last_mut().unwrap() ^= 1;
            fs::write(&file, changed).unwrap();
        }),
        ("cut off", &|| fs::write(&file, &whole[..whole.len() / 2]).unwrap()),
        ("empty", &|| fs::write(&file, "").unwrap()),
        ("open to others", &|| set_mode(&file, 0o620)),
        ("a link", &|| {
            let elsewhere = dir.0.join("elsewhere");
            fs::rename(&file, &elsewhere).unwrap();
            symlink(&elsewhere, &file).unwrap();
        }),
        ("another component's", &|| {
            let others = Dir::new();
            let engine = start(&others.cache());
            chain_of(&engine, &five()[1]);
            fs::copy(&others.files()[0], &file).unwrap();
        }),
    ];
    for (what, spoil) in spoil {
        spoil();
        let engine = start(&dir.cache());
        load_and_call(&engine, &five()[0]).await;
        assert_eq!(engine.compiles(), 1, "{what}");
        let engine = start(&dir.cache());
        load_and_call(&engine, &five()[0]).await;
        assert_eq!(engine.compiles(), 0, "{what}: replaced");
        assert_eq!((fs::read(&file).unwrap().len(), mode(&file)), (whole.len(), 0o600), "{what}");
        assert!(!fs::symlink_metadata(&file).unwrap().is_symlink(), "{what}");
    }
    assert_eq!(dir.files().len(), 1, "nothing half written is left");
}

#[tokio::test]
async fn a_cache_that_cannot_be_written_costs_a_compile_and_no_start() {
    let dir = Dir::new();
    // Stands in the way of every file: root may write to a folder whatever its mode.
    let engine = start(&dir.cache());
    fs::remove_dir_all(dir.cache()).unwrap();
    for component in five() {
        load_and_call(&engine, &component).await;
    }
    assert_eq!(engine.compiles(), 5);
    let file = dir.0.join("file");
    fs::write(&file, "").unwrap();
    let engine = start(&file.join("cache"));
    load_and_call(&engine, &five()[0]).await;
    assert_eq!(engine.compiles(), 1);
}

#[tokio::test]
async fn what_was_not_used_for_longest_goes_when_there_is_too_much() {
    let dir = Dir::new();
    let five = five();
    load_and_call(&start(&dir.cache()), &five[0]).await;
    let size = fs::metadata(&dir.files()[0]).unwrap().len();
    let small = || {
        engine_with(|c| {
            c.cache = Some(dir.cache());
            c.cache_bytes = size * 5 / 2;
        })
    };
    load_and_call(&small(), &five[1]).await;
    // The first is used again, so the second goes when a third comes.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    load_and_call(&small(), &five[0]).await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    load_and_call(&small(), &five[2]).await;
    assert_eq!(dir.files().len(), 2);
    let engine = small();
    load_and_call(&engine, &five[0]).await;
    load_and_call(&engine, &five[2]).await;
    assert_eq!(engine.compiles(), 0);
    load_and_call(&engine, &five[1]).await;
    assert_eq!(engine.compiles(), 1);
}

#[test]
fn what_does_not_compile_is_not_kept() {
    let dir = Dir::new();
    let engine = start(&dir.cache());
    let refused = Policy::load(&engine, "p", b"\0asm\x0d\0\x01\0\xff".as_slice(), &Terms::default()).unwrap_err();
    assert!(matches!(refused, LoadError::Compile { .. }), "{refused}");
    assert!(dir.files().is_empty());
}
