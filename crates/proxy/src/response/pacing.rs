//! Response bodies of a class whose bandwidth is shared: each chunk goes piece by piece, when the
//! throttle says so.
//!
//! While a piece waits the node is not asked for more, so what it sends stays in the connection's
//! buffers, and neither the node nor the client is taken for one that stands still.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tidegate_core::throttle::ThrottleId;

use crate::base::WorkerBase;
use crate::gate::throttle::Throttling;

/// What is left of a chunk.
pub(crate) struct Pacing {
    throttle: ThrottleId,
    left: Bytes,
    next: Option<Next>,
}

/// A piece that waits.
struct Next {
    bytes: usize,
    version: u64,
    wait: Pin<Box<dyn Future<Output = ()>>>,
}

impl Pacing {
    pub(crate) fn new(throttle: ThrottleId, chunk: Bytes) -> Self {
        Self {
            throttle,
            left: chunk,
            next: None,
        }
    }

    /// Whether all of the chunk has gone.
    pub(crate) fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// The next piece, when it may go.
    pub(crate) fn poll(
        &mut self,
        base: &WorkerBase,
        throttling: &Arc<Throttling>,
        context: &mut Context<'_>,
    ) -> Poll<Bytes> {
        loop {
            if let Some(next) = &mut self.next {
                ready!(next.wait.as_mut().poll(context));
                let (bytes, version) = (next.bytes, next.version);
                self.next = None;
                // By another order it may go at another time.
                if throttling.is_current(self.throttle, version) {
                    return Poll::Ready(self.left.split_to(bytes));
                }
            }
            let now = base.now();
            let all = self.left.len();
            let Some((piece, version)) = throttling.pace(self.throttle, all as u64, now) else {
                return Poll::Ready(std::mem::take(&mut self.left));
            };
            let bytes = all.min(piece.bytes as usize);
            if piece.at <= now {
                return Poll::Ready(self.left.split_to(bytes));
            }
            let (throttling, throttle) = (Arc::clone(throttling), self.throttle);
            let wait = Box::pin(async move {
                let changes = throttling.outdated(throttle, version);
                // A product timer: it is the pace.
                tokio::time::timeout(piece.at.since(now), changes)
                    .await
                    .ok();
            });
            self.next = Some(Next {
                bytes,
                version,
                wait,
            });
        }
    }
}
