//! What it costs to enter a guest, as ratios to the WASM runtime alone (the same component, warm, with no limits but the epoch) and to native
//! code. Times are the best of many short batches, so that other load counts little. `LOCKGATE_BENCH_CALLS` sets the calls of a batch.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::Instant;

use common::*;
use lockgate_policy::{Chain, Kind, SessionView, Target};
use wasmtime::component::{Component, HasSelf, Linker, Resource, ResourceTable};
use wasmtime::{Config, Store};

const BATCHES: u32 = 200;

fn main() {
    let calls = std::env::var("LOCKGATE_BENCH_CALLS").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure(calls));
}

/// An alias policy that does nothing, and one that asks the host two things.
fn guests() -> [Vec<u8>; 2] {
    let imports = r#"
        (import "lockgate:policy/host@0.1.1" "[method]session.principal" (func $principal (param i32 i32)))
        (import "lockgate:policy/host@0.1.1" "[method]session.virtual-host" (func $host (param i32 i32)))"#;
    // The allocator never frees, and a warm instance lives long: each call begins where the first did.
    let resolve = r#"(global.set $free (i32.const 65536))
        (call $principal (local.get 0) (i32.const 512)) (call $host (local.get 0) (i32.const 520))"#;
    let asking = alias_module(resolve, "").replacen("(module", &format!("(module {imports}"), 1);
    [alias_guest("(global.set $free (i32.const 65536))", ""), component("alias-policy", &asking)]
}

async fn measure(calls: u32) {
    let engine = engine();
    let [empty, asking] = guests();
    let s = session(&["a"]);

    let floor_empty = runtime_alone(&empty, calls).await;
    let floor = runtime_alone(&asking, calls).await;
    let warm_empty = asked(&chain_of(&engine, &empty), &s, calls, false).await;
    let warm = asked(&chain_of(&engine, &asking), &s, calls, false).await;
    let fresh = asked(&chain_of(&engine, &asking), &s, calls / 10 + 1, true).await;
    let native = best(calls, || {
        std::hint::black_box(native(&s, std::hint::black_box("name")));
    });

    println!("entering a guest, ns (x: to the runtime alone, the same component)");
    println!("  native, the same two questions   {native:>9.0}");
    println!("  runtime alone, empty call        {floor_empty:>9.0}");
    println!("  runtime alone, two host calls    {floor:>9.0}");
    println!("  warm, empty call                 {warm_empty:>9.0}   {:.2} x", warm_empty / floor_empty);
    println!("  warm, two host calls             {warm:>9.0}   {:.2} x   {:.1} x native", warm / floor, warm / native);
    println!("  fresh, two host calls            {fresh:>9.0}   {:.2} x", fresh / floor);
}

fn native(s: &SessionView, name: &str) -> Option<Target> {
    let (principal, host) = (s.principal.to_string(), s.virtual_host.to_string());
    (principal == name && host == name).then_some(Target { backend: principal, name: host })
}

fn best(calls: u32, mut call: impl FnMut()) -> f64 {
    let batch = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_nanos() as f64 / f64::from(calls)
    };
    (0..BATCHES).map(|_| batch(&mut call)).fold(f64::MAX, f64::min)
}

/// Through the chain, as the gateway asks.
async fn asked(chain: &Chain, s: &SessionView, calls: u32, fresh: bool) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..calls {
            let new;
            let s = if fresh {
                new = SessionView { warm: lockgate_policy::Warm::new(), ..s.clone() };
                &new
            } else {
                s
            };
            assert_eq!(chain.alias(s, Kind::Tool, "name").await.expect("answered"), None);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    best
}

mod bindings {
    #![allow(missing_docs)]
    wasmtime::component::bindgen!({
        world: "alias-policy",
        path: "../../wit",
        with: { "lockgate:policy/host.session": super::Marker },
        imports: { default: trappable },
        exports: { default: async },
    });
}

use bindings::lockgate::policy::{host, types};

/// What stands for a session in the runtime alone.
pub struct Marker(Arc<str>);

struct State(ResourceTable);

impl types::Host for State {}

impl host::Host for State {}

impl host::HostSession for State {
    fn principal(&mut self, s: Resource<Marker>) -> wasmtime::Result<String> {
        Ok(self.0.get(&s)?.0.to_string())
    }

    fn virtual_host(&mut self, s: Resource<Marker>) -> wasmtime::Result<String> {
        Ok(self.0.get(&s)?.0.to_string())
    }

    fn backends(&mut self, _: Resource<Marker>) -> wasmtime::Result<Vec<host::Backend>> {
        Ok(Vec::new())
    }

    fn setting(&mut self, _: Resource<Marker>) -> wasmtime::Result<String> {
        Ok(String::new())
    }

    fn recall(&mut self, _: Resource<Marker>, _: String) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }

    fn remember(&mut self, _: Resource<Marker>, _: String, _: String) -> wasmtime::Result<Result<(), host::Quota>> {
        Ok(Ok(()))
    }

    fn forget(&mut self, _: Resource<Marker>, _: String) -> wasmtime::Result<()> {
        Ok(())
    }

    fn claims(&mut self, _: Resource<Marker>) -> wasmtime::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn claim(&mut self, _: Resource<Marker>, _: String) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }

    fn log(&mut self, _: Resource<Marker>, _: host::Level, _: String) -> wasmtime::Result<()> {
        Ok(())
    }

    fn drop(&mut self, _: Resource<Marker>) -> wasmtime::Result<()> {
        Ok(())
    }
}

async fn runtime_alone(component: &[u8], calls: u32) -> f64 {
    let mut config = Config::new();
    config.epoch_interruption(true).concurrency_support(false);
    let engine = wasmtime::Engine::new(&config).expect("an engine");
    let component = Component::from_binary(&engine, component).expect("it compiles");
    let mut linker = Linker::new(&engine);
    bindings::AliasPolicy::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut State| state).expect("linked");
    let mut store = Store::new(&engine, State(ResourceTable::new()));
    store.set_epoch_deadline(u64::MAX / 2);
    let session = store.data_mut().0.push(Marker("somebody".into())).expect("room").rep();
    let guest = bindings::AliasPolicy::instantiate_async(&mut store, &component, &linker).await.expect("an instance");
    let alias = guest.lockgate_policy_alias();
    let mut best = f64::MAX;
    for _ in 0..BATCHES {
        let start = Instant::now();
        for _ in 0..calls {
            let answer = alias.call_resolve(&mut store, Resource::new_borrow(session), types::Kind::Tool, "name").await;
            assert!(matches!(answer, Ok(Ok(None))));
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    best
}
