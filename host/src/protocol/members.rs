//! Taking members out of a JSON object and putting others in, as edits: nothing else of its text is touched.

use super::Edits;
use super::json::{self, Object};
use bytes::Bytes;
use std::ops::Range;

/// Takes the members that `out` names, however often they occur, out of the object at `at` of `raw`, and puts `add` in front of the
/// rest: members as JSON text, without braces, or nothing.
///
/// # Errors
/// When there is no object at `at`; no edit is made then.
pub fn splice(raw: &Bytes, at: Range<usize>, out: impl Fn(&str) -> bool, add: &str, edits: &mut Edits) -> Result<(), serde_json::Error> {
    let object = Object::parse(&raw[at.clone()])?;
    splice_object(raw, at, &object, out, add, edits);
    Ok(())
}

/// As `splice`, for an object that was read from `raw` at `at` already.
pub fn splice_object(raw: &Bytes, at: Range<usize>, object: &Object<'_>, out: impl Fn(&str) -> bool, add: &str, edits: &mut Edits) {
    // The text of a value begins with its brace, but a whole buffer may have blanks before it.
    let start = at.start + raw[at.clone()].iter().position(|&b| b == b'{').map_or(0, |brace| brace + 1);
    let (mut kept, mut before, mut lead) = (false, start, start);
    for (name, value) in object.members() {
        let place = json::place(raw, value);
        match (out(name), kept) {
            // With the comma in front of it.
            (true, true) => {
                edits.replace(before..place.end, Bytes::new());
            }
            (true, false) => lead = place.end,
            (false, true) => {}
            (false, false) => {
                kept = true;
                if lead > start {
                    // With the comma behind it.
                    lead += raw[lead..place.start].iter().position(|&b| b == b',').map_or(0, |comma| comma + 1);
                }
            }
        }
        before = place.end;
    }
    if lead > start || !add.is_empty() {
        let comma = if kept && !add.is_empty() { "," } else { "" };
        edits.replace(start..lead, format!("{add}{comma}"));
    }
}

/// Takes the elements that `out` names out of an array whose elements stand at `places`.
pub fn drop_elements(places: &[Range<usize>], out: impl Fn(usize) -> bool, edits: &mut Edits) {
    let Some(first) = places.first() else { return };
    let (mut kept, mut before, mut lead) = (false, first.start, first.start);
    for (index, place) in places.iter().enumerate() {
        match (out(index), kept) {
            // With the comma in front of it.
            (true, true) => {
                edits.replace(before..place.end, Bytes::new());
            }
            (true, false) => lead = place.end,
            (false, true) => {}
            (false, false) => {
                kept = true;
                // With the comma behind it.
                lead = place.start;
            }
        }
        before = place.end;
    }
    if lead > first.start {
        edits.replace(first.start..lead, Bytes::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spliced(text: &'static str, add: &str) -> String {
        let raw = Bytes::from_static(text.as_bytes());
        let mut edits = Edits::new();
        splice(&raw, 0..raw.len(), |name| name == "x" || name == "y", add, &mut edits).unwrap();
        String::from_utf8(edits.apply(&raw).into_bytes().to_vec()).unwrap()
    }

    #[test]
    fn members_go_with_one_comma_each_and_the_rest_keeps_its_text() {
        for (text, want) in [
            (r#"{"x":1}"#, "{}"),
            (r#"{"x":1,"y":[2]}"#, "{}"),
            (r#"{"x":1,"a":1.0}"#, r#"{"a":1.0}"#),
            (r#"{ "x" : 1 , "y":2 , "a" : 1.0 }"#, r#"{ "a" : 1.0 }"#),
            (r#"{"a":1.0,"x":1}"#, r#"{"a":1.0}"#),
            (r#"{"a":1.0 , "x":1,"y":2,"b":3}"#, r#"{"a":1.0,"b":3}"#),
            (r#"{"y":0,"a":1,"\u0078":1,"b":{"x":1},"y":","}"#, r#"{"a":1,"b":{"x":1}}"#),
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (" {} ", " {} "),
        ] {
            assert_eq!(spliced(text, ""), want, "{text}");
        }
    }

    #[test]
    fn elements_go_with_one_comma_each() {
        let raw = Bytes::from_static(b"[ 10 , 20, 30 ]");
        let places = [2..4, 7..9, 11..13];
        for (out, want) in [
            (&[0][..], "[ 20, 30 ]"),
            (&[1], "[ 10, 30 ]"),
            (&[2], "[ 10 , 20 ]"),
            (&[0, 1], "[ 30 ]"),
            (&[0, 2], "[ 20 ]"),
            (&[1, 2], "[ 10 ]"),
            (&[0, 1, 2], "[  ]"),
            (&[], "[ 10 , 20, 30 ]"),
        ] {
            let mut edits = Edits::new();
            drop_elements(&places, |index| out.contains(&index), &mut edits);
            assert_eq!(edits.apply(&raw).into_bytes(), want, "{out:?}");
        }
        drop_elements(&[], |_| true, &mut Edits::new());
    }

    #[test]
    fn members_are_put_in_front() {
        for (text, want) in [
            ("{}", r#"{"n":0}"#),
            (" { }", r#" {"n":0 }"#),
            (r#"{"x":1}"#, r#"{"n":0}"#),
            (r#"{"a":1}"#, r#"{"n":0,"a":1}"#),
            (r#"{"x":1,"a":1,"y":2}"#, r#"{"n":0,"a":1}"#),
        ] {
            assert_eq!(spliced(text, "\"n\":0"), want, "{text}");
        }
        let mut edits = Edits::new();
        assert!(splice(&Bytes::from_static(b"[1]"), 0..3, |_| true, "", &mut edits).is_err() && edits.is_empty());
    }
}
