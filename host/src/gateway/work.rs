//! The work of one request: done by whoever waits for its answer, and by a task of the session when nobody does any more.
//!
//! A call goes on without its client's connection. Most are over before anything happens to that, and need no task of their own: so the
//! connection does the work itself, for as long as it waits.

use crate::protocol::{Request, RpcError, codes};
use crate::session::streams::{StreamId, Streams};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Ends with the request. Dropped before, it goes on in a task: whoever cannot poll it steadily drops it. The session waits for it when it
/// closes, wherever it is done.
pub struct Work {
    /// The tasks of the session.
    tasks: TaskTracker,
    /// It is one of them though it has no task. None where it has one.
    token: Option<TaskTrackerToken>,
    streams: Arc<Streams>,
    /// The stream of the request.
    stream: StreamId,
    request: Arc<Request>,
    /// None when it is over.
    doing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Work {
    /// `doing` answers `request` on `stream`, and itself ends soon after the session does, whose tasks and streams these are.
    pub(crate) fn new(
        (tasks, streams): (&TaskTracker, &Arc<Streams>),
        request: Arc<Request>,
        stream: StreamId,
        doing: impl Future<Output = ()> + Send + 'static,
    ) -> Work {
        let token = Some(tasks.token());
        Work { tasks: tasks.clone(), token, streams: streams.clone(), stream, request, doing: Some(Box::pin(doing)) }
    }

    /// Does it while `other` is waited for.
    pub async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = pin!(other);
        poll_fn(|cx| {
            let _ = Pin::new(&mut *self).poll(cx);
            other.as_mut().poll(cx)
        })
        .await
    }
}

impl Future for Work {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(doing) = &mut self.doing else { return Poll::Ready(()) };
        // A fault in one request is not one of its connection.
        let polled = catch_unwind(AssertUnwindSafe(|| doing.as_mut().poll(cx)));
        match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => self.doing = None,
            Err(_) => {
                self.doing = None;
                tracing::error!(method = %self.request.method, "a request was given up: there is a fault in the gateway");
                let error =
                    RpcError::new(codes::INTERNAL_ERROR, "there is a fault in the gateway; what became of the request is not known");
                self.streams.answer(self.stream, error.to_message(Some(&self.request.id)), None, Some(error.code));
                self.streams.finish(self.stream);
            }
        }
        Poll::Ready(())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // One that has a task is dropped with the runtime only; without a runtime the process is at its end, too.
        let (Some(doing), Some(_token), Ok(_)) = (self.doing.take(), self.token.take(), Handle::try_current()) else { return };
        let (tasks, streams, request) = (self.tasks.clone(), self.streams.clone(), self.request.clone());
        self.tasks.spawn(Work { tasks, token: None, streams, stream: self.stream, request, doing: Some(doing) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Ledger;
    use crate::config::AdmissionConfig;
    use crate::session::streams::{Reader, ReplayLimits};
    use futures_util::FutureExt;
    use std::time::Duration;
    use tokio::sync::oneshot;

    fn work(doing: impl Future<Output = ()> + Send + 'static) -> (TaskTracker, Work, Reader) {
        let ledger = Ledger::new(AdmissionConfig::default().into(), "s".into(), Arc::default());
        let streams = Arc::new(Streams::new(ReplayLimits { events: 9, bytes: 999, time: Duration::from_secs(9) }, ledger));
        let (tasks, reader) = (TaskTracker::new(), streams.open());
        let work = Work::new((&tasks, &streams), Arc::new(Request::own("x", "{}")), reader.stream(), doing);
        (tasks, work, reader)
    }

    #[tokio::test]
    async fn it_is_done_by_who_waits_and_goes_on_when_nobody_does() {
        let (say, said) = oneshot::channel::<()>();
        let (went_on, done) = oneshot::channel();
        let (tasks, mut work, _reader) = work(async move {
            let _ = said.await;
            let _ = went_on.send(());
        });
        assert!(work.beside(std::future::pending::<()>()).now_or_never().is_none());
        assert_eq!(tasks.len(), 1);
        drop(work);
        assert_eq!(tasks.len(), 1);
        say.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(5), done).await.unwrap().unwrap();
        tasks.close();
        tasks.wait().await;
    }

    #[tokio::test]
    async fn who_waits_for_the_tasks_waits_for_it_too() {
        let (tasks, mut work, _reader) = work(tokio::task::yield_now());
        tasks.close();
        assert!(tasks.wait().now_or_never().is_none());
        (&mut work).await;
        drop(work);
        assert!(tasks.wait().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_fault_in_it_is_told_to_the_client_and_goes_no_further() {
        let (tasks, mut work, mut reader) = work(async { panic!("on purpose") });
        let frame = work.beside(reader.next()).await.unwrap();
        assert_eq!((frame.last, frame.error), (true, Some(codes::INTERNAL_ERROR)));
        drop(work);
        assert!(tasks.is_empty());
    }
}
