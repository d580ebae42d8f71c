//! The account of a client's connection of HTTP/2: how much of what goes out its socket has not taken yet, and how much of
//! what comes in is neither a request nor a body.
//!
//! | bound | formula | more |
//! |---|---|---|
//! | what is unsent | data that streams have handed over − bytes that the socket took, never below zero; at most [`UNSENT_MAX`] | streams wait |
//! | what comes in | bytes read ≤ [`OVERHEAD_MAX`] + longest head · requests + bodies + data sent / 16 | the connection ends |
//! | requests that are given up | those that the client resets before their answer ≤ [`GIVEN_UP_MAX`]; each answer takes one back, and so does each tenth of a second | the connection ends |
//!
//! The library that reads the frames holds what it owes a client within limits of its own, but each stream may have its own
//! buffer, and frames that ask for nothing (`SETTINGS`, `PING`, `PRIORITY`, `WINDOW_UPDATE`) may come for ever; so may
//! requests that are reset as soon as they are made (CVE-2023-44487). An honest client pays for its windows with
//! 13 bytes for each frame that it reads, and is far within the second bound.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// Bytes that a connection's streams may have handed over before its socket has taken them.
pub(crate) const UNSENT_MAX: u64 = 256 << 10;
/// Bytes of frames that are neither requests nor bodies; more than the windows, which are counted once they are taken.
pub(crate) const OVERHEAD_MAX: u64 = 1 << 20;
/// Requests that a client may give up before their answer begins, beyond those that it had answered.
pub(crate) const GIVEN_UP_MAX: u64 = 128;
/// Ticks that take one of them back.
const FORGIVING_TICKS: u64 = 5;
/// Data that are sent for each byte of windows.
const SENT_PER_BYTE: u64 = 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FrameAccount {
    unsent: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
    read: Cell<u64>,
    requests: Cell<u64>,
    bodies: Cell<u64>,
    sent: Cell<u64>,
    given_up: Cell<u64>,
    /// Up to which tick time has taken given up requests back.
    forgiven_at: Cell<u64>,
}

impl FrameAccount {
    /// So many bytes came in.
    pub(crate) fn on_read(&self, bytes: u64) {
        self.read.set(self.read.get().saturating_add(bytes));
    }

    /// The socket took so many bytes.
    pub(crate) fn on_written(&self, bytes: u64) {
        let before = self.unsent.get();
        let unsent = before.saturating_sub(bytes);
        self.unsent.set(unsent);
        if before >= UNSENT_MAX && unsent < UNSENT_MAX {
            let waiting = self.waiting.take();
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// A stream hands over so many bytes of an answer.
    pub(crate) fn on_data(&self, bytes: u64) {
        self.unsent.set(self.unsent.get().saturating_add(bytes));
        self.sent.set(self.sent.get().saturating_add(bytes));
    }

    /// So many bytes of a request's body went on.
    pub(crate) fn on_body(&self, bytes: u64) {
        self.bodies.set(self.bodies.get().saturating_add(bytes));
    }

    /// A request came.
    pub(crate) fn on_request(&self) {
        self.requests.set(self.requests.get() + 1);
    }

    /// An answer has begun.
    pub(crate) fn on_answer(&self) {
        self.given_up.set(self.given_up.get().saturating_sub(1));
    }

    /// A request was reset at this tick, before its answer began.
    pub(crate) fn on_given_up(&self, tick: u64) {
        let forgiven = tick.saturating_sub(self.forgiven_at.get()) / FORGIVING_TICKS;
        let at = self.forgiven_at.get() + forgiven * FORGIVING_TICKS;
        self.forgiven_at.set(at);
        self.given_up
            .set(self.given_up.get().saturating_sub(forgiven) + 1);
    }

    /// Waits until a stream may hand more over.
    pub(crate) fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        if self.unsent.get() < UNSENT_MAX {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|it| it.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Whether the client asks for more than it may, where a head may have so many bytes.
    pub(crate) fn is_excessive(&self, head_bytes: usize) -> bool {
        let heads = self.requests.get().saturating_mul(head_bytes as u64);
        let allowed = OVERHEAD_MAX
            .saturating_add(heads)
            .saturating_add(self.bodies.get())
            .saturating_add(self.sent.get() / SENT_PER_BYTE);
        self.read.get() > allowed || self.given_up.get() > GIVEN_UP_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: usize = 100;

    #[test]
    fn streams_wait_while_too_much_is_unsent() {
        let account = FrameAccount::default();
        let context = Context::from_waker(Waker::noop());
        account.on_data(UNSENT_MAX - 1);
        assert!(account.poll_room(&context).is_ready());
        account.on_data(1);
        assert!(account.poll_room(&context).is_pending());
        assert!(!account.waiting.borrow().is_empty());
        account.on_written(1);
        assert!(account.poll_room(&context).is_ready());
        assert!(account.waiting.borrow().is_empty());
        // Heads and frames of our own are written, too: they are never credit.
        account.on_written(u64::MAX);
        account.on_data(UNSENT_MAX);
        assert!(account.poll_room(&context).is_pending());
    }

    #[test]
    fn what_asks_for_nothing_has_an_end() {
        let account = FrameAccount::default();
        account.on_read(OVERHEAD_MAX);
        assert!(!account.is_excessive(HEAD));
        account.on_read(1);
        assert!(account.is_excessive(HEAD));
        // Each of these makes it honest again, by as much as it says.
        for (on, bytes) in [
            (FrameAccount::on_request as fn(&FrameAccount), HEAD as u64),
            (|it: &FrameAccount| it.on_body(7), 7),
            (|it: &FrameAccount| it.on_data(32), 2),
        ] {
            on(&account);
            assert!(!account.is_excessive(HEAD));
            account.on_read(bytes - 1);
            assert!(!account.is_excessive(HEAD));
            account.on_read(1);
            assert!(account.is_excessive(HEAD));
        }
    }

    #[test]
    fn requests_may_be_given_up_if_others_are_answered_or_time_passes() {
        let account = FrameAccount::default();
        for _ in 0..10 * GIVEN_UP_MAX {
            account.on_given_up(0);
            account.on_answer();
        }
        for request in 0..10 * GIVEN_UP_MAX {
            account.on_given_up(request * FORGIVING_TICKS);
        }
        let tick = 10 * GIVEN_UP_MAX * FORGIVING_TICKS;
        let given_up = account.given_up.get();
        for _ in given_up..=GIVEN_UP_MAX {
            assert!(!account.is_excessive(HEAD));
            account.on_given_up(tick - 1);
        }
        assert!(account.is_excessive(HEAD));
        account.on_answer();
        assert!(!account.is_excessive(HEAD));
    }
}
