//! The WASM engine: where guests live and how they are interrupted. Owns the two [`Realm`]s (a pool for nearly all policies, memory on
//! demand for those that do not fit its slots) and the thread that moves their epochs while guests run. The limits of a policy are its own
//! (`terms`); compiling is in `compile`. Made once per process by whoever starts the gateway.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::berths::Berths;
use crate::cache::Cache;
use crate::error::LoadError;
use crate::realm::{Bounds, Realm};
use crate::stats::Observer;

/// What all policies share. What each may use is in its [`Limits`](crate::Limits).
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Linear memory that a slot of the pool has, in bytes (rounded down to 64 KiB pages). 16 MiB. Policies whose limit is higher, or that
    /// are built of more parts than a slot holds, live outside of the pool.
    pub memory_bytes: usize,
    /// Elements of one table of an instance in the pool. 2,000: a table holds the functions that are called by pointer.
    pub table_elements: usize,
    /// How often a running guest is interrupted to count its time and to let other tasks run: no guest holds a worker thread for longer. 5 ms.
    pub tick: Duration,
    /// Instances in the pool that may live at the same time; calls beyond take the place of one that is idle, or wait for their deadline
    /// and then fail as overload. 1,024. Each slot of the pool costs two memory mappings, each live instance four more, of the 65,530 that
    /// `vm.max_map_count` gives a process by default: 4,096 is a sound most.
    pub pool_instances: u32,
    /// Instances outside of the pool that may live at the same time. 16: script languages, tens of MiB each.
    pub large_instances: u32,
    /// Instances of the pool that sessions may keep between two calls. 768. At the bound the one that was idle for longest goes. Of those outside
    /// of the pool three in four may be kept.
    pub warm_instances: u32,
    /// Linear memory of all instances that are kept, in bytes, untouched pages too. 1 GiB in the pool, and as much outside; at the bound the
    /// one that was idle for longest goes.
    pub warm_bytes: usize,
    /// How long an idle instance is kept. One minute. Longer ones go when [`Engine::sweep`] is called.
    pub warm_idle: Duration,
    /// Address space that is reserved for one instance's memory, in bytes. 4 GiB, which lets the compiler leave out bounds checks. Where
    /// so much cannot be reserved (`ulimit -v`), the engine falls back to memory on demand, with checks.
    pub memory_reservation: u64,
    /// Log lines that one hook call may write. 32; the rest of that call's lines is dropped and counted.
    pub log_lines_per_call: u32,
    /// Bytes of one log line; longer ones are cut. 1 KiB.
    pub log_line_bytes: usize,
    /// A folder of this user's own for compiled code, made if it is not there. `None`, the default: policies are compiled at every start.
    pub cache: Option<PathBuf>,
    /// Bytes of compiled code in the cache. 256 MiB; what was not used for longest goes.
    pub cache_bytes: u64,
    /// The program that compiles large components: the gateway's own, which then calls [`compile_component`](crate::compile_component) for
    /// `policy compile-component IN OUT`. `None`, the default: they are compiled in this process, like small ones.
    pub compiler: Option<PathBuf>,
    /// Components of more bytes than this are compiled by `compiler`. 1 MiB: that takes a second of CPU and tens of MiB.
    pub compile_apart_bytes: usize,
    /// How long `compiler` may take. 120 s.
    pub compile_time: Duration,
}

/// The engine that policies are loaded into. Dropping the last reference ends its thread.
pub struct Engine {
    pub(crate) config: EngineConfig,
    pub(crate) pool: Arc<Realm>,
    /// Made when the first policy needs it.
    large: OnceLock<Arc<Realm>>,
    pub(crate) cache: Option<Cache>,
    cache_refused: Option<String>,
    pub(crate) compiles: AtomicU64,
    observer: Option<Arc<dyn Observer>>,
    ticker: Ticker,
    pooled: bool,
}

/// Moves the epoch every `tick` as long as guests run; sleeps when none has for a while.
struct Ticker {
    state: Arc<TickerState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct TickerState {
    running: AtomicUsize,
    stop: AtomicBool,
    large: OnceLock<wasmtime::Engine>,
}

/// Held while a guest may run.
pub(crate) struct Running<'a>(&'a Ticker);

/// Ticks without a guest before the thread sleeps. Waking it costs more than a call does.
const LINGER: u32 = 20;

// === impl EngineConfig ===

impl EngineConfig {
    /// Wall clock deadline over guest time deadline: what a call may take when the machine is busy with other things.
    pub const WALL_FACTOR: u32 = 4;
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            memory_bytes: 16 << 20,
            table_elements: 2_000,
            tick: Duration::from_millis(5),
            pool_instances: 1_024,
            large_instances: 16,
            warm_instances: 768,
            warm_bytes: 1 << 30,
            warm_idle: Duration::from_secs(60),
            memory_reservation: 4 << 30,
            log_lines_per_call: 32,
            log_line_bytes: 1 << 10,
            cache: None,
            cache_bytes: 256 << 20,
            compiler: None,
            compile_apart_bytes: 1 << 20,
            compile_time: Duration::from_secs(120),
        }
    }
}

// === impl Engine ===

impl Engine {
    /// Sets the engine up: a pool of instances where the system gives the address space for it, memory on demand otherwise.
    ///
    /// # Errors
    ///
    /// [`LoadError::Engine`] if neither can be made, or the thread cannot be started.
    pub fn new(config: EngineConfig) -> Result<Arc<Engine>, LoadError> {
        Engine::make(config, None)
    }

    /// The same, with somebody who hears of every call into a guest.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Engine::new).
    pub fn observed(config: EngineConfig, observer: Arc<dyn Observer>) -> Result<Arc<Engine>, LoadError> {
        Engine::make(config, Some(observer))
    }

    fn make(mut config: EngineConfig, observer: Option<Arc<dyn Observer>>) -> Result<Arc<Engine>, LoadError> {
        // Without an instance nothing is ever answered, and without a pause the thread would spin.
        config.pool_instances = config.pool_instances.max(1);
        config.large_instances = config.large_instances.max(1);
        config.tick = config.tick.max(Duration::from_millis(1));
        let (engine, pooled) = match wasmtime::Engine::new(&pool_settings(&config)) {
            Ok(engine) => (engine, true),
            Err(reason) => {
                tracing::warn!(%reason, "no pool of WASM instances can be made (is the address space limited, `ulimit -v`?): falling back to memory on demand, which is slower");
                (engine_without_pool(&config, false)?, false)
            }
        };
        let ticker = Ticker::start(engine.clone(), config.tick).map_err(|e| LoadError::Engine(format!("no thread for the epoch: {e}")))?;
        let bounds = Bounds { core_instances: 16, memories: 1, tables: 8, table_elements: config.table_elements };
        let berths = Berths::new(config.warm_instances.min(config.pool_instances) as usize, config.warm_bytes);
        let pool = Realm::new(engine, bounds, config.pool_instances as usize, berths);
        let opened = config.cache.clone().map(|dir| Cache::open(dir, config.cache_bytes)).transpose();
        let cache_refused = opened.as_ref().err().cloned();
        let cache = opened.ok().flatten();
        Ok(Arc::new(Engine {
            config,
            pool,
            large: OnceLock::new(),
            cache,
            cache_refused,
            compiles: AtomicU64::new(0),
            observer,
            ticker,
            pooled,
        }))
    }

    /// The configuration that it was made with.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Whether instances come from a pool (the fast way).
    pub fn is_pooled(&self) -> bool {
        self.pooled
    }

    /// Why there is no cache of compiled code although there should be one.
    pub fn cache_refused(&self) -> Option<&str> {
        self.cache_refused.as_deref()
    }

    /// How often a component was compiled, rather than found in the cache.
    pub fn compiles(&self) -> u64 {
        self.compiles.load(Ordering::Relaxed)
    }

    /// Instances that live now, in and outside of the pool, those that sessions keep too.
    pub fn instances(&self) -> usize {
        self.realms().map(|realm| realm.living()).sum()
    }

    /// Instances that sessions keep, idle or at work.
    pub fn warm_instances(&self) -> usize {
        self.realms().map(|realm| realm.berths.taken()).sum()
    }

    /// Idle instances that had to go so far: to make room, or because they were idle for too long.
    pub fn evicted_instances(&self) -> u64 {
        self.realms().map(|realm| realm.berths.evicted()).sum()
    }

    /// Drops the instances that have been idle for [`EngineConfig::warm_idle`], and returns how many. To be called every few seconds.
    pub fn sweep(&self) -> usize {
        self.realms().map(|realm| realm.berths.evict_idle(self.config.warm_idle)).sum()
    }

    /// Drops the idle instances of one chain.
    pub(crate) fn evict_generation(&self, generation: u64) {
        self.realms().for_each(|realm| realm.berths.evict_generation(generation));
    }

    /// Where policies live that do not fit the pool.
    pub(crate) fn large(&self) -> Result<&Arc<Realm>, LoadError> {
        if let Some(large) = self.large.get() {
            return Ok(large);
        }
        let engine = engine_without_pool(&self.config, self.pooled)?;
        // Far more than any toolchain makes: Python's has dozens of modules, and tables of 20,000 elements.
        let bounds = Bounds { core_instances: 1_000, memories: 16, tables: 64, table_elements: 1 << 20 };
        let instances = self.config.large_instances as usize;
        let made = Realm::new(engine, bounds, instances, Berths::new((instances * 3).div_ceil(4), self.config.warm_bytes));
        // Of two that are made at once one is kept, and only that one's epoch moves.
        let large = self.large.get_or_init(|| made);
        let _ = self.ticker.state.large.set(large.engine.clone());
        Ok(large)
    }

    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        self.observer.as_deref()
    }

    /// Lets the epoch move until the guard is dropped.
    pub(crate) fn running(&self) -> Running<'_> {
        self.ticker.enter()
    }

    fn realms(&self) -> impl Iterator<Item = &Arc<Realm>> {
        std::iter::once(&self.pool).chain(self.large.get())
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("config", &self.config).field("pooled", &self.pooled).finish_non_exhaustive()
    }
}

/// What decides how code is compiled. `reservation`: address space of one memory, in bytes.
pub(crate) fn code_settings(reservation: u64) -> Config {
    let mut c = Config::new();
    c.epoch_interruption(true);
    // Off, it saves 0.4 to 1 µs a call: hooks are synchronous, and an instance serves one at a time.
    c.concurrency_support(false);
    c.memory_reservation(reservation);
    c
}

/// With the reservation that is configured, code that was compiled for the pool runs here too.
fn engine_without_pool(config: &EngineConfig, reserve: bool) -> Result<wasmtime::Engine, LoadError> {
    let reservation = if reserve { config.memory_reservation } else { config.memory_bytes as u64 };
    wasmtime::Engine::new(&code_settings(reservation)).map_err(|e| LoadError::Engine(format!("{e:#}")))
}

fn pool_settings(config: &EngineConfig) -> Config {
    let mut c = code_settings(config.memory_reservation);
    // A few more than there are permits, for the instances on trial when policies are loaded.
    let n = config.pool_instances.saturating_add(8);
    let mut pool = PoolingAllocationConfig::default();
    // A component of the usual encoder is one module with a memory and a table, and two or three shims with a table.
    let (modules, tables) = (8, 4);
    pool.total_component_instances(n)
        .total_core_instances(n.saturating_mul(modules))
        .max_core_instances_per_component(modules)
        .total_memories(n)
        .max_memories_per_component(1)
        .max_memory_size(config.memory_bytes)
        .total_tables(n.saturating_mul(tables))
        .max_tables_per_component(tables)
        .table_elements(config.table_elements)
        .total_stacks(n);
    // What stays resident in a free slot. With the page map only touched pages are looked at, and a guest's stack and data
    // (the first 2 MiB) are zeroed in place instead of given back; without it that is a memset of the whole range, dearer than faults beyond 64 KiB.
    let resident = if PoolingAllocationConfig::is_pagemap_scan_available() { 2 << 20 } else { 64 << 10 };
    pool.linear_memory_keep_resident(resident).pagemap_scan(Enabled::Auto);
    // So a burst of greedy guests can leave 64 MiB behind, not one slot's worth for each instance that ever lived.
    pool.max_unused_warm_slots(n.min(32));
    c.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    c
}

// === impl Ticker ===

impl Ticker {
    fn start(engine: wasmtime::Engine, tick: Duration) -> std::io::Result<Ticker> {
        let state = Arc::new(TickerState::default());
        let shared = state.clone();
        let thread = std::thread::Builder::new().name("policy-epoch".into()).spawn(move || {
            let mut idle = 0;
            while !shared.stop.load(Ordering::Acquire) {
                idle = if shared.running.load(Ordering::Acquire) == 0 { idle + 1 } else { 0 };
                if idle > LINGER {
                    // An `unpark` between the load and this makes it return at once.
                    std::thread::park();
                    continue;
                }
                std::thread::sleep(tick);
                engine.increment_epoch();
                if let Some(large) = shared.large.get() {
                    large.increment_epoch();
                }
            }
        })?;
        Ok(Ticker { state, thread: Some(thread) })
    }

    fn enter(&self) -> Running<'_> {
        if self.state.running.fetch_add(1, Ordering::AcqRel) == 0 {
            self.wake();
        }
        Running(self)
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // At most one tick away from seeing `stop`; it cannot panic, and if it did there is nothing to save.
            let _ = thread.join();
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.running.fetch_sub(1, Ordering::AcqRel);
    }
}
