//! The server behind every gateway: raw hyper, one thread, answers that are made before. It has to be so cheap that it is not what is
//! measured, and keeps nothing of sessions.
//!
//! | path | what it is |
//! |---|---|
//! | `/mcp` | revisions up to 2025-11-25, with the tools of [`TOOLS`] |
//! | `/modern` | the same tools in 2026-07-28 |
//! | `/list/NAME/COUNT` | revisions up to 2025-11-25, with COUNT tools whose names begin with NAME |

mod answers;

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use anyhow::Result;
use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpListener;

use crate::proc;

pub use answers::{STRUCTURED_MARK, TOOLS};

/// Serves on a port of the loopback until standard input ends, and prints `http://ADDRESS` first.
pub async fn serve(port: u16) -> Result<()> {
    proc::open_files();
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}", listener.local_addr()?);
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let _ = socket.set_nodelay(true);
        // Each ends with its connection, and all with the process.
        tokio::spawn(async move {
            let service = hyper::service::service_fn(answer);
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

/// A request, as far as it is looked at.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    name: Option<&'a str>,
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

#[derive(Default, Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    size: Option<usize>,
    count: Option<usize>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "progressToken")]
    token: Option<&'a RawValue>,
}

/// What one path serves.
#[derive(Clone, Copy)]
enum Place<'a> {
    Legacy,
    Modern,
    List(&'a str, usize),
}

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let Some(place) = Place::of(&path) else { return Ok(status(StatusCode::NOT_FOUND)) };
    Ok(match (head.method, place) {
        (Method::POST, _) => match body.collect().await {
            Ok(whole) => post(&whole.to_bytes(), place),
            Err(_) => status(StatusCode::BAD_REQUEST),
        },
        (Method::GET, Place::Legacy | Place::List(..)) => events(Body::silent()),
        (Method::DELETE, Place::Legacy | Place::List(..)) => status(StatusCode::NO_CONTENT),
        _ => status(StatusCode::METHOD_NOT_ALLOWED),
    })
}

fn post(raw: &[u8], place: Place<'_>) -> Response<Body> {
    let Ok(message) = serde_json::from_slice::<Message<'_>>(raw) else { return status(StatusCode::BAD_REQUEST) };
    let Some(id) = message.id else { return status(StatusCode::ACCEPTED) };
    let id = id.get();
    let modern = matches!(place, Place::Modern);
    let params = message.params;
    match message.method {
        "initialize" if !modern => {
            let mut response = json(answers::initialize(id));
            response.headers_mut().insert("mcp-session-id", answers::session());
            response
        }
        "server/discover" if modern => json(answers::discover(id)),
        "ping" if !modern => json(answers::result(id, "{}".into())),
        "tools/list" => json(match place {
            Place::Legacy | Place::Modern => answers::tools(id, modern),
            Place::List(name, count) => answers::list(id, name, count),
        }),
        "tools/call" => {
            let (name, arguments, token) = params.map_or_else(Default::default, |p| {
                (p.name.unwrap_or_default(), p.arguments.unwrap_or_default(), p.meta.and_then(|m| m.token))
            });
            match name {
                "echo" => json(answers::echo(id, arguments.text.map_or("\"\"", RawValue::get), modern)),
                "blob" => json(answers::blob(id, arguments.size.unwrap_or(0), modern)),
                "structured" => json(answers::structured(id, arguments.size.unwrap_or(0), modern)),
                "progress" => {
                    let token = token.map(|t| t.get().to_owned());
                    events(Body::events(answers::progress(id, token, arguments.count.unwrap_or(0), modern)))
                }
                _ => json(answers::error(id, -32602, "no such tool")),
            }
        }
        _ => {
            let mut response = json(answers::error(id, -32601, "no such method"));
            if modern {
                *response.status_mut() = StatusCode::NOT_FOUND;
            } else if message.method == "server/discover" {
                *response.status_mut() = StatusCode::BAD_REQUEST;
            }
            response
        }
    }
}

impl<'a> Place<'a> {
    fn of(path: &'a str) -> Option<Place<'a>> {
        match path {
            "/mcp" => Some(Place::Legacy),
            "/modern" => Some(Place::Modern),
            _ => {
                let (name, count) = path.strip_prefix("/list/")?.split_once('/')?;
                Some(Place::List(name, count.parse().ok().filter(|n| *n <= 10_000)?))
            }
        }
    }
}

fn json(parts: Vec<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::whole(parts));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // What a server says to a proxy in front of it that would keep events back.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::whole(Vec::new()));
    *response.status_mut() = status;
    response
}

/// A message in parts whose sum is known, or events.
enum Body {
    Whole { parts: VecDeque<Bytes>, left: u64 },
    Events(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    fn whole(parts: Vec<Bytes>) -> Body {
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Body::Whole { parts: parts.into(), left }
    }

    /// One event after the other, each in a write of its own.
    fn events(events: Vec<Bytes>) -> Body {
        Body::Events(Box::pin(futures_util::stream::unfold(events.into_iter(), |mut left| async move {
            let next = left.next()?;
            tokio::task::yield_now().await;
            Some((next, left))
        })))
    }

    /// The stream of a server that has nothing to say.
    fn silent() -> Body {
        use futures_util::StreamExt;
        let hello = futures_util::stream::iter([Bytes::from_static(b": open\n\n")]);
        Body::Events(Box::pin(hello.chain(futures_util::stream::pending())))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Body::Whole { parts, left } => Poll::Ready(parts.pop_front().map(|part| {
                *left -= part.len() as u64;
                Ok(Frame::data(part))
            })),
            Body::Events(events) => events.as_mut().poll_next(cx).map(|next| next.map(|event| Ok(Frame::data(event)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Whole { left: 0, .. })
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole { left, .. } => SizeHint::with_exact(*left),
            Body::Events(_) => SizeHint::default(),
        }
    }
}
