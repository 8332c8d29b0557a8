use super::text::DEPTH;
use super::*;
use crate::protocol::members::splice;
use crate::protocol::{Edits, Incoming, RequestId};
use proptest::prelude::*;

const ID: u64 = 7;

/// What comes out of `chunks`, the result not dressed, the id as `"client"` and URIs as `<…>`; whether it is a whole answer.
fn scan<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, places: Places) -> Result<Vec<u8>, Invalid> {
    scan_as(chunks, places, None)
}

fn scan_as<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, places: Places, dress: Option<Dress>) -> Result<Vec<u8>, Invalid> {
    let mut scanner = Scanner::new(ID, places, dress);
    let mut out = Vec::new();
    for chunk in chunks {
        scanner.push(&Bytes::copy_from_slice(chunk))?;
        while let Some(piece) = scanner.pop() {
            match piece {
                Piece::Bytes(part) => out.extend_from_slice(&part),
                Piece::Id => out.extend_from_slice(b"\"client\""),
                Piece::Uri(uri) => out.extend_from_slice(&[b"<", &uri[..], b">"].concat()),
            }
        }
    }
    scanner.finish()?;
    assert_eq!(scanner.held(), 0);
    Ok(out)
}

fn whole(text: &[u8], places: Places) -> Result<Vec<u8>, Invalid> {
    scan([text], places)
}

/// What the parser for whole messages makes of it.
fn parsed(text: &[u8]) -> Option<Vec<u8>> {
    let Ok(Incoming::Response(response)) = Incoming::parse(Bytes::copy_from_slice(text)) else { return None };
    let ours = response.ok && response.id.as_ref().is_some_and(|id| id.stands_for(ID));
    let client = RequestId::from_raw(Bytes::from_static(b"\"client\"")).unwrap();
    ours.then(|| response.rewritten(&client, Edits::new()).into_bytes().to_vec())
}

fn is_out(name: &str) -> bool {
    name == "type" || name == "x"
}

fn dressed(text: &[u8], places: Places, size: usize) -> Option<Vec<u8>> {
    let dress = Dress { add: Bytes::from_static(b"\"n\":0"), out: is_out };
    scan_as(text.chunks(size), places, Some(dress)).ok()
}

/// What is made of a whole one whose result is dressed; none where it is no answer, or has names that are no text.
fn spliced(text: &[u8]) -> Option<Vec<u8>> {
    let Ok(Incoming::Response(response)) = Incoming::parse(Bytes::copy_from_slice(text)) else { return None };
    parsed(text)?;
    let mut edits = Edits::new();
    if response.body().starts_with(b"{") {
        splice(&response.raw, response.body_at.clone(), is_out, "\"n\":0", &mut edits).ok()?;
    }
    let client = RequestId::from_raw(Bytes::from_static(b"\"client\"")).unwrap();
    Some(response.rewritten(&client, edits).into_bytes().to_vec())
}

/// The same, in whatever pieces it comes.
fn agree(text: &[u8], places: Places) {
    let once = whole(text, places).ok();
    if places == Places::Nowhere {
        assert_eq!(once, parsed(text), "{}", String::from_utf8_lossy(text));
    }
    for at in 0..=text.len() {
        let (head, tail) = text.split_at(at);
        assert_eq!(scan([head, tail], places).ok(), once, "cut at {at}: {}", String::from_utf8_lossy(text));
    }
    assert_eq!(scan(text.chunks(1), places).ok(), once, "byte by byte: {}", String::from_utf8_lossy(text));
}

const ANSWERS: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
    r#"{"result":{"content":[{"type":"text","text":"a\"\\\/\u00e9\ud83d é日🎉"}]},"jsonrpc":"2.0","id":7}"#,
    "{\r\n \"id\" :\t\"7\" , \"result\" : [ 1 , -0.5e+10 , 0 , true , false , null , [ ] , { } ] , \"jsonrpc\" : \"2.0\" } \n",
    r#"{"\u0069d":7,"r\u0065sult":null,"jsonrpc":"2.0","x":{"id":8,"error":{},"method":[]}}"#,
    r#"{"jsonrpc":"2.0","params":[7],"id":7,"result":1E400}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":"","":{"":[[[[[{"a":[{}]}]]]]]}}"#,
];

const NONE: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":8,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":[7],"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":7.5,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":7,"id":7,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":{},"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":{},"\u0065rror":{}}"#,
    r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":{},"method":"x"}"#,
    r#"{"jsonrpc":"1.0","id":7,"result":{}}"#,
    r#"{"jsonrpc":2.0,"id":7,"result":{}}"#,
    r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":7,"result":{}}"#,
    r#"{"jsonrpc":"2\u002e0","id":7,"result":{}}"#,
    r#"{"id":7,"result":{}}"#,
    r#"{"jsonrpc":"2.0","result":{}}"#,
    r#"{"jsonrpc":"2.0","id":7}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":{}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":{}}}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":{}} x"#,
    r#"{"jsonrpc":"2.0","id":7,"result":{},}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":[1,]}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":{]}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":[}}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":01}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":1.}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":-}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":1e}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":nul}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":"\x"}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":"\u00g0"}"#,
    "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\n\"}",
    r#"{"jsonrpc":"2.0","id":7,"result":{},"\ud800":1}"#,
    r#"{"jsonrpc" "2.0"}"#,
    r#"{1:2}"#,
    r#"[{"jsonrpc":"2.0","id":7,"result":{}}]"#,
    "{",
    "",
    "7",
];

#[test]
fn answers_pass_with_another_id_wherever_they_are_cut() {
    for text in ANSWERS {
        assert!(whole(text.as_bytes(), Places::Nowhere).is_ok(), "{text}");
        for places in [Places::Nowhere, Places::Tool, Places::Prompt, Places::Resource] {
            agree(text.as_bytes(), places);
        }
    }
}

#[test]
fn what_the_parser_refuses_never_passes_for_whole() {
    for text in NONE {
        assert!(whole(text.as_bytes(), Places::Nowhere).is_err(), "{text}");
        agree(text.as_bytes(), Places::Nowhere);
    }
    for bytes in [&b"\xff"[..], b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x8e", b"\xc0\xaf"] {
        let text = [br#"{"jsonrpc":"2.0","id":7,"result":""#, bytes, b"\"}"].concat();
        agree(&text, Places::Nowhere);
        assert!(whole(&text, Places::Nowhere).is_err(), "{bytes:?}");
    }
}

#[test]
fn nothing_is_passed_on_of_an_id_before_it_is_known_to_be_right() {
    let mut scanner = Scanner::new(ID, Places::Nowhere, None);
    let head = Bytes::from_static(br#"{"result":{"a":"x"},"jsonrpc":"2.0","id":8"#);
    scanner.push(&head).unwrap();
    assert_eq!(scanner.pop(), Some(Piece::Bytes(head.slice(..head.len() - 1))));
    assert_eq!(scanner.pop(), None);
    assert!(scanner.has_begun() && scanner.id_len().is_none());
    assert!(scanner.push(&Bytes::from_static(b"}")).is_err());
    assert_eq!(scanner.pop(), None);
}

#[test]
fn slices_are_shared_and_not_copied() {
    let mut scanner = Scanner::new(ID, Places::Nowhere, None);
    let text = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"a":"{}"}}}}"#, "x".repeat(1000)));
    scanner.push(&text).unwrap();
    let pieces: Vec<Piece> = std::iter::from_fn(|| scanner.pop()).collect();
    let [Piece::Bytes(head), Piece::Id, Piece::Bytes(rest)] = &pieces[..] else { panic!("{pieces:?}") };
    assert_eq!((head.as_ptr(), rest.as_ptr()), (text.as_ptr(), text[head.len() + 1..].as_ptr()));
    assert_eq!(scanner.id_len(), Some(1));
}

#[test]
fn uris_come_out_where_they_are_meant() {
    let answer = |result: &str| format!(r#"{{"result":{result},"jsonrpc":"2.0","id":7}}"#);
    let block = [
        // What it says, and what comes out.
        (r#"{"type":"text","text":"x","uri":"a:1"}"#, r#"{"type":"text","text":"x","uri":"a:1"}"#),
        (r#"{"type":"resource_link","uri":"a:1","name":"n"}"#, r#"{"type":"resource_link","uri":<"a:1">,"name":"n"}"#),
        (
            r#"{"uri":"a:1","x":[{"type":"text"}],"type":"resource_link"}"#,
            r#"{"uri":<"a:1">,"x":[{"type":"text"}],"type":"resource_link"}"#,
        ),
        (r#"{"ur\u0069":"a:\/1","t\u0079pe":"resource\u005flink"}"#, r#"{"ur\u0069":<"a:\/1">,"t\u0079pe":"resource\u005flink"}"#),
        (r#"{"uri":"a:1","type":"text"}"#, r#"{"uri":"a:1","type":"text"}"#),
        (r#"{"uri":"a:1","resource":{"uri":"a:2"}}"#, r#"{"uri":"a:1","resource":{"uri":"a:2"}}"#),
        (r#"{"uri":"a:1","type":7}"#, r#"{"uri":"a:1","type":7}"#),
        (
            r#"{"type":"resource","resource":{"uri":"a:1","blob":"xx"},"uri":"a:2"}"#,
            r#"{"type":"resource","resource":{"uri":<"a:1">,"blob":"xx"},"uri":"a:2"}"#,
        ),
        (
            r#"{"resource":{"uri":"a:1","blob":"xx"},"uri":"a:2","type":"resource"}"#,
            r#"{"resource":{"uri":<"a:1">,"blob":"xx"},"uri":"a:2","type":"resource"}"#,
        ),
        (
            r#"{"type":"resource","resource":{"x":{"uri":"a:1"},"uri":{}}}"#,
            r#"{"type":"resource","resource":{"x":{"uri":"a:1"},"uri":{}}}"#,
        ),
        (r#"{"type":"resource_link","x":{"uri":"a:1"},"uri":""}"#, r#"{"type":"resource_link","x":{"uri":"a:1"},"uri":<"">}"#),
    ];
    let client = |text: String| text.replace("\"id\":7}", "\"id\":\"client\"}");
    for (says, comes) in block {
        for (places, result) in [
            (Places::Tool, r#"{"uri":"a:0","content":[BLOCK,{"type":"text"},BLOCK],"structuredContent":[BLOCK_AS_IT_IS]}"#),
            (Places::Prompt, r#"{"content":[BLOCK_AS_IT_IS],"messages":[{"role":"user","content":BLOCK},{"content":[BLOCK]}]}"#),
        ] {
            let text = answer(&result.replace("BLOCK_AS_IT_IS", says).replace("BLOCK", says));
            let want = client(answer(&result.replace("BLOCK_AS_IT_IS", says).replace("BLOCK", comes)));
            assert_eq!(whole(text.as_bytes(), places).map(|out| String::from_utf8(out).unwrap()), Ok(want), "{text}");
            agree(text.as_bytes(), places);
            assert_eq!(whole(text.as_bytes(), Places::Nowhere), Ok(client(text).into_bytes()));
        }
    }
    let read = answer(
        r#"{"contents":[{"uri":"a:1","text":"x"},{"blob":"","uri":"a:2","_meta":{"uri":"a:3"}}],"content":[{"type":"resource_link","uri":"a:4"}]}"#,
    );
    let want = client(read.replace("\"a:1\"", "<\"a:1\">").replace("\"a:2\"", "<\"a:2\">"));
    assert_eq!(whole(read.as_bytes(), Places::Resource), Ok(want.into_bytes()));
    agree(read.as_bytes(), Places::Resource);
}

#[test]
fn what_waits_for_its_type_is_held_and_nothing_else_is() {
    let mut scanner = Scanner::new(ID, Places::Tool, None);
    let filler = "x".repeat(5000);
    scanner.push(&Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"{filler}"#))).unwrap();
    assert_eq!(scanner.held(), 0);
    scanner.push(&Bytes::from(format!(r#""}},{{"uri":"a:1","description":"{filler}"#))).unwrap();
    while scanner.pop().is_some() {}
    assert!((5000..5100).contains(&scanner.held()), "{}", scanner.held());
    scanner.push(&Bytes::from_static(br#"","type":"resource_link""#)).unwrap();
    assert_eq!((scanner.held(), scanner.pop()), (0, Some(Piece::Uri(Bytes::from_static(b"\"a:1\"")))));
}

#[test]
fn a_result_is_dressed_as_a_whole_one_is() {
    for result in [
        "{}",
        "{ }",
        "{ \"a\" : 1 }",
        r#"{"x":1}"#,
        r#"{ "x" : 1 , "a" : [1] }"#,
        r#"{"a":1,"x":{"a":{"x":1}}}"#,
        r#"{"x":[{}],"type":"t" , "a":{"x":[1]} , "\u0078":null , "b":"," }"#,
        r#"{"a":{},"x":-1.5e3,"b":true,"x":2}"#,
        "[1]",
        "\"x\"",
        r#"{"content":[{"uri":"a:1","type":"text"},{"type":"text"}],"x":0}"#,
    ] {
        for text in [
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#),
            format!(r#"{{"x":{{"x":1}},"result": {result} ,"type":1,"id":7,"jsonrpc":"2.0"}}"#),
        ] {
            let want = spliced(text.as_bytes()).unwrap();
            for size in 1..=text.len() {
                for places in [Places::Nowhere, Places::Tool] {
                    let got = dressed(text.as_bytes(), places, size).map(|out| String::from_utf8(out).unwrap());
                    assert_eq!(got.as_deref(), std::str::from_utf8(&want).ok(), "{text} by {size}");
                }
            }
        }
    }
}

#[test]
fn nesting_has_a_bound() {
    let text = |levels: usize| format!(r#"{{"jsonrpc":"2.0","id":7,"result":{}{}}}"#, "[".repeat(levels), "]".repeat(levels)).into_bytes();
    assert!(whole(&text(DEPTH - 1), Places::Tool).is_ok());
    assert!(whole(&text(DEPTH), Places::Tool).is_err());
}

/// JSON, with now and then something that is none.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,2})?([eE][+-]?[0-9]{1,2})?",
        "\"([a-z:é🎉 ]|\\\\[nu\"/\\\\]|\\\\u[0-9a-f]{4}){0,6}\"",
        "[0-9tfn.e+-]{1,4}",
        prop::sample::select(vec!["\"resource\"", "\"resource_link\"", "\"text\"", "7", "\"7\"", "\"2.0\""]).prop_map(str::to_owned),
    ];
    let blank = prop::sample::select(vec!["", "", "", " ", "\n"]);
    leaf.prop_recursive(6, 48, 6, move |inner| {
        let name =
            prop::sample::select(vec!["type", "uri", "resource", "content", "contents", "messages", "id", "result", "x", "\\u0075ri"]);
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..4), blank.clone())
                .prop_map(|(values, blank)| format!("[{blank}{}]", values.join(&format!("{blank},")))),
            (prop::collection::vec((name, inner), 0..5), blank.clone()).prop_map(|(members, blank)| {
                let members: Vec<String> = members.into_iter().map(|(name, value)| format!("{blank}\"{name}\"{blank}:{value}")).collect();
                format!("{{{}{blank}}}", members.join(","))
            }),
        ]
    })
}

fn message() -> impl Strategy<Value = String> {
    let member = prop_oneof![
        4 => json().prop_map(|value| format!("\"result\":{value}")),
        4 => Just("\"id\":7".to_owned()),
        4 => Just("\"jsonrpc\":\"2.0\"".to_owned()),
        1 => json().prop_map(|value| format!("\"x\":{value}")),
        1 => json().prop_map(|value| format!("\"id\":{value}")),
        1 => json().prop_map(|value| format!("\"error\":{value}")),
    ];
    let right = json().prop_map(|value| vec![format!("\"result\":{value}"), "\"id\":7".to_owned(), "\"jsonrpc\":\"2.0\"".to_owned()]);
    prop_oneof![right.prop_shuffle(), prop::collection::vec(member, 0..6)].prop_map(|members| format!("{{{}}}", members.join(",")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn it_agrees_with_the_parser_whatever_comes_in_whatever_pieces(text in message(), size in 1usize..9) {
        let once = whole(text.as_bytes(), Places::Nowhere).ok();
        prop_assert_eq!(&once, &parsed(text.as_bytes()));
        prop_assert_eq!(&scan(text.as_bytes().chunks(size), Places::Nowhere).ok(), &once);
        for places in [Places::Tool, Places::Prompt, Places::Resource] {
            let out = whole(text.as_bytes(), places).ok();
            prop_assert_eq!(out.is_some(), once.is_some());
            prop_assert_eq!(&scan(text.as_bytes().chunks(size), places).ok(), &out);
        }
        if let Some(want) = spliced(text.as_bytes()) {
            prop_assert_eq!(dressed(text.as_bytes(), Places::Nowhere, size), Some(want));
        }
    }

    #[test]
    fn one_wrong_byte_is_noticed_where_the_parser_notices_it(text in message(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut text = text.into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        prop_assert_eq!(whole(&text, Places::Nowhere).ok(), parsed(&text));
    }
}
