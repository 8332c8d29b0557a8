//! NAME: a Lockgate policy. What it may be asked, and when, stands in CONTRACT.
//!
//! The hooks fetch what is to be known and pass it on; what is decided stands in plain functions, which `cargo test` tests.

use lockgate_sdk::{IMPORTS, export};
use serde::Deserialize;

/// The operator's `config` for this policy. `config.schema.json` says the same, and is checked before the policy runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
SETTING}

struct Policy;

