//! The id of a message that is not valid JSON, wherever it can still be read, so that the error finds its request.

use super::RequestId;
use bytes::Bytes;

/// Reads tokens from the front until the text goes wrong; answers the value of a top-level member `id` that was complete by then.
pub fn id(text: &[u8]) -> Option<RequestId> {
    let (mut at, mut depth) = (0usize, 0usize);
    let mut key: Option<&[u8]> = None;
    while at < text.len() {
        match text[at] {
            b'{' | b'[' => {
                depth += 1;
                key = None;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            b'"' => {
                let end = string_end(text, at)?;
                let token = &text[at..end];
                at = end;
                if depth == 1 {
                    if key == Some(b"\"id\"") {
                        return RequestId::from_raw(Bytes::copy_from_slice(token));
                    }
                    // A string followed by a colon is a member name.
                    key = (next_visible(text, at) == Some(b':')).then_some(token);
                }
            }
            b'-' | b'0'..=b'9' => {
                let end = at + text[at..].iter().take_while(|b| matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')).count();
                // A number at the very end may have been cut.
                if depth == 1 && key == Some(b"\"id\"") && end < text.len() {
                    return RequestId::from_raw(Bytes::copy_from_slice(&text[at..end]));
                }
                key = None;
                at = end;
            }
            b',' => {
                if depth == 1 {
                    key = None;
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
    None
}

fn string_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match text.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
}

fn next_visible(text: &[u8], from: usize) -> Option<u8> {
    text[from..].iter().copied().find(|b| !b.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_found_before_and_after_the_fault_and_only_at_the_top() {
        let read = |t: &str| id(t.as_bytes()).map(|i| String::from_utf8(i.raw().to_vec()).unwrap());
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"#).as_deref(), Some("7"));
        assert_eq!(read(r#"{"params":{"id":1},"id":"a","method":}"#).as_deref(), Some("\"a\""));
        assert_eq!(read(r#"{"params":{"id":1},,"#), None);
        assert_eq!(read(r#"{"method":"id","x":"#), None);
        assert_eq!(read(r#"{"id":12"#), None);
        assert_eq!(read("\u{feff}\"id\":1"), None);
        assert_eq!(read("}{"), None);
    }
}
