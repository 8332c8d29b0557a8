//! From a component's bytes to code that a realm can run: found in the cache, compiled in this process, or for large ones in another
//! (`apart`). Decides whether a policy lives in the pool or outside of it. Takes CPU time: tens of milliseconds for a policy in Rust, seconds for a
//! script language. Called by `load`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wasmtime::CodeBuilder;
use wasmtime::component::Component;

use crate::apart;
use crate::code::{self, Sealed};
use crate::engine::Engine;
use crate::error::LoadError;
use crate::realm::Realm;
use crate::terms::Limits;

/// Where the code came from.
struct Code {
    sealed: Sealed,
    cached: bool,
}

/// Code of a component, in the realm that can hold its instances. `digest`: the component's SHA-256, hexadecimal.
pub(crate) fn compile(
    engine: &Engine,
    policy: &str,
    component: &[u8],
    digest: &str,
    limits: &Limits,
) -> Result<(Arc<Realm>, Component), LoadError> {
    let failed = |reason: wasmtime::Error| LoadError::Compile { policy: policy.to_owned(), reason: format!("{reason:#}") };
    let realm = if limits.memory_bytes > engine.config.memory_bytes { engine.large()? } else { &engine.pool };
    let code = get(engine, realm, policy, component, digest, true)?;
    let cached = code.cached;
    match place(engine, realm, code, policy, component, digest)? {
        Ok(placed) => Ok(placed),
        // What was kept does not load: it is not what it was taken for.
        Err(_) if cached => {
            let code = get(engine, realm, policy, component, digest, false)?;
            place(engine, realm, code, policy, component, digest)?.map_err(failed)
        }
        Err(reason) => Err(failed(reason)),
    }
}

/// Loads code into the realm, or outside of the pool if it needs more than a slot of the pool has.
fn place(
    engine: &Engine,
    realm: &Arc<Realm>,
    code: Code,
    policy: &str,
    component: &[u8],
    digest: &str,
) -> Result<wasmtime::Result<(Arc<Realm>, Component)>, LoadError> {
    let reason = match load(realm, &code.sealed) {
        Ok(loaded) => return Ok(Ok((realm.clone(), loaded))),
        Err(reason) => reason,
    };
    let large = engine.large()?;
    if Arc::ptr_eq(large, realm) {
        return Ok(Err(reason));
    }
    let code = if large.compatibility == realm.compatibility { code } else { get(engine, large, policy, component, digest, true)? };
    Ok(match load(large, &code.sealed) {
        Ok(loaded) => {
            tracing::debug!(policy, reason = format!("{reason:#}"), "the policy does not fit the pool and lives outside of it");
            Ok((large.clone(), loaded))
        }
        Err(_) => Err(reason),
    })
}

fn load(realm: &Realm, sealed: &Sealed) -> wasmtime::Result<Component> {
    // SAFETY: the bytes must be what this version of the engine made of a component, unchanged. They come from its compiler in this process;
    // or from the same program in a process of its own, through a folder that only this user can enter; or from a file of the
    // cache that this user owns and no other may write to, as was checked on the open file. In the last two cases the envelope's
    // checksum rules out damage, and its key another component, version, setting or processor. Neither rules out that
    // this same user, or root, means harm: they could change the program itself just as well.
    unsafe { Component::deserialize(&realm.engine, sealed.code()) }
}

/// The code for a realm, from the cache if that is allowed and has it.
fn get(engine: &Engine, realm: &Realm, policy: &str, component: &[u8], digest: &str, cached: bool) -> Result<Code, LoadError> {
    let key = code::key(digest, &realm.compatibility);
    if cached && let Some(sealed) = engine.cache.as_ref().and_then(|cache| cache.get(&key)) {
        return Ok(Code { sealed, cached: true });
    }
    engine.compiles.fetch_add(1, Ordering::Relaxed);
    let sealed = match &engine.config.compiler {
        Some(compiler) if component.len() > engine.config.compile_apart_bytes => {
            let reservation = realm.engine.get_memory_reservation();
            match apart::compile(compiler, component, &key, reservation, engine.config.compile_time) {
                Ok(sealed) => sealed,
                Err(apart::Failed::Component(reason)) => {
                    return Err(LoadError::Compile { policy: policy.to_owned(), reason });
                }
                Err(reason) => {
                    tracing::warn!(policy, %reason, "a large policy cannot be compiled in a process of its own: compiling it in this one");
                    in_process(realm, policy, component, &key)?
                }
            }
        }
        _ => in_process(realm, policy, component, &key)?,
    };
    if let Some(cache) = &engine.cache {
        cache.put(&key, &sealed);
    }
    Ok(Code { sealed, cached: false })
}

fn in_process(realm: &Realm, policy: &str, component: &[u8], key: &str) -> Result<Sealed, LoadError> {
    let code =
        translate(&realm.engine, component).map_err(|e| LoadError::Compile { policy: policy.to_owned(), reason: format!("{e:#}") })?;
    Ok(Sealed::new(key, &code))
}

/// `wasm_binary`: text is not accepted, whatever features the engine was built with.
pub(crate) fn translate(engine: &wasmtime::Engine, component: &[u8]) -> wasmtime::Result<Vec<u8>> {
    CodeBuilder::new(engine).wasm_binary(component, None)?.compile_component_serialized()
}
