//! The query of a request target: `name=value&…`, percent-encoded.

/// The first value of a parameter. The error says what is wrong with it.
pub fn parameter(query: Option<&str>, name: &str) -> Result<Option<String>, String> {
    for pair in query.unwrap_or_default().split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decode(key).as_deref() == Some(name) {
            return decode(value).map(Some).ok_or_else(|| format!("the parameter {name} is not percent-encoded UTF-8"));
        }
    }
    Ok(None)
}

/// Undoes percent-encoding; `+` is a space, as forms write it. None for what is no UTF-8.
pub fn decode(text: &str) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        out.push(match (byte, after) {
            (b'%', [high, low, tail @ ..]) => {
                rest = tail;
                digit(*high)? << 4 | digit(*low)?
            }
            (b'%', _) => return None,
            (b'+', _) => b' ',
            _ => byte,
        });
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Some("virtual_host=%2Fmcp&name=docs%3a%2F%2Fa+b&x&y=%zz");
        let get = |name| parameter(query, name);
        assert_eq!(get("virtual_host"), Ok(Some("/mcp".into())));
        assert_eq!(get("name"), Ok(Some("docs://a b".into())));
        assert_eq!((get("x"), get("z"), parameter(None, "x")), (Ok(Some(String::new())), Ok(None), Ok(None)));
        assert!(get("y").is_err());
        assert_eq!((decode("%"), decode("%e"), decode("%ff")), (None, None, None));
    }
}
