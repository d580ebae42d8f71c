//! When the socket is closed, and how far.
//!
//! A closed socket lets in what comes from front-ends that have proven themselves, and little else. An attacker that
//! sees their datagrams can forge more in their names. While that is more than can be looked at, the socket lets in
//! half of what comes in the names that are imitated, then a quarter, and so on. A part of these front-ends' own
//! requests then gets in too, and is answered at once, instead of all of them waiting in a full buffer.

use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::rate::Window;

/// Parts, of what may be looked at, that may be in vain: beyond the first number an open socket is closed, beyond the
/// second a closed one is closed further.
const OPEN_PARTS: u32 = 8;
const CLOSED_PARTS: u32 = 18;
const OF_PARTS: u32 = 20;
/// Over this time that is counted: requests come in bursts, of many front-ends or of one that stood still.
const VAIN_WINDOW_MS: u64 = 100;
/// A socket that has just been opened is closed again so much sooner.
const SOONER: u32 = 10;
/// How long the socket is closed. Then it is open, and closed again at once if the flood goes on.
const CLOSED_FOR: Duration = Duration::from_secs(1);
/// After this time what came into the buffer before a change has been looked at.
const SETTLED_AFTER: Duration = Duration::from_millis(100);
/// Of what comes in the name of a front-end that is imitated, at least 1/64 is let in: as of what is not proven.
const HALVINGS_MAX: u32 = 6;

/// What a socket does with what is not from proven sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Gate {
    /// The same as before.
    Stay,
    /// It lets little of it in, and what comes in the name of an imitated source halved so often.
    Close {
        /// At most [`HALVINGS_MAX`].
        halvings: u32,
    },
    /// It lets all of it in.
    Open,
}

/// Closes the socket for a while when too much of what comes is in vain.
pub(in super::super) struct Siege {
    open_limit: u32,
    closed_limit: u32,
    vain: Window<VAIN_WINDOW_MS>,
    closed_at: Option<Timestamp>,
    /// Of the last time that it was closed.
    halvings: u32,
    changed_at: Timestamp,
}

impl Siege {
    /// For so many datagrams a second in all.
    pub(in super::super) fn new(per_second: u32) -> Self {
        let windows = (1000 / VAIN_WINDOW_MS) as u32;
        let part = |parts| per_second / windows / OF_PARTS * parts;
        Self {
            open_limit: part(OPEN_PARTS),
            closed_limit: part(CLOSED_PARTS),
            vain: Window::default(),
            closed_at: None,
            halvings: 0,
            changed_at: Timestamp::ZERO,
        }
    }

    /// Notes datagrams that were thrown away, or answered in vain.
    pub(in super::super) fn note(&mut self, vain: u32, now: Timestamp) -> Gate {
        let settled = now.since(self.changed_at) >= SETTLED_AFTER;
        if let Some(closed_at) = self.closed_at {
            if now.since(closed_at) >= CLOSED_FOR {
                self.closed_at = None;
                self.change(now);
                return Gate::Open;
            }
            if !settled || self.halvings == HALVINGS_MAX {
                return Gate::Stay;
            }
        }
        let limit = match self.closed_at {
            Some(_) => self.closed_limit,
            None if settled => self.open_limit,
            None => self.open_limit / SOONER,
        };
        if self.vain.take(vain, limit, now) {
            return Gate::Stay;
        }
        self.halvings = match self.closed_at {
            Some(_) => self.halvings + 1,
            // The flood of before, which may have become smaller.
            None if !settled => self.halvings.saturating_sub(1),
            None => 0,
        };
        self.closed_at.get_or_insert(now);
        self.change(now);
        Gate::Close {
            halvings: self.halvings,
        }
    }

    fn change(&mut self, now: Timestamp) {
        self.changed_at = now;
        self.vain = Window::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    const fn close(halvings: u32) -> Gate {
        Gate::Close { halvings }
    }

    #[test]
    fn a_socket_is_closed_while_too_much_is_in_vain_and_open_in_between() {
        let mut siege = Siege::new(200_000);
        // 8000 of the 20 000 in 100 ms.
        for window in 0..10 {
            assert_eq!(siege.note(8000, at(1000 + 100 * window)), Gate::Stay);
        }
        assert_eq!(siege.note(1, at(1999)), close(0));
        assert_eq!(siege.note(18_000, at(2500)), Gate::Stay);
        assert_eq!(siege.note(0, at(2998)), Gate::Stay);
        assert_eq!(siege.note(1_000_000, at(2999)), Gate::Open);
        // It goes on.
        assert_eq!(siege.note(800, at(3000)), Gate::Stay);
        assert_eq!(siege.note(1, at(3001)), close(0));
        assert_eq!(siege.note(0, at(4001)), Gate::Open);
        assert_eq!(siege.note(800, at(4100)), Gate::Stay);
        assert_eq!(siege.note(7200, at(4101)), Gate::Stay);
        assert_eq!(siege.note(1, at(4102)), close(0));
    }

    #[test]
    fn bursts_close_no_socket_while_few_come_in_all() {
        // 20 000 to 80 000 a second.
        for (burst, every) in [(2000, 100), (8000, 100), (4000, 200)] {
            let mut siege = Siege::new(200_000);
            for number in 0..100 {
                let now = at(1_000_000 + number * every);
                assert_eq!(siege.note(burst, now), Gate::Stay, "{burst}");
            }
        }
    }

    #[test]
    fn less_is_let_in_of_imitated_sources_while_it_is_more_than_can_be_looked_at() {
        let mut siege = Siege::new(200_000);
        // 400 000 a second, all in one name; what is looked at is limited.
        let arrives = |halvings: u32| (40_000_u32 >> halvings).min(20_000);
        assert_eq!(siege.note(arrives(0), at(1000)), close(0));
        // What was in the buffer before.
        assert_eq!(siege.note(2000, at(1050)), Gate::Stay);
        assert_eq!(siege.note(arrives(0), at(1100)), close(1));
        assert_eq!(siege.note(arrives(1), at(1200)), close(2));
        for ms in (1300..2000).step_by(100) {
            assert_eq!(siege.note(arrives(2), at(ms)), Gate::Stay);
        }
        assert_eq!(siege.note(0, at(2000)), Gate::Open);
        // The same flood is met where it was left, less one.
        assert_eq!(siege.note(arrives(0), at(2040)), close(1));
        assert_eq!(siege.note(arrives(1), at(2140)), close(2));
        assert_eq!(siege.note(0, at(3040)), Gate::Open);
        // Another one from the start, and never beyond the most.
        let mut closed = 0;
        for ms in (4000..5000).step_by(10) {
            if let Gate::Close { halvings } = siege.note(20_000, at(ms)) {
                assert_eq!(halvings, closed);
                closed += 1;
            }
        }
        assert_eq!(closed, HALVINGS_MAX + 1);
    }
}
