//! The section `modern`: the key of what clients carry, and the bounds of what waits for them.

use std::time::Duration;

use super::limits::{count, duration, narrow, time};
use super::listen::hex_32;
use super::{Cx, Source};
use crate::config::file::File;
use crate::config::model::ModernConfig;
use crate::config::secret::StateKey;
use crate::protocol::base64;

pub fn modern(main: &Source<'_>, file: &File, cx: &mut Cx<'_>) -> ModernConfig {
    let default = ModernConfig::default();
    let Some(written) = &file.modern else { return default };
    let at = |key: &'static str| move || main.doc.place(&["modern".into(), key.into()]);
    let state_key = written.state_key.as_ref().and_then(|text| {
        let key = key(text.expose().trim());
        if key.is_none() {
            let message = "a key has 32 bytes: 64 hexadecimal digits, or 43 characters of Base64; make one with `openssl rand -hex 32`";
            cx.problem(at("state_key")(), message);
        }
        key.map(StateKey::new)
    });
    let parked = cx.bounded(at("parked"), written.parked.map(narrow), count(default.parked, 1, 65_536));
    // Where only the total is lowered, the default for one principal follows it.
    let per_principal = count(default.parked_per_principal.min(parked), 1, 65_536);
    let parked_per_principal = cx.bounded(at("parked_per_principal"), written.parked_per_principal.map(narrow), per_principal);
    if parked_per_principal > parked {
        let message = format!("{parked_per_principal} can never be reached: parked is {parked}; lower this or raise that");
        cx.problem(at("parked_per_principal")(), message);
    }
    let bounds = time(
        default.parked_time,
        Duration::from_secs(1),
        Duration::from_secs(86_400),
        ": a parked call holds a session at its server, and every wait ends",
    );
    let parked_time = cx.bounded(at("parked_time"), duration(written.parked_time), bounds);
    ModernConfig { state_key, parked, parked_per_principal, parked_time }
}

/// 32 bytes in hexadecimal or in either alphabet of Base64, with or without padding.
fn key(text: &str) -> Option<[u8; 32]> {
    if let Some(key) = hex_32(text) {
        return Some(key);
    }
    let plain: String =
        text.trim_end_matches('=').chars().map(|c| if c == '+' { '-' } else { c }).map(|c| if c == '/' { '_' } else { c }).collect();
    base64::decode_url(plain.as_bytes())?.try_into().ok()
}
