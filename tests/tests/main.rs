//! One binary for all themes: they share their equipment, and a dozen links of it would cost more than the tests.

mod admission;
mod authors;
mod conformance;
mod dependencies;
mod equipment;
mod fidelity;
mod hostile;
mod incident;
mod memory;
mod modern;
mod modern_backends;
mod modern_principals;
mod modern_streams;
mod names;
mod parked;
mod policies;
mod real_clients;
mod real_servers;
mod resume;
mod sessions;
mod sse_downstream;
mod sse_upstream;
mod stdio;
mod swaps;
mod tasks;
