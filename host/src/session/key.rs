//! Which session a request belongs to.

use crate::protocol::RpcError;
use crate::protocol::codes;
use std::fmt;
use std::sync::Arc;

/// Who is asking, as the authenticator found: the name from the configuration, or anonymous where the endpoint is open.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Principal(Arc<str>);

impl Principal {
    pub fn anonymous() -> Self {
        Principal("anonymous".into())
    }

    pub fn is_anonymous(&self) -> bool {
        *self.0 == *"anonymous"
    }

    /// `name` must come from a verified credential.
    pub fn named(name: Arc<str>) -> Self {
        Principal(name)
    }

    pub fn name(&self) -> &Arc<str> {
        &self.0
    }
}

/// The id that a client sends in `Mcp-Session-Id`: visible ASCII (2025-11-25 transports, "Session Management").
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// 192 bits from the system's generator, in base64url.
    pub fn generate() -> Result<Self, RpcError> {
        let mut bytes = [0u8; 24];
        getrandom::fill(&mut bytes)
            .map_err(|e| RpcError::new(codes::INTERNAL_ERROR, format!("the system's random generator failed: {e}")))?;
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let text: String = bytes
            .chunks_exact(3)
            .flat_map(|c| {
                let word = u32::from(c[0]) << 16 | u32::from(c[1]) << 8 | u32::from(c[2]);
                [18, 12, 6, 0].map(|shift| char::from(ALPHABET[(word >> shift & 63) as usize]))
            })
            .collect();
        Ok(SessionId(text.into()))
    }

    /// An id as a client sent it. None for what no server could have given out.
    pub fn read(text: &str) -> Option<Self> {
        let fits = !text.is_empty() && text.len() <= 512 && text.bytes().all(|b| (0x21..=0x7e).contains(&b));
        fits.then(|| SessionId(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Ids are told to their owner and to nobody else, logs included.
        f.write_str("SessionId(…)")
    }
}

/// All three parts have to match. A foreign id is therefore the same as an unknown one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SessionKey {
    pub principal: Principal,
    /// The path of the virtual host.
    pub virtual_host: Arc<str>,
    pub id: SessionId,
}
