//! Error codes on their way to a client of 2026-07-28 (basic/index, "Error codes"), and the HTTP status that goes with each.
//!
//! What a code means depends on who says it. From -32020 to -32099 the revision gives them out, so that an older server that took one of them
//! for itself means something else; and a modern server that complains of headers or of the revision complains of what the gateway sent.

use crate::protocol::{codes, method};
use http::StatusCode;

/// A URL that the user has to visit first, in 2025-11-25 only.
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// The code under which a client of 2026-07-28 gets an error that a server of an older revision answered `method` with.
///
/// -32002 was "resource not found", which is -32602 now; in answers that are about no resource it can have meant anything. Codes that the revision
/// reserves for itself become internal errors. So does -32042, where nobody made a question for the client of it before: it must not be
/// emitted, and there is no other code for it. All others are the server's own words and stay.
pub fn modern(method: &str, code: i64) -> i64 {
    match code {
        codes::RESOURCE_NOT_FOUND if about_resources(method) => codes::INVALID_PARAMS,
        codes::RESOURCE_NOT_FOUND | URL_ELICITATION_REQUIRED => codes::INTERNAL_ERROR,
        code if is_reserved(code) => codes::INTERNAL_ERROR,
        code => code,
    }
}

/// The same for an error of a server of 2026-07-28: what it says of headers and revision is about the hop to it, which is none of the
/// client's; what it says of the client's capabilities (-32021) is.
pub fn relayed(method: &str, code: i64) -> i64 {
    match code {
        codes::MISSING_CAPABILITY => code,
        code => modern(method, code),
    }
}

/// The status of an answer that is one JSON message with this error. Requests that are refused before they are looked at have their
/// own.
pub fn status(code: i64) -> StatusCode {
    match code {
        codes::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        codes::HEADER_MISMATCH | codes::MISSING_CAPABILITY | codes::UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn about_resources(of: &str) -> bool {
    matches!(of, method::RESOURCES_READ | method::RESOURCES_SUBSCRIBE | method::RESOURCES_UNSUBSCRIBE | method::COMPLETE)
}

/// Given out by the specification alone.
fn is_reserved(code: i64) -> bool {
    (-32099..=-32020).contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_older_servers_get_the_meaning_that_they_had() {
        for (method, code, told) in [
            ("resources/read", -32002, -32602),
            ("completion/complete", -32002, -32602),
            ("tools/call", -32002, -32603),
            ("tools/call", -32042, -32603),
            ("tools/call", -32020, -32603),
            ("tools/call", -32021, -32603),
            ("tools/call", -32022, -32603),
            ("tools/call", -32099, -32603),
            ("tools/call", -32000, -32000),
            ("tools/call", -32019, -32019),
            ("tools/call", -32100, -32100),
            ("tools/call", -32601, -32601),
            ("resources/read", -32602, -32602),
            ("resources/read", -31001, -31001),
            ("tools/call", 7, 7),
        ] {
            assert_eq!(modern(method, code), told, "{method} {code}");
        }
    }

    #[test]
    fn what_a_modern_server_says_of_the_gateway_is_not_told_to_the_client() {
        for (code, told) in [(-32020, -32603), (-32021, -32021), (-32022, -32603), (-32023, -32603), (-32042, -32603), (-32602, -32602)] {
            assert_eq!(relayed("tools/call", code), told, "{code}");
        }
    }

    #[test]
    fn the_status_says_what_kind_of_error_it_is() {
        for (code, told) in
            [(-32601, 404), (-32020, 400), (-32021, 400), (-32022, 400), (-32602, 200), (-32603, 200), (-31001, 200), (1, 200)]
        {
            assert_eq!(status(code).as_u16(), told, "{code}");
        }
    }
}
