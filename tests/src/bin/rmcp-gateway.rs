//! The usual way to build an MCP gateway on rmcp: its `StreamableHttpService` with its `LocalSessionManager` in front, one rmcp client per
//! session behind. `rmcp-gateway BACKEND_URL` prints its URL and serves until its standard input ends. What Lockgate is compared with.

// Log messages are what is passed on here, whatever later revisions think of them.
#![expect(deprecated, reason = "the legacy revisions have them")]

use std::sync::Arc;

use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use rmcp::{
    ClientHandler, ErrorData, Peer, RoleClient, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, ListToolsResult, LoggingMessageNotificationParam, PaginatedRequestParams,
        ServerCapabilities, ServerConfig,
    },
    service::{NotificationContext, RequestContext, RunningService},
    transport::{
        StreamableHttpClientTransport,
        streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager},
    },
};
use tokio::{io::AsyncReadExt, net::TcpListener, sync::OnceCell, task::JoinSet};

/// One session: its client connects when it is first needed.
struct Session {
    backend: String,
    upstream: OnceCell<RunningService<RoleClient, Upward>>,
}

/// Passes the backend's log messages on to the session's client.
struct Upward(Peer<RoleServer>);

impl ClientHandler for Upward {
    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        let _ = self.0.notify_logging_message(params).await;
    }
}

impl Session {
    async fn upstream(&self, context: &RequestContext<RoleServer>) -> Result<&RunningService<RoleClient, Upward>, ErrorData> {
        let connect = || Upward(context.peer.clone()).serve(StreamableHttpClientTransport::from_uri(self.backend.clone()));
        self.upstream.get_or_try_init(connect).await.map_err(failed)
    }
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_logging().build())
    }

    async fn list_tools(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.upstream(&context).await?.list_tools(params).await.map_err(failed)
    }

    async fn call_tool(&self, params: CallToolRequestParams, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        let result = self.upstream(&context).await?.call_tool(params).await.map_err(failed)?;
        Ok(result.into())
    }
}

fn failed(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let backend = std::env::args().nth(1).expect("rmcp-gateway BACKEND_URL");
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let factory = move || Ok(Session { backend: backend.clone(), upstream: OnceCell::new() });
    let service = StreamableHttpService::new(factory, Arc::new(LocalSessionManager::default()), StreamableHttpServerConfig::default());
    let serving = async {
        let mut connections = JoinSet::new();
        loop {
            let (socket, _) = listener.accept().await?;
            let service = TowerToHyperService::new(service.clone());
            connections.spawn(async move {
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
            });
            while connections.try_join_next().is_some() {}
        }
    };
    let parent = async {
        let (mut input, mut buffer) = (tokio::io::stdin(), [0; 64]);
        while input.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    };
    tokio::select! {
        result = serving => result,
        () = parent => Ok(()),
    }
}
