//! WASI, as far as policies get it: a clock and random numbers where the operator grants them, and for everything else stubs that trap.
//! The standard library of a wasip2 guest imports WASI whether it needs it or not: with stubs it starts, and has nothing. Called by `load`.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker, ResourceType, Val};

use crate::call::HostState;
use crate::terms::Capabilities;

/// How imports begin that are answered here.
pub(crate) const PREFIX: &str = "wasi:";

/// Random bytes that one call gives.
const MOST_RANDOM: u64 = 64 << 10;

/// What stands behind one function of WASI.
#[derive(Clone, Copy)]
enum Offer {
    WallNow,
    MonotonicNow,
    /// Of either clock: a nanosecond, as a duration in a record or as a number.
    WallResolution,
    MonotonicResolution,
    RandomBytes,
    RandomNumber,
    RandomPair,
}

/// Puts what the component imports of WASI into the linker.
pub(crate) fn link(linker: &mut Linker<HostState>, component: &Component, capabilities: &Capabilities) -> wasmtime::Result<()> {
    for (import, item) in component.component_type().imports(component.engine()) {
        let ComponentItem::ComponentInstance(instance) = item.ty else {
            continue;
        };
        if !import.starts_with(PREFIX) {
            continue;
        }
        let mut interface = linker.instance(import)?;
        for (name, item) in instance.exports(component.engine()) {
            match item.ty {
                ComponentItem::ComponentFunc(_) => match offer(import, name, capabilities) {
                    Some(offer) => interface.func_new(name, move |_, _, parameters, results| offer.answer(parameters, results))?,
                    None => {
                        let what = format!("it called {name} of {import}, which this policy does not get");
                        interface.func_new(name, move |_, _, _, _| Err(wasmtime::Error::msg(what.clone())))?;
                    }
                },
                ComponentItem::Resource(_) => interface.resource(name, ResourceType::host::<()>(), |_, _| Ok(()))?,
                _ => {}
            }
        }
    }
    Ok(())
}

fn offer(import: &str, function: &str, capabilities: &Capabilities) -> Option<Offer> {
    let (interface, version) = import.split_once('@')?;
    let granted = if interface.starts_with("wasi:clocks/") { capabilities.clock } else { capabilities.random };
    if !granted || !version.starts_with("0.2.") {
        return None;
    }
    Some(match (interface, function) {
        ("wasi:clocks/wall-clock", "now") => Offer::WallNow,
        ("wasi:clocks/wall-clock", "resolution") => Offer::WallResolution,
        ("wasi:clocks/monotonic-clock", "now") => Offer::MonotonicNow,
        ("wasi:clocks/monotonic-clock", "resolution") => Offer::MonotonicResolution,
        ("wasi:random/random", "get-random-bytes") | ("wasi:random/insecure", "get-insecure-random-bytes") => Offer::RandomBytes,
        ("wasi:random/random", "get-random-u64") | ("wasi:random/insecure", "get-insecure-random-u64") => Offer::RandomNumber,
        ("wasi:random/insecure-seed", "insecure-seed") => Offer::RandomPair,
        _ => return None,
    })
}

// === impl Offer ===

impl Offer {
    fn answer(self, parameters: &[Val], results: &mut [Val]) -> wasmtime::Result<()> {
        let Some(result) = results.first_mut() else {
            return Err(wasmtime::Error::msg("a function of WASI without a result"));
        };
        *result = match self {
            Offer::WallNow => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                datetime(now.as_secs(), now.subsec_nanos())
            }
            Offer::WallResolution => datetime(0, 1),
            Offer::MonotonicNow => Val::U64(monotonic()),
            Offer::MonotonicResolution => Val::U64(1),
            Offer::RandomBytes => match parameters {
                [Val::U64(wanted)] if *wanted <= MOST_RANDOM => {
                    let mut bytes = vec![0; *wanted as usize];
                    getrandom::fill(&mut bytes)?;
                    Val::List(bytes.into_iter().map(Val::U8).collect())
                }
                _ => return Err(wasmtime::Error::msg(format!("it wants more than {MOST_RANDOM} random bytes at once"))),
            },
            Offer::RandomNumber => Val::U64(getrandom::u64()?),
            Offer::RandomPair => Val::Tuple(vec![Val::U64(getrandom::u64()?), Val::U64(getrandom::u64()?)]),
        };
        Ok(())
    }
}

fn datetime(seconds: u64, nanoseconds: u32) -> Val {
    Val::Record(vec![("seconds".into(), Val::U64(seconds)), ("nanoseconds".into(), Val::U32(nanoseconds))])
}

/// Nanoseconds since this was first asked.
fn monotonic() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}
