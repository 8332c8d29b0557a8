//! Base64 with padding (RFC 4648, section 4), as header values carry it, and the alphabet for URLs without padding (section 5), for text
//! that clients carry. Strict: one text for one value.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |group, &byte| group << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = ALPHABET[(group >> (18 - 6 * place) & 63) as usize];
            out.push(if place > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    out
}

/// None for another alphabet, missing or needless padding, and bits behind the last byte.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|&&b| b == b'=').count();
    if padding > 2 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let groups = text.len() / 4;
    for (index, chunk) in text.chunks(4).enumerate() {
        let pad = if index + 1 == groups { padding } else { 0 };
        let mut group = 0u32;
        for &byte in &chunk[..4 - pad] {
            group = group << 6 | digit(byte)?;
        }
        group <<= 6 * pad;
        let [_, bytes @ ..] = group.to_be_bytes();
        let (kept, rest) = bytes.split_at(3 - pad);
        if rest.iter().any(|&byte| byte != 0) {
            return None;
        }
        out.extend_from_slice(kept);
    }
    Some(out)
}

/// Without padding, and with `-` and `_`.
pub fn encode_url(bytes: &[u8]) -> String {
    let text = encode(bytes);
    text.trim_end_matches('=')
        .chars()
        .map(|c| {
            if c == '+' {
                '-'
            } else if c == '/' {
                '_'
            } else {
                c
            }
        })
        .collect()
}

/// None for another alphabet, padding, and bits behind the last byte.
pub fn decode_url(text: &[u8]) -> Option<Vec<u8>> {
    let standard = |&byte: &u8| match byte {
        b'-' => Some(b'+'),
        b'_' => Some(b'/'),
        b'+' | b'/' | b'=' => None,
        other => Some(other),
    };
    let mut all = text.iter().map(standard).collect::<Option<Vec<u8>>>()?;
    all.resize(text.len().next_multiple_of(4), b'=');
    decode(&all)
}

fn digit(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded_and_has_one_text() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("Hello, 世界", "SGVsbG8sIOS4lueVjA==")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text.as_bytes()).unwrap(), bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(encode(&all).as_bytes()).unwrap(), all);
        for bad in ["Zg", "Zg=", "Zh==", "Zg==Zg==", "Z===", "====", "Zm9-", "Zm 9", "Zm9v\n"] {
            assert!(decode(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_alphabet_of_urls_has_one_text_for_one_value_too() {
        let all: Vec<u8> = (0..=255).collect();
        for length in 0..=all.len() {
            let text = encode_url(&all[..length]);
            assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{text}");
            assert_eq!(decode_url(text.as_bytes()).unwrap(), all[..length]);
        }
        assert_eq!(encode_url(b"\xfb\xff\xfe?"), "-__-Pw");
        for bad in ["Zg==", "Zh", "Z", "+__-Pw", "-//-Pw", "Zm 9", "Zm9v\n"] {
            assert!(decode_url(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
