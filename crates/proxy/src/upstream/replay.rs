//! A request body that can be sent again: what was read of it is held, up to a limit, until its node has begun.
//!
//! ```text
//! a try reads   what is held, and then what still comes from the client; each byte that comes is held
//! held          at most `replay_body` bytes a request, and HELD_MAX of all requests of a worker
//! beyond either nothing of that body is held any more: the request is sent once
//! an answer     has begun: nothing is held any more
//! ```
//!
//! Inputs: the body's frames, the limits. Each try has a number. The newest that reads has the body, and a connection that
//! reads on for an older one gets an error: two never share what comes.
//!
//! Failure case: a body beyond the limit whose stream the node refuses, or leaves behind with its connection; that request fails as before.
//! A node that has not begun grants no more than its first window (65,535 bytes, RFC 9113 §6.9.2), so longer bodies are
//! within a limit that is larger than that, as far as they are read.
//!
//! Source: RFC 9113 §8.7 (what was not processed may be sent again, whatever its method).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use super::body::{BodyError, RequestStream};
use crate::connection::Upload;
use crate::record::reason::Reason;
use crate::record::stats::WorkerStats;

/// Bytes of bodies that a worker holds at most.
const HELD_MAX: u64 = 32 << 20;

/// One try's part in a body that can be sent again.
pub(crate) struct HeldBody {
    shared: Rc<RefCell<Shared>>,
    /// The try that reads.
    number: u32,
    /// So many of the held bytes it has.
    at: usize,
    /// It has the end, or the trailers.
    is_done: bool,
}

/// What all tries have of it.
struct Shared {
    stream: Box<RequestStream>,
    held: Held,
    /// The newest try that has read.
    reader: u32,
}

/// What was read.
struct Held {
    stats: Arc<WorkerStats>,
    bytes: Vec<u8>,
    trailers: Option<HeaderMap>,
    /// Nothing comes behind it.
    is_whole: bool,
    /// More than may be held has come, or the node has begun: it is not sent again.
    is_lost: bool,
    most: usize,
}

impl Held {
    /// This has come.
    fn add(&mut self, frame: &Frame<Bytes>) {
        if self.is_lost {
            return;
        }
        if let Some(data) = frame.data_ref() {
            let all = self.stats.held_bytes.get() + data.len() as u64;
            if self.bytes.len() + data.len() > self.most || all > HELD_MAX {
                self.is_lost = true;
                return self.free();
            }
            self.stats.held_bytes.add(data.len() as u64);
            self.bytes.extend_from_slice(data);
        } else if let Some(trailers) = frame.trailers_ref() {
            self.trailers = Some(trailers.clone());
            self.is_whole = true;
        }
    }

    /// What is held is not needed any more.
    fn free(&mut self) {
        self.stats.held_bytes.take(self.bytes.len() as u64);
        self.bytes = Vec::new();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.free();
    }
}

impl HeldBody {
    /// Holds so many bytes of this body.
    pub(crate) fn new(stream: Box<RequestStream>, most: usize) -> Self {
        let held = Held {
            stats: Arc::clone(stream.connection().base.stats()),
            bytes: Vec::new(),
            trailers: None,
            is_whole: false,
            is_lost: false,
            most,
        };
        let shared = Shared {
            stream,
            held,
            reader: 0,
        };
        Self {
            shared: Rc::new(RefCell::new(shared)),
            number: 0,
            at: 0,
            is_done: false,
        }
    }

    /// The same body for the next try, from its beginning; none if that is not held any more. This one goes on until the other reads.
    pub(crate) fn again(&self) -> Option<Self> {
        (!self.shared.borrow().held.is_lost).then(|| Self {
            shared: Rc::clone(&self.shared),
            number: self.number + 1,
            at: 0,
            is_done: false,
        })
    }

    /// The node has begun: it will not be sent again. What the present try has not read yet it still gets.
    pub(super) fn forget(self) {
        self.shared.borrow_mut().held.is_lost = true;
    }

    /// It is sent from its beginning.
    pub(crate) fn begin(&self) {
        let mut shared = self.shared.borrow_mut();
        shared.reader = shared.reader.max(self.number);
        if !shared.is_over(self.at) {
            let connection = shared.stream.connection();
            connection.upload_waits.set(false);
            connection.upload.set(Upload::Active);
        }
    }

    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let shared = &mut *self.shared.borrow_mut();
        if self.number < shared.reader {
            return Poll::Ready(Some(Err(BodyError(Reason::ClientGone))));
        }
        shared.reader = self.number;
        if self.is_done {
            return Poll::Ready(None);
        }
        let held = &mut shared.held;
        if let Some(bytes) = held.bytes.get(self.at..).filter(|it| !it.is_empty()) {
            ready!(shared.stream.poll_again(context))?;
            let data = Bytes::copy_from_slice(bytes);
            self.at = held.bytes.len();
            if shared.is_over(self.at) {
                shared.stream.done();
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if held.is_lost {
            held.free();
        }
        let polled = match held.is_whole {
            true => {
                ready!(shared.stream.poll_again(context))?;
                shared.stream.done();
                held.trailers.clone().map(|it| Ok(Frame::trailers(it)))
            }
            false => {
                let polled = ready!(shared.stream.poll(context));
                match &polled {
                    Some(Ok(frame)) => held.add(frame),
                    Some(Err(_)) => held.is_lost = true,
                    None => held.is_whole = true,
                }
                polled
            }
        };
        self.at = held.bytes.len();
        let is_data =
            |frame: &Result<Frame<Bytes>, BodyError>| frame.as_ref().is_ok_and(Frame::is_data);
        self.is_done = !polled.as_ref().is_some_and(is_data);
        Poll::Ready(polled)
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.is_done || self.shared.borrow().is_over(self.at)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let shared = self.shared.borrow();
        let left = shared.held.bytes.len().saturating_sub(self.at) as u64;
        let coming = match shared.held.is_whole {
            true => SizeHint::with_exact(0),
            false => shared.stream.size_hint(),
        };
        let mut hint = SizeHint::new();
        hint.set_lower(left + coming.lower());
        if let Some(upper) = coming.upper() {
            hint.set_upper(left + upper);
        }
        hint
    }
}

impl Shared {
    /// Whether a try that has so many of the held bytes has all.
    fn is_over(&self, at: usize) -> bool {
        let held = &self.held;
        let is_whole = held.is_whole || self.stream.is_end_stream();
        at >= held.bytes.len() && held.trailers.is_none() && is_whole
    }
}
