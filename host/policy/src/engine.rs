//! The WASM engine: how guests are compiled and where they live, and the limits that every call has. Owns the thread that moves
//! the epoch while guests run. Knows no policy, no session. Made once per process by whoever starts the gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Semaphore;
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::error::LoadError;

/// The limits of the policy plane. The defaults are generous for policies that decide names and far below what would hurt the gateway.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Linear memory of one instance, in bytes (rounded down to 64 KiB pages). 16 MiB. A guest that asks for more does not get it; most then trap.
    pub memory_bytes: usize,
    /// Elements of one table of an instance. 2,000: a table holds the functions that are called by pointer.
    pub table_elements: usize,
    /// How long a hook about one name may run. 50 ms. Counted in ticks in which the guest ran, so that a busy machine does
    /// not kill good policies; the wall clock bound is [`WALL_FACTOR`](EngineConfig::WALL_FACTOR) times as much.
    pub resolve_deadline: Duration,
    /// The same for hooks about lists. 250 ms.
    pub list_deadline: Duration,
    /// How often a running guest is interrupted to count its time and to let other tasks run: no guest holds a worker thread for longer. 5 ms.
    pub tick: Duration,
    /// Bytes that one answer, or the arguments of one host call, may hand to the host, as the host counts them. 1 MiB; hooks about
    /// lists get as much again as the list is large.
    pub hostcall_fuel: usize,
    /// Instances that may live at the same time; calls beyond wait for their deadline, then fail as overload. 256. An instance lives for one
    /// call. Each slot of the pool costs two memory mappings, each live instance four more, of the 65,530 that
    /// `vm.max_map_count` gives a process by default: 4,096 is a sound most.
    pub pool_instances: u32,
    /// Address space that is reserved for one instance's memory, in bytes. 4 GiB, which lets the compiler leave out bounds checks. Where
    /// so much cannot be reserved (`ulimit -v`), the engine falls back to memory on demand, with checks.
    pub memory_reservation: u64,
    /// Size of a component that is accepted, in bytes. 4 MiB: compiling takes about a second of CPU and 30 MiB for each megabyte.
    pub component_bytes: usize,
    /// Log lines that one hook call may write. 32; the rest of that call's lines is dropped and counted.
    pub log_lines_per_call: u32,
    /// Log lines that one policy may write per second over all sessions. 100; the rest is dropped and counted.
    pub log_lines_per_second: u32,
    /// Bytes of one log line; longer ones are cut. 1 KiB.
    pub log_line_bytes: usize,
}

/// The engine that policies are loaded into. Dropping the last reference ends its thread.
pub struct Engine {
    pub(crate) inner: wasmtime::Engine,
    pub(crate) config: EngineConfig,
    /// One permit per instance, so that a full pool makes calls wait instead of fail, also where there is no pool.
    pub(crate) slots: Semaphore,
    ticker: Ticker,
    pooled: bool,
}

/// Moves the epoch every `tick` as long as guests run; sleeps when none does.
struct Ticker {
    state: Arc<TickerState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct TickerState {
    running: AtomicUsize,
    stop: AtomicBool,
}

/// Held while a guest may run.
pub(crate) struct Running<'a>(&'a Ticker);

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
            resolve_deadline: Duration::from_millis(50),
            list_deadline: Duration::from_millis(250),
            tick: Duration::from_millis(5),
            hostcall_fuel: 1 << 20,
            pool_instances: 256,
            memory_reservation: 4 << 30,
            component_bytes: 4 << 20,
            log_lines_per_call: 32,
            log_lines_per_second: 100,
            log_line_bytes: 1 << 10,
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
    pub fn new(mut config: EngineConfig) -> Result<Arc<Engine>, LoadError> {
        // Without an instance nothing is ever answered, and without a pause the thread would spin.
        config.pool_instances = config.pool_instances.max(1);
        config.tick = config.tick.max(Duration::from_millis(1));
        let (inner, pooled) = match wasmtime::Engine::new(&settings(&config, true)) {
            Ok(engine) => (engine, true),
            Err(reason) => {
                tracing::warn!(%reason, "no pool of WASM instances can be made (is the address space limited, `ulimit -v`?): falling back to memory on demand, which is slower");
                (wasmtime::Engine::new(&settings(&config, false)).map_err(|e| LoadError::Engine(format!("{e:#}")))?, false)
            }
        };
        let ticker = Ticker::start(inner.clone(), config.tick).map_err(|e| LoadError::Engine(format!("no thread for the epoch: {e}")))?;
        let slots = Semaphore::new(config.pool_instances as usize);
        Ok(Arc::new(Engine { inner, config, slots, ticker, pooled }))
    }

    /// The configuration that it was made with.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Whether instances come from a pool (the fast way).
    pub fn is_pooled(&self) -> bool {
        self.pooled
    }

    /// Lets the epoch move until the guard is dropped.
    pub(crate) fn running(&self) -> Running<'_> {
        self.ticker.enter()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("config", &self.config).field("pooled", &self.pooled).finish_non_exhaustive()
    }
}

fn settings(config: &EngineConfig, pooled: bool) -> Config {
    let mut c = Config::new();
    c.epoch_interruption(true);
    // Off, it saves 0.4 to 1 µs a call: hooks are synchronous, and an instance serves one at a time.
    c.concurrency_support(false);
    if !pooled {
        c.memory_reservation(config.memory_bytes as u64);
        return c;
    }
    c.memory_reservation(config.memory_reservation);
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
            while !shared.stop.load(Ordering::Acquire) {
                if shared.running.load(Ordering::Acquire) == 0 {
                    // An `unpark` between the load and this makes it return at once.
                    std::thread::park();
                } else {
                    std::thread::sleep(tick);
                    engine.increment_epoch();
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
