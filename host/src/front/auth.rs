//! Authentication: the `Authorization` header of each request to a `Principal`. Never a token in the query string (2025-11-25
//! authorization, "Access Token Usage"), never a session id: those prove nothing.

use super::refused::Refused;
use crate::config::Auth;
use crate::session::Principal;
use http::{HeaderMap, header};

/// Who sent this request. Where no token is configured everybody is `anonymous`, and what they send along is not looked at.
pub fn principal(auth: &Auth, anonymous: &Principal, headers: &HeaderMap) -> Result<Principal, Refused> {
    if auth.is_open() {
        return Ok(anonymous.clone());
    }
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Err(Refused::NoToken) };
    let token = bearer(value.as_bytes()).filter(|_| values.next().is_none()).ok_or(Refused::BadToken)?;
    // Compared by hash, in constant time.
    auth.principal(token).map(|name| Principal::named(name.clone())).ok_or(Refused::BadToken)
}

/// The token of `Bearer <token>` (RFC 6750, 2.1); the scheme's case does not matter.
pub fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_what_follows_the_scheme() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bEARER   abc "), Some(&b"abc"[..]));
        for other in [&b"Bearer"[..], b"Bearer ", b"Basic abc", b"abc", b""] {
            assert_eq!(bearer(other), None);
        }
    }

    #[test]
    fn where_no_token_is_configured_everybody_is_anonymous() {
        let anonymous = Principal::anonymous();
        let mut headers = HeaderMap::new();
        assert_eq!(principal(&Auth::default(), &anonymous, &headers).ok(), Some(anonymous.clone()));
        headers.insert(header::AUTHORIZATION, "Bearer left-over".parse().unwrap());
        assert_eq!(principal(&Auth::default(), &anonymous, &headers).ok(), Some(anonymous));
    }
}
