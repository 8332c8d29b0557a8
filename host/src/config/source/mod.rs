//! From bytes to a tree that knows where each of its values stands.
//!
//! `yaml` and `jsonc` build the same tree (`tree`), `expand` puts the environment into it, `decode` turns it into any
//! `Deserialize` type and goes on after a fault, so that a file with five mistakes is answered with five lines.
//! Nothing here knows what a backend or a listener is.

pub(super) mod decode;
pub(super) mod expand;
pub(super) mod jsonc;
pub(super) mod tree;
pub(super) mod yaml;
