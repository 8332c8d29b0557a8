//! The demo server `notes`: notes in memory, each of them also a resource `notes://N`. They belong to one instance of the
//! server: over stdio to the process, over HTTP to the session (or, in the era without sessions, to the one request).
//! That is what makes it a good witness of whether a gateway keeps its sessions apart.
//!
//! Changes are announced: `resources/list_changed` when a note is added or deleted, `resources/updated` when a note that the
//! client subscribed to changes.

mod store;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::{
    ErrorData, Json, RoleServer, ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::{
        CallToolResult, ContentBlock, ListResourceTemplatesResult, ListResourcesResult, PaginatedRequestParams, ReadResourceRequestParams,
        ReadResourceResponse, ReadResourceResult, Resource, ResourceContents, ResourceTemplate, ResourceUpdatedNotificationParam,
        ServerCapabilities, ServerConfig, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
    },
    service::{RequestContext, SubscriptionContext},
    tool, tool_handler, tool_router,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use super::{DemoServer, identity};
use store::{Entry, Store};

/// Changes kept for a listener that is behind. One that falls further behind is told that the list has changed.
const CHANGES: usize = 64;

/// The `notes` server. See the module's documentation.
#[derive(Debug, Clone)]
pub struct NotesServer {
    tools: ToolRouter<Self>,
    notes: Arc<Mutex<Store>>,
    changes: broadcast::Sender<Change>,
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

/// The notes of this session, oldest first.
#[derive(Debug, Serialize, JsonSchema)]
struct Notes {
    notes: Vec<Entry>,
}

#[tool_router(router = tools)]
impl NotesServer {
    /// A server without notes.
    pub fn new() -> Self {
        let (changes, _) = broadcast::channel(CHANGES);
        Self { tools: Self::tools(), notes: Arc::default(), changes }
    }

    #[tool(
        title = "Add a note",
        description = "Keeps a note for the rest of this session and returns its number and the resource it can be read at.",
        output_schema = rmcp::handler::server::tool::schema_for_output::<Entry>(),
        annotations(destructive_hint = false, open_world_hint = false)
    )]
    async fn add_note(&self, Parameters(args): Parameters<AddNote>, context: RequestContext<RoleServer>) -> Result<CallToolResult, String> {
        let entry = self.notes().add(args.text, args.title.as_deref())?;
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
        Json(Notes { notes: self.notes().entries() })
    }

    #[tool(
        title = "Edit a note",
        description = "Replaces the text of a note. Its title stays.",
        annotations(idempotent_hint = true, open_world_hint = false)
    )]
    async fn edit_note(&self, Parameters(args): Parameters<EditNote>, context: RequestContext<RoleServer>) -> Result<Json<Entry>, String> {
        let entry = self.notes().edit(args.id, args.text)?;
        self.announce(Change::Note(entry.uri.clone()), &context).await;
        Ok(Json(entry))
    }

    #[tool(
        title = "Delete a note",
        description = "Deletes a note of this session.",
        annotations(destructive_hint = true, open_world_hint = false)
    )]
    async fn delete_note(&self, Parameters(args): Parameters<DeleteNote>, context: RequestContext<RoleServer>) -> Result<String, String> {
        let entry = self.notes().delete(args.id)?;
        self.announce(Change::List, &context).await;
        Ok(format!("Deleted note {}, '{}'.", entry.id, entry.title))
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
            Change::Note(uri) if self.notes().is_subscribed(&uri) => {
                let update = ResourceUpdatedNotificationParam::new(uri);
                context.peer.notify_resource_updated(update).await
            }
            Change::Note(_) => Ok(()),
        };
        if let Err(error) = told {
            tracing::debug!(%error, "notes: the client was not told of a change");
        }
    }

    fn notes(&self) -> MutexGuard<'_, Store> {
        // Every change leaves the notes whole, so a panic elsewhere does not make them unusable.
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
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
        let resource = |entry: Entry| Resource::new(entry.uri, entry.title).with_mime_type("text/plain").with_size(entry.size as u64);
        let resources = self.notes().entries().into_iter().map(resource).collect();
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
        let text = self.notes().text(&request.uri).map(str::to_owned);
        let text = text.ok_or_else(|| no_note(&request.uri))?;
        Ok(ReadResourceResult::new(vec![ResourceContents::text(text, request.uri)]).into())
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        if self.notes().subscribe(&request.uri) {
            return Ok(());
        }
        Err(no_note(&request.uri))
    }

    async fn unsubscribe(&self, request: UnsubscribeRequestParams, _context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.notes().unsubscribe(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
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
                Ok(Change::List) | Err(broadcast::error::RecvError::Lagged(_)) => context.sink().notify_resource_list_changed().await,
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

fn no_note(uri: &str) -> ErrorData {
    let data = serde_json::json!({ "uri": uri });
    ErrorData::resource_not_found(format!("no note {uri} in this session"), Some(data))
}
