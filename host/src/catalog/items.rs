//! The items of one backend's list result, with the place of each name: what publishing rewrites.

use super::keeping::Keeping;
use crate::protocol::json::{self, Object};
use crate::protocol::{Edits, Response, method};
use bytes::Bytes;
use lockgate_policy::Kind;
use std::ops::Range;
use std::sync::Arc;

/// One listed thing: its own JSON text.
#[derive(Clone, Debug)]
pub struct Item {
    /// The place of the whole item in the message.
    pub at: Range<usize>,
    /// The place of its name (URI, URI template).
    pub name_at: Range<usize>,
    pub name: Arc<str>,
    pub title: Option<String>,
}

/// A list result as one backend gave it.
#[derive(Clone, Debug)]
pub struct Page {
    pub raw: Bytes,
    /// The place of the array of items.
    pub items_at: Range<usize>,
    pub items: Vec<Item>,
    /// Items that have no readable name and are left out.
    pub unnamed: usize,
    pub next_cursor: Option<String>,
    pub next_cursor_at: Option<Range<usize>>,
    /// What has to be changed in it for the era of the client.
    pub shaped: Edits,
    pub keeping: Keeping,
}

/// What a list is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOf {
    /// Things that policies name.
    Named(Kind),
    /// Tasks of 2025-11-25.
    Tasks,
}

impl From<Kind> for ListOf {
    fn from(kind: Kind) -> Self {
        ListOf::Named(kind)
    }
}

impl ListOf {
    pub fn method(self) -> &'static str {
        match self {
            ListOf::Named(Kind::Tool) => method::TOOLS_LIST,
            ListOf::Named(Kind::Prompt) => method::PROMPTS_LIST,
            ListOf::Named(Kind::Resource) => method::RESOURCES_LIST,
            ListOf::Named(Kind::ResourceTemplate) => method::RESOURCES_TEMPLATES_LIST,
            ListOf::Tasks => method::TASKS_LIST,
        }
    }

    /// The member of a list result that holds the items, and the member of an item that names it.
    pub fn members(self) -> (&'static str, &'static str) {
        match self {
            ListOf::Named(Kind::Tool) => ("tools", "name"),
            ListOf::Named(Kind::Prompt) => ("prompts", "name"),
            ListOf::Named(Kind::Resource) => ("resources", "uri"),
            ListOf::Named(Kind::ResourceTemplate) => ("resourceTemplates", "uriTemplate"),
            ListOf::Tasks => ("tasks", "taskId"),
        }
    }
}

impl Page {
    /// Reads the result of an answer.
    pub fn of(list: ListOf, answer: &Response) -> Result<Page, String> {
        Ok(Page { shaped: answer.shaped.clone(), ..Page::read(list, &answer.raw, answer.body_at.clone())? })
    }

    /// Reads the result at `result_at` of `raw`. The error says what is wrong with it.
    fn read(of: ListOf, raw: &Bytes, result_at: Range<usize>) -> Result<Page, String> {
        let (list, name) = of.members();
        let object = Object::parse(&raw[result_at]).map_err(|e| format!("the result of a list is not an object: {e}"))?;
        let items_value =
            object.get(list).map_err(|e| e.to_string())?.ok_or_else(|| format!("the result of a list has no member `{list}`"))?;
        let values = json::array(items_value).ok_or_else(|| format!("member `{list}` of a list result is not an array"))?;
        let mut page = Page {
            raw: raw.clone(),
            items_at: json::place(raw, items_value),
            items: Vec::with_capacity(values.len()),
            unnamed: 0,
            next_cursor: None,
            next_cursor_at: None,
            shaped: Edits::new(),
            keeping: Keeping::read(&object),
        };
        for value in values {
            let item = Object::of(value).and_then(|o| {
                let name_value = o.get(name).ok()??;
                let title = o.only("title").and_then(json::string).map(|t| t.into_owned());
                Some(Item {
                    at: json::place(raw, value),
                    name_at: json::place(raw, name_value),
                    name: json::string(name_value)?.into(),
                    title,
                })
            });
            match item {
                Some(item) => page.items.push(item),
                None => page.unnamed += 1,
            }
        }
        if let Some(cursor) = object.get("nextCursor").map_err(|e| e.to_string())?.filter(|c| !json::is_null(c)) {
            let text = json::string(cursor).ok_or("member `nextCursor` of a list result is not a string")?;
            page.next_cursor = Some(text.into_owned());
            page.next_cursor_at = Some(json::place(raw, cursor));
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_text_and_nameless_ones_are_counted() {
        let raw = Bytes::from_static(
            br#"{"id":1,"result":{"zz":1.0,"tools":[{"name":"a","x":1.0},{"nome":"b"},{"title":"T","name":"\u0063"}],"nextCursor":""}}"#,
        );
        let start = raw.iter().position(|&b| b == b'z').unwrap() - 2;
        let page = Page::read(Kind::Tool.into(), &raw, start..raw.len() - 1).unwrap();
        assert_eq!(page.items.len(), 2);
        assert_eq!(page.unnamed, 1);
        assert_eq!(&raw[page.items[0].at.clone()], br#"{"name":"a","x":1.0}"#);
        assert_eq!(&*page.items[1].name, "c");
        assert_eq!(page.items[1].title.as_deref(), Some("T"));
        assert_eq!(page.next_cursor.as_deref(), Some(""));
        assert!(Page::read(Kind::Tool.into(), &Bytes::from_static(b"{\"tools\":{}}"), 0..12).is_err());
    }
}
