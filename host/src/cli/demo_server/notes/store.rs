//! The notes of one instance of the `notes` server: a bounded map, and which of them the client subscribed to. Plain data, no
//! I/O, no lock; `notes.rs` owns the one instance and announces its changes.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

/// Notes that one instance keeps. Adding another is an error that says so.
const MAX_NOTES: usize = 1_000;
/// The longest note, in bytes. With [`MAX_NOTES`] this bounds an instance to 16 MiB.
const MAX_TEXT: usize = 16 * 1024;
/// The longest title, in characters.
const MAX_TITLE: usize = 60;

/// The notes of one instance.
#[derive(Debug, Default)]
pub struct Store {
    notes: BTreeMap<u64, Note>,
    last_id: u64,
    /// URIs that the client of a legacy session subscribed to: only of notes, so bounded as they are.
    subscribed: BTreeSet<String>,
}

#[derive(Debug)]
struct Note {
    title: String,
    text: String,
}

/// A note without its text, which is the resource at `uri`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Entry {
    /// The note's number, never used twice in a session.
    pub id: u64,
    /// The resource that has the text.
    pub uri: String,
    pub title: String,
    /// The length of the text, in bytes.
    pub size: usize,
}

impl Store {
    /// Keeps a note. Without a title, the first line of the text is it.
    ///
    /// # Errors
    ///
    /// In words for the model: the note is too long, or there are too many.
    pub fn add(&mut self, text: String, title: Option<&str>) -> Result<Entry, String> {
        check_size(&text)?;
        if self.notes.len() >= MAX_NOTES {
            return Err(format!("there are {MAX_NOTES} notes already; delete one first"));
        }
        let title = title.filter(|title| !title.trim().is_empty()).unwrap_or(&text);
        let note = Note { title: short_title(title), text };
        self.last_id += 1;
        let entry = note.entry(self.last_id);
        self.notes.insert(self.last_id, note);
        Ok(entry)
    }

    /// Replaces the text of a note.
    ///
    /// # Errors
    ///
    /// As for [`Store::add`], or there is no such note.
    pub fn edit(&mut self, id: u64, text: String) -> Result<Entry, String> {
        check_size(&text)?;
        let note = self.notes.get_mut(&id).ok_or_else(|| no_note(id))?;
        note.text = text;
        Ok(note.entry(id))
    }

    /// Deletes a note, and the subscription to it.
    ///
    /// # Errors
    ///
    /// There is no such note.
    pub fn delete(&mut self, id: u64) -> Result<Entry, String> {
        let note = self.notes.remove(&id).ok_or_else(|| no_note(id))?;
        let entry = note.entry(id);
        self.subscribed.remove(&entry.uri);
        Ok(entry)
    }

    /// All notes, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.notes.iter().map(|(id, note)| note.entry(*id)).collect()
    }

    /// The text of the note at a URI.
    pub fn text(&self, uri: &str) -> Option<&str> {
        let id: u64 = uri.strip_prefix("notes://")?.parse().ok()?;
        // `notes://01` would parse as well, but is nobody's URI.
        let note = self.notes.get(&id).filter(|_| uri == uri_of(id))?;
        Some(&note.text)
    }

    /// Subscribes to the note at a URI; `false` if there is none.
    pub fn subscribe(&mut self, uri: &str) -> bool {
        let exists = self.text(uri).is_some();
        if exists {
            self.subscribed.insert(uri.to_owned());
        }
        exists
    }

    pub fn unsubscribe(&mut self, uri: &str) {
        self.subscribed.remove(uri);
    }

    pub fn is_subscribed(&self, uri: &str) -> bool {
        self.subscribed.contains(uri)
    }
}

impl Note {
    fn entry(&self, id: u64) -> Entry {
        Entry { id, uri: uri_of(id), title: self.title.clone(), size: self.text.len() }
    }
}

fn uri_of(id: u64) -> String {
    format!("notes://{id}")
}

fn no_note(id: u64) -> String {
    format!("there is no note {id} in this session")
}

fn check_size(text: &str) -> Result<(), String> {
    if text.len() > MAX_TEXT {
        return Err(format!("the note has {} bytes; at most {MAX_TEXT}", text.len()));
    }
    Ok(())
}

/// The first line with something on it, cut where it is too long.
fn short_title(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("untitled");
    let mut title: String = line.chars().take(MAX_TITLE).collect();
    if line.chars().nth(MAX_TITLE).is_some() {
        title.push('…');
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(store: &mut Store, text: &str) -> Entry {
        store.add(text.to_owned(), None).expect("there is room")
    }

    #[test]
    fn a_note_has_its_first_line_as_title_and_can_be_read_at_its_uri() {
        let mut store = Store::default();
        let entry = add(&mut store, "\n  milk  \nand bread");
        assert_eq!((entry.title.as_str(), entry.uri.as_str()), ("milk", "notes://1"));
        assert_eq!(store.text("notes://1"), Some("\n  milk  \nand bread"));
        for uri in ["notes://2", "notes://01", "notes://+1", "notes://", "clock://1"] {
            assert_eq!(store.text(uri), None, "{uri}");
        }
        let titled = store.add("x".to_owned(), Some(&"y".repeat(61))).expect("there is room");
        assert_eq!(titled.title, format!("{}…", "y".repeat(60)));
    }

    #[test]
    fn numbers_are_not_used_twice_and_a_full_store_says_so() {
        let mut store = Store::default();
        for _ in 0..MAX_NOTES {
            add(&mut store, "x");
        }
        assert!(store.add("x".to_owned(), None).expect_err("full").contains("delete one"));
        store.delete(MAX_NOTES as u64).expect("it is there");
        assert_eq!(add(&mut store, "x").id, MAX_NOTES as u64 + 1);
        assert!(store.edit(1, "x".repeat(MAX_TEXT + 1)).is_err());
    }

    #[test]
    fn a_subscription_is_to_a_note_that_exists_and_ends_with_it() {
        let mut store = Store::default();
        assert!(!store.subscribe("notes://1"));
        let entry = add(&mut store, "x");
        assert!(store.subscribe(&entry.uri));
        store.delete(entry.id).expect("it is there");
        assert!(!store.is_subscribed(&entry.uri));
        assert!(store.delete(entry.id).is_err());
    }
}
