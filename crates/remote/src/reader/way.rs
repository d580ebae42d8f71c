//! By which way the next read of a node goes: over UDP, or over RDMA where that stands. Pure: time comes in.
//!
//! ```text
//!  over UDP ──(the node answers, and the pause is over)──> asked for ──(a link stands)──> over RDMA
//!     ^ ^                                                     │                               │
//!     │ └───────────── refused: the pause doubles ────────────┘                               │
//!     └── a READ that fails: the next read is over UDP; the pause doubles, or is 1 s after 30 s that went well ┘
//! ```
//!
//! While READs go, each [`RENEW_EVERY`] one read goes over UDP beside them: the node counts its readers by these, and its
//! clock, its words and its keys are learned from its answers.
//!
//! Failure case: this host cannot do it at all. Then nothing is tried until the targets are set anew.

use std::time::Duration;

use tidegate_core::time::Timestamp;

use crate::rdma::RENEW_EVERY;

/// Shortest pause before a connection is tried anew.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause. A connection that has stood for as long has proven itself.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What the next read of a node takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextRead {
    /// A datagram.
    pub(super) datagram: bool,
    /// A READ.
    pub(super) one_sided: bool,
    /// A connection is to be asked for.
    pub(super) connect: bool,
}

const DATAGRAM: NextRead = NextRead {
    datagram: true,
    one_sided: false,
    connect: false,
};

/// The way of one node.
#[derive(Debug)]
pub(super) struct Way {
    state: WayState,
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WayState {
    /// RDMA is not wanted, or this host has none.
    Never,
    /// It is tried from then on.
    Waits(Timestamp),
    Asked,
    Stands {
        since: Timestamp,
        /// When a datagram last went out.
        renewed_at: Timestamp,
    },
}

impl Way {
    /// Of a node that is read by RDMA where it can be, or never.
    pub(super) fn new(wanted: bool) -> Self {
        let state = match wanted {
            true => WayState::Waits(Timestamp::ZERO),
            false => WayState::Never,
        };
        Self {
            state,
            pause: PAUSE_MIN,
        }
    }

    /// How the next read goes; `answers`: the node has answered the last one.
    pub(super) fn next(&mut self, now: Timestamp, answers: bool) -> NextRead {
        match &mut self.state {
            WayState::Waits(from) if answers && now >= *from => {
                self.state = WayState::Asked;
                NextRead {
                    connect: true,
                    ..DATAGRAM
                }
            }
            WayState::Never | WayState::Waits(_) | WayState::Asked => DATAGRAM,
            WayState::Stands { renewed_at, .. } => {
                let datagram = now.since(*renewed_at) >= RENEW_EVERY;
                if datagram {
                    *renewed_at = now;
                }
                NextRead {
                    datagram,
                    one_sided: true,
                    connect: false,
                }
            }
        }
    }

    /// A connection stands.
    pub(super) fn stands(&mut self, now: Timestamp) {
        self.state = WayState::Stands {
            since: now,
            renewed_at: now,
        };
    }

    /// There is none.
    pub(super) fn refused(&mut self, now: Timestamp) {
        self.state = WayState::Waits(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// A READ has failed.
    pub(super) fn lost(&mut self, now: Timestamp) {
        if let WayState::Stands { since, .. } = self.state
            && now.since(since) >= PAUSE_MAX
        {
            self.pause = PAUSE_MIN;
        }
        self.refused(now);
    }

    /// This host cannot do it.
    pub(super) fn is_out_of_the_question(&mut self) {
        self.state = WayState::Never;
    }

    /// It is tried again: the targets were set anew.
    pub(super) fn ask_anew(&mut self, now: Timestamp) {
        if self.state == WayState::Never {
            self.state = WayState::Waits(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_SIDED: NextRead = NextRead {
        datagram: false,
        one_sided: true,
        connect: false,
    };

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(100_000 + ms)
    }

    fn connects(way: &mut Way, ms: u64) -> bool {
        way.next(at(ms), true).connect
    }

    #[test]
    fn a_connection_is_asked_for_once_the_node_answers_and_datagrams_go_on_meanwhile() {
        let mut way = Way::new(true);
        assert_eq!(way.next(at(0), false), DATAGRAM);
        assert!(connects(&mut way, 1));
        for ms in 2..1000 {
            assert_eq!(way.next(at(ms), true), DATAGRAM);
        }
        let mut never = Way::new(false);
        assert_eq!(never.next(at(0), true), DATAGRAM);
    }

    #[test]
    fn beside_reads_by_rdma_a_datagram_goes_out_twice_a_second() {
        let mut way = Way::new(true);
        way.stands(at(0));
        let sent: Vec<_> = (0..2100)
            .filter(|ms| {
                let next = way.next(at(*ms), true);
                assert!(next.one_sided && !next.connect);
                next.datagram
            })
            .collect();
        assert_eq!(sent, [500, 1000, 1500, 2000]);
        assert_eq!(way.next(at(2101), false), ONE_SIDED);
    }

    #[test]
    fn the_read_after_a_failure_is_a_datagram_and_pauses_grow() {
        let mut way = Way::new(true);
        let mut now = 0;
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            assert!(connects(&mut way, now));
            way.stands(at(now));
            way.lost(at(now + 10));
            assert_eq!(way.next(at(now + 10), true), DATAGRAM);
            assert_eq!(way.next(at(now + 9 + pause * 1000), true), DATAGRAM);
            now += 10 + pause * 1000;
        }
        // One that has stood for long begins with the shortest pause.
        assert!(connects(&mut way, now));
        way.stands(at(now));
        way.lost(at(now + 30_000));
        assert!(!connects(&mut way, now + 30_999));
        assert!(connects(&mut way, now + 31_000));
        way.refused(at(now + 31_000));
        assert!(!connects(&mut way, now + 32_999));
        assert!(connects(&mut way, now + 33_000));
    }

    #[test]
    fn what_this_host_cannot_do_is_tried_when_targets_are_set_anew() {
        let mut way = Way::new(true);
        assert!(connects(&mut way, 0));
        way.is_out_of_the_question();
        assert!(!connects(&mut way, 1_000_000));
        way.ask_anew(at(1_000_000));
        assert!(connects(&mut way, 1_000_000));
        let mut stands = Way::new(true);
        stands.stands(at(0));
        stands.ask_anew(at(1));
        assert_eq!(stands.next(at(1), true), ONE_SIDED);
    }
}
