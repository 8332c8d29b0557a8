//! The demo server `notes`: notes in memory, each of them also a resource `notes://N`. They belong to one instance of the
//! server: over stdio to the process, over HTTP to the session (or, in the era without sessions, to the one request).
//! That is what makes it a good witness of whether a gateway keeps its sessions apart.
//!
//! Changes are announced: `resources/list_changed` when a note is added or deleted, `resources/updated` when a note that the
//! client subscribed to changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::{
    ErrorData, Json, RoleServer, ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::{
        CallToolResult, ContentBlock, ListResourceTemplatesResult, ListResourcesResult,
        PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
        ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
        ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, SubscribeRequestParams,
        SubscriptionFilter, UnsubscribeRequestParams,
    },
    service::{RequestContext, SubscriptionContext},
    tool, tool_handler, tool_router,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use super::{DemoServer, identity};

/// Notes that one instance keeps. Adding another is an error that says so.
const MAX_NOTES: usize = 1_000;
/// The longest note, in bytes. With [`MAX_NOTES`] this bounds an instance to 16 MiB.
const MAX_TEXT: usize = 16 * 1024;
/// Changes kept for a listener that is behind. One that falls further behind is told that the list has changed.
const CHANGES: usize = 64;

/// The `notes` server. See the module's documentation.
#[derive(Debug, Clone)]
pub struct NotesServer {
    tools: ToolRouter<Self>,
    state: Arc<Mutex<State>>,
    changes: broadcast::Sender<Change>,
}

#[derive(Debug, Default)]
struct State {
    notes: BTreeMap<u64, Note>,
    last_id: u64,
    /// URIs that the client of a legacy session subscribed to.
    subscribed: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct Note {
    title: String,
    text: String,
}

/// What happened, for listeners of the era in which change notifications travel on `subscriptions/listen`.
#[derive(Debug, Clone)]
enum Change {
    List,
    Note(String),
}

#[derive(Debug, Deserialize, JsonSchema)]
struct AddNote {
    /// The note, at most 16 KiB.
    text: String,
    /// A title; the first line of the text when absent.
    #[serde(default)]
    title: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct EditNote {
    /// The note's number.
    id: u64,
    /// What the note shall say instead, at most 16 KiB.
    text: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct DeleteNote {
    /// The note's number.
    id: u64,
}

/// A note without its text, which is the resource at `uri`.
#[derive(Debug, Serialize, JsonSchema)]
struct Entry {
    /// The note's number, never used twice in a session.
    id: u64,
    /// The resource that has the text.
    uri: String,
    title: String,
}

/// The notes of this session, oldest first.
#[derive(Debug, Serialize, JsonSchema)]
struct Notes {
    notes: Vec<Entry>,
}

impl Entry {
    fn of((id, note): (&u64, &Note)) -> Self {
        Self { id: *id, uri: uri(*id), title: note.title.clone() }
    }
}

#[tool_router(router = tools)]
impl NotesServer {
    /// A server without notes.
    pub fn new() -> Self {
        let (changes, _) = broadcast::channel(CHANGES);
        Self { tools: Self::tools(), state: Arc::default(), changes }
    }

    #[tool(
        title = "Add a note",
        description = "Keeps a note for the rest of this session and returns its number and the resource it can be read at.",
        output_schema = rmcp::handler::server::tool::schema_for_output::<Entry>(),
        annotations(destructive_hint = false, open_world_hint = false)
    )]
    async fn add_note(
        &self,
        Parameters(args): Parameters<AddNote>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, String> {
        let entry = self.add(args)?;
        self.announce(Change::List, &context).await;
        let link = Resource::new(&entry.uri, &entry.title).with_mime_type("text/plain");
        let value = serde_json::to_value(&entry).map_err(|error| error.to_string())?;
        let mut result = CallToolResult::structured(value);
        result.content.push(ContentBlock::resource_link(link));
        Ok(result)
    }

    #[tool(
        title = "List the notes",
        description = "The notes of this session with their numbers and titles. Nobody else's notes are among them.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn list_notes(&self) -> Json<Notes> {
        Json(Notes { notes: self.state().notes.iter().map(Entry::of).collect() })
    }

    #[tool(
        title = "Edit a note",
        description = "Replaces the text of a note. Its title stays.",
        annotations(idempotent_hint = true, open_world_hint = false)
    )]
    async fn edit_note(
        &self,
        Parameters(args): Parameters<EditNote>,
        context: RequestContext<RoleServer>,
    ) -> Result<Json<Entry>, String> {
        check_size(&args.text)?;
        let entry = {
            let mut state = self.state();
            let note = state.notes.get_mut(&args.id).ok_or_else(|| no_note(args.id))?;
            note.text = args.text;
            Entry::of((&args.id, note))
        };
        self.announce(Change::Note(entry.uri.clone()), &context).await;
        Ok(Json(entry))
    }

    #[tool(
        title = "Delete a note",
        description = "Deletes a note of this session.",
        annotations(destructive_hint = true, open_world_hint = false)
    )]
    async fn delete_note(
        &self,
        Parameters(args): Parameters<DeleteNote>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, String> {
        let note = self.state().notes.remove(&args.id).ok_or_else(|| no_note(args.id))?;
        self.announce(Change::List, &context).await;
        Ok(format!("Deleted note {}, '{}'.", args.id, note.title))
    }

    fn add(&self, args: AddNote) -> Result<Entry, String> {
        check_size(&args.text)?;
        let title = args.title.unwrap_or_default();
        let title = if title.trim().is_empty() { &args.text } else { &title };
        let title = short_title(title);
        let mut state = self.state();
        if state.notes.len() >= MAX_NOTES {
            return Err(format!("there are {MAX_NOTES} notes already; delete one first"));
        }
        state.last_id += 1;
        let (id, note) = (state.last_id, Note { title, text: args.text });
        let entry = Entry::of((&id, &note));
        state.notes.insert(id, note);
        Ok(entry)
    }

    /// Tells the client of this session, in the way of its era.
    async fn announce(&self, change: Change, context: &RequestContext<RoleServer>) {
        // Without a listener there is nobody to tell.
        let _ = self.changes.send(change.clone());
        if context.meta.protocol_version().is_some() {
            return;
        }
        let told = match change {
            Change::List => context.peer.notify_resource_list_changed().await,
            Change::Note(uri) if self.state().subscribed.contains(&uri) => {
                let update = ResourceUpdatedNotificationParam::new(uri);
                context.peer.notify_resource_updated(update).await
            }
            Change::Note(_) => Ok(()),
        };
        if let Err(error) = told {
            tracing::debug!(%error, "notes: the client was not told of a change");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the notes whole, so a panic elsewhere does not make them unusable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for NotesServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(identity(DemoServer::Notes))
            .with_instructions("Notes live as long as the session and are seen by nobody else.")
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource = |(id, note): (&u64, &Note)| {
            Resource::new(uri(*id), note.title.clone())
                .with_mime_type("text/plain")
                .with_size(note.text.len() as u64)
        };
        let resources = self.state().notes.iter().map(resource).collect();
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let note = ResourceTemplate::new("notes://{id}", "note")
            .with_title("A note")
            .with_description("The text of a note of this session, by its number")
            .with_mime_type("text/plain");
        Ok(ListResourceTemplatesResult::with_all_items(vec![note]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = self.text(&request.uri)?;
        Ok(ReadResourceResult::new(vec![ResourceContents::text(text, request.uri)]).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // Only notes that exist, so that the set is bounded as the notes are.
        self.text(&request.uri)?;
        let mut state = self.state();
        let State { notes, subscribed, .. } = &mut *state;
        subscribed.retain(|uri| number(uri).is_some_and(|id| notes.contains_key(&id)));
        subscribed.insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.state().subscribed.remove(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let change = tokio::select! {
                () = context.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            let told = match change {
                Ok(Change::List) | Err(broadcast::error::RecvError::Lagged(_)) => {
                    context.sink().notify_resource_list_changed().await
                }
                Ok(Change::Note(uri)) => context.sink().notify_resource_updated(uri).await,
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            };
            if let Err(error) = told {
                // Most often a kind of change that this listener did not ask for.
                tracing::debug!(%error, "notes: a listener was not told of a change");
            }
        }
    }
}

impl NotesServer {
    fn text(&self, uri: &str) -> Result<String, ErrorData> {
        let note = number(uri).and_then(|id| self.state().notes.get(&id).map(|n| n.text.clone()));
        note.ok_or_else(|| {
            let data = serde_json::json!({ "uri": uri });
            ErrorData::resource_not_found(format!("no note {uri} in this session"), Some(data))
        })
    }
}

fn uri(id: u64) -> String {
    format!("notes://{id}")
}

fn number(uri: &str) -> Option<u64> {
    uri.strip_prefix("notes://")?.parse().ok()
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

/// The first line with something on it, at most 60 characters.
fn short_title(text: &str) -> String {
    const MAX: usize = 60;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("untitled");
    let mut title: String = line.chars().take(MAX).collect();
    if line.chars().nth(MAX).is_some() {
        title.push('…');
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str) -> AddNote {
        AddNote { text: text.to_owned(), title: None }
    }

    #[test]
    fn a_note_has_its_first_line_as_title_and_can_be_read_at_its_uri() {
        let server = NotesServer::new();
        let entry = server.add(note("\n  milk  \nand bread")).expect("there is room");
        assert_eq!((entry.title.as_str(), entry.uri.as_str()), ("milk", "notes://1"));
        assert_eq!(server.text("notes://1").expect("it was added"), "\n  milk  \nand bread");
        assert_eq!(short_title(&"x".repeat(61)), format!("{}…", "x".repeat(60)));
    }

    #[test]
    fn two_instances_share_nothing() {
        let (a, b) = (NotesServer::new(), NotesServer::new());
        a.add(note("mine")).expect("there is room");
        assert!(b.text("notes://1").is_err());
        assert!(b.state().notes.is_empty());
    }

    #[test]
    fn numbers_are_not_used_twice_and_a_full_server_says_so() {
        let server = NotesServer::new();
        for _ in 0..MAX_NOTES {
            server.add(note("x")).expect("there is room");
        }
        assert!(server.add(note("x")).expect_err("full").contains("delete one"));
        server.state().notes.remove(&1);
        assert_eq!(server.add(note("x")).expect("there is room").id, MAX_NOTES as u64 + 1);
        assert!(server.add(note(&"x".repeat(MAX_TEXT + 1))).is_err());
    }
}
