//! What comes back for a request of a client of 2026-07-28, part by part.
//!
//! A question of a server ends it: the request is answered with `input_required`, and the call waits among the `parked` for its retry.
//! Dropped before its answer, it cancels the call (2026-07-28 patterns/cancellation, "Streamable HTTP").

use super::super::{Gateway, Work};
use super::codes as era;
use super::parked::Question;
use super::state::Inside;
use crate::admission::Permit;
use crate::protocol::members::splice;
use crate::protocol::{Edits, Incoming, Request, RpcError, Wire, codes, method};
use crate::session::streams::{Frame, Reader, StreamId};
use crate::session::{Cancel, Session};
use bytes::Bytes;
use http::StatusCode;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Questions that a server asks in one breath are put to the client together: so long more are waited for after the first.
const BREATH: Duration = Duration::from_millis(5);

/// One part of what comes back.
pub enum Part {
    /// A notification that goes before the answer.
    Message(Wire, Option<Permit>),
    /// The answer; nothing follows it.
    Answer {
        message: Wire,
        permit: Option<Permit>,
        /// What the response says where the answer is all of it.
        status: StatusCode,
    },
    /// An answer that is still being read, and the reader of its stream. Only after `take_flow`.
    Flow(Frame, Reader),
}

/// A request while it is answered.
pub struct Answering {
    gateway: Arc<Gateway>,
    session: Arc<Session>,
    /// The client's request: the retry, where the call waited for one.
    request: Arc<Request>,
    reader: Option<Reader>,
    call: Option<CancelOnDrop>,
    /// Where it is done here.
    work: Option<Work>,
    /// An earlier request began the call, so what comes bears its id and token.
    renamed: bool,
    /// The answer is there already.
    now: Option<Wire>,
    early: VecDeque<Frame>,
    /// Questions that the last retry has left open.
    open: Vec<Question>,
    end: Option<Ended>,
}

/// What has to be done when the response has gone: the client is not there any more.
struct Ended(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(at_end) = self.0.take() {
            at_end();
        }
    }
}

struct CancelOnDrop(Arc<Cancel>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        // Without effect on a call that is over.
        self.0.cancel(None);
    }
}

impl Answering {
    pub(super) fn new(
        gateway: &Arc<Gateway>,
        session: &Arc<Session>,
        request: Arc<Request>,
        reader: Reader,
        cancel: Arc<Cancel>,
        work: Work,
    ) -> Self {
        Answering { reader: Some(reader), call: Some(CancelOnDrop(cancel)), work: Some(work), ..Self::empty(gateway, session, request) }
    }

    /// One that is answered at once.
    pub(super) fn now(gateway: &Arc<Gateway>, session: &Arc<Session>, request: Arc<Request>, message: Wire) -> Self {
        Answering { now: Some(message), ..Self::empty(gateway, session, request) }
    }

    /// One that is told things until it ends; `at_end` is called when it is dropped.
    pub(super) fn listening(
        gateway: &Arc<Gateway>,
        session: &Arc<Session>,
        request: Arc<Request>,
        reader: Reader,
        at_end: impl FnOnce() + Send + Sync + 'static,
    ) -> Self {
        Answering { reader: Some(reader), end: Some(Ended(Some(Box::new(at_end)))), ..Self::empty(gateway, session, request) }
    }

    fn empty(gateway: &Arc<Gateway>, session: &Arc<Session>, request: Arc<Request>) -> Self {
        Answering {
            gateway: gateway.clone(),
            session: session.clone(),
            request,
            reader: None,
            call: None,
            work: None,
            renamed: false,
            now: None,
            early: VecDeque::new(),
            open: Vec::new(),
            end: None,
        }
    }

    /// The stream of the call.
    pub(super) fn stream(&self) -> Option<StreamId> {
        self.reader.as_ref().map(Reader::stream)
    }

    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Whether it is a stream whatever comes first: what is told on it is the answer.
    pub fn is_stream(&self) -> bool {
        self.end.is_some()
    }

    /// From now on it answers `retry`. `open`: the questions that it leaves open.
    pub(super) fn continues(&mut self, retry: Arc<Request>, open: Vec<Question>) {
        self.request = retry;
        self.renamed = true;
        self.open = open;
    }

    /// Waits until there is something for `next`, which then does not wait long. Cancel-safe.
    pub async fn ready(&mut self) {
        if self.now.is_some() || !self.open.is_empty() || !self.early.is_empty() {
            return;
        }
        if let Some(reader) = &mut self.reader {
            beside(&mut self.work, reader.peek()).await;
        }
    }

    /// From now on its parts are taken as the client reads them, for which the call does not wait: it goes on by itself.
    pub fn let_go(&mut self) {
        self.work = None;
    }

    /// The next part; none where there is no answer, because the call was cancelled or the gateway ends. Not cancel-safe where
    /// questions are being put together: drop it with the response.
    pub async fn next(&mut self) -> Option<Part> {
        if let Some(message) = self.now.take() {
            return Some(self.answer(message, None, None));
        }
        if !self.open.is_empty() {
            let questions = std::mem::take(&mut self.open);
            if let Some(part) = Box::pin(self.park(questions)).await {
                return Some(part);
            }
        }
        loop {
            let frame = match self.early.pop_front() {
                Some(frame) => frame,
                None => beside(&mut self.work, self.reader.as_mut()?.next()).await?,
            };
            if frame.last {
                self.call = None;
                let reader = self.reader.take();
                if frame.rest.is_some() {
                    return Some(self.flow(frame, reader));
                }
                return Some(self.answer(frame.message, frame.permit, frame.error));
            }
            let Some(number) = frame.asks else {
                match self.message(frame) {
                    Some(part) => return Some(part),
                    None => continue,
                }
            };
            let mut questions: Vec<Question> = question(number, frame.message).into_iter().collect();
            let until = Instant::now() + BREATH;
            while let Some(reader) = &mut self.reader
                && let Ok(Some(frame)) = tokio::time::timeout_at(until, beside(&mut self.work, reader.next())).await
            {
                match frame.asks {
                    Some(number) => questions.extend(question(number, frame.message)),
                    None => self.early.push_back(frame),
                }
                if self.early.back().is_some_and(|f| f.last) {
                    break;
                }
            }
            if let Some(part) = Box::pin(self.park(questions)).await {
                return Some(part);
            }
        }
    }

    /// It takes the answer while that is still being read, if nothing comes before it.
    pub fn take_flow(&self) {
        // One that an earlier request began has that one's id.
        if let Some(reader) = self.reader.as_ref().filter(|_| !self.renamed) {
            reader.take_flow();
        }
    }

    /// It takes none any more. True: one is promised already, so the answer has to be waited for, and nothing before it matters.
    pub fn is_promised(&self) -> bool {
        self.reader.as_ref().is_some_and(Reader::is_promised)
    }

    fn flow(&self, frame: Frame, reader: Option<Reader>) -> Part {
        match reader {
            Some(reader) if !self.renamed => Part::Flow(frame, reader),
            // It began in the moment in which its request ended with a question.
            _ => {
                let error =
                    RpcError::new(codes::INTERNAL_ERROR, "the answer came before the request was repeated, and cannot be given now");
                self.answer(error.to_message(Some(&self.request.id)), frame.permit, None)
            }
        }
    }

    /// Something that goes before the answer, as the client of the present request knows it.
    fn message(&self, frame: Frame) -> Option<Part> {
        if !self.renamed {
            return Some(Part::Message(frame.message, frame.permit));
        }
        let raw = frame.message.into_bytes();
        let Ok(Incoming::Notification(note)) = Incoming::parse(raw.clone()) else { return None };
        let mut edits = Edits::new();
        if &*note.method == method::PROGRESS {
            // A retry that wants no progress gets none.
            let token = self.request.progress_token().ok().flatten()?;
            edits.replace(note.token_param(&["progressToken"]).ok().flatten()?.at, token.value.raw().clone());
        }
        Some(Part::Message(edits.apply(&raw), frame.permit))
    }

    fn answer(&self, message: Wire, permit: Option<Permit>, error: Option<i64>) -> Part {
        let status = error.map_or(StatusCode::OK, era::status);
        if !self.renamed {
            return Part::Answer { message, permit, status };
        }
        let message = match Incoming::parse(message.into_bytes()) {
            Ok(Incoming::Response(response)) => response.rewritten(&self.request.id, Edits::new()),
            _ => RpcError::new(codes::INTERNAL_ERROR, "an answer could not be read again").to_message(Some(&self.request.id)),
        };
        Part::Answer { message, permit, status }
    }

    /// Ends the request with these questions, and puts the call among those that wait. None where there is no room: then they are answered
    /// for the client, and the call goes on.
    async fn park(&mut self, questions: Vec<Question>) -> Option<Part> {
        if questions.is_empty() {
            return None;
        }
        self.let_go();
        let (key, state) = match self.seal() {
            Ok(sealed) => sealed,
            Err(why) => {
                tracing::error!(session = %self.session.tag(), %why, "a question of a server cannot be put to its client");
                self.gateway.give_up_asked(&self.session, questions, &format!("the client cannot be asked now: {why}")).await;
                return None;
            }
        };
        let mut message = Wire::from(Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":"));
        message.push(self.request.id.raw().clone());
        message.push(Bytes::from_static(b",\"result\":{\"resultType\":\"input_required\",\"inputRequests\":{"));
        for (at, question) in questions.iter().enumerate() {
            message.push(format!("{}\"{}\":", if at == 0 { "" } else { "," }, question.key));
            message.push(question.body.clone());
        }
        message.push(format!("}},\"requestState\":\"{state}\"}}}}"));
        self.is_promised();
        let stream = self.stream();
        let waits = Answering {
            reader: self.reader.take(),
            call: self.call.take(),
            renamed: true,
            early: std::mem::take(&mut self.early),
            ..Self::empty(&self.gateway, &self.session, self.request.clone())
        };
        if let Some(stream) = stream {
            self.session.carriers.waits(stream, true);
        }
        if let Err(goes_on) = self.gateway.park(key, waits, questions).await {
            let Answering { reader, call, early, .. } = goes_on;
            (self.reader, self.call, self.early) = (reader, call, early);
            if let Some(stream) = stream {
                self.session.carriers.waits(stream, false);
            }
            return None;
        }
        let permit = self.session.ledger.owe(message.len());
        Some(Part::Answer { message, permit: Some(permit), status: StatusCode::OK })
    }

    /// A key for the call, and the state that stands for it.
    fn seal(&self) -> Result<([u8; 16], String), String> {
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(|e| format!("the system's random generator failed: {e}"))?;
        let state = self.gateway.seal_state(&self.session, &self.request, Inside::Parked(&key)).map_err(|e| e.message)?;
        Ok((key, state))
    }
}

/// Waits for `other`, and does the work that there is.
async fn beside<T>(work: &mut Option<Work>, other: impl Future<Output = T>) -> T {
    match work {
        Some(work) => work.beside(other).await,
        None => other.await,
    }
}

/// A question as it stands among the `inputRequests`.
fn question(number: u64, message: Wire) -> Option<Question> {
    let raw = message.into_bytes();
    let Ok(Incoming::Request(request)) = Incoming::parse(raw) else { return None };
    let mut body = Wire::from(format!("{{\"method\":{}", crate::protocol::json::quote(&request.method)));
    if let Some(at) = request.params_at.clone() {
        let mut edits = Edits::new();
        if &*request.method == method::ELICITATION {
            // It has had none since 2026-07-28 (changelog).
            let _ = splice(&request.raw, at.clone(), |name| name == "elicitationId", "", &mut edits);
        }
        body.push(Bytes::from_static(b",\"params\":"));
        body.extend(edits.apply_in(&request.raw, at));
    }
    body.push(Bytes::from_static(b"}"));
    Some(Question { key: format!("input-{number}"), number, body: body.into_bytes() })
}
