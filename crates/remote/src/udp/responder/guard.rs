//! What the thread does about floods: carries out what `flood` decides.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::server::BATCH;
use super::{ResponderCounters, ResponderOptions, count};
use crate::clock;
use crate::realtime;
use crate::udp::flood::filter::{self, Lots};
use crate::udp::flood::{Gate, Pace, PriorityChange, RateLimit, RealtimeBudget, Siege, Sources};
use crate::udp::wire::Claim;
use crate::udp::{Key, socket};

pub(super) struct Guard {
    socket: Arc<UdpSocket>,
    counters: Arc<ResponderCounters>,
    keys: Vec<Key>,
    limit: RateLimit,
    pace: Pace,
    sources: Sources,
    budget: RealtimeBudget,
    siege: Siege,
    /// Whether the thread was given real-time priority.
    pub(super) at_realtime: bool,
    /// Requests of this batch that are new, by the node's clock of now.
    fresh: u32,
}

impl Guard {
    pub(super) fn new(
        options: &ResponderOptions,
        socket: Arc<UdpSocket>,
        counters: Arc<ResponderCounters>,
    ) -> Self {
        Self {
            socket,
            counters,
            keys: options.keys.clone(),
            limit: RateLimit::new(options.rate_max),
            pace: Pace::new(options.rate_max),
            sources: Sources::new(options.rate_max),
            budget: RealtimeBudget::new(options.realtime_share, Duration::ZERO),
            siege: Siege::new(options.rate_max),
            at_realtime: false,
            fresh: 0,
        }
    }

    /// Whether a request that says this of itself is worth its MAC.
    pub(super) fn admits(&mut self, claim: Claim, now: Timestamp) -> bool {
        self.sources.admits(claim, now)
    }

    /// It was not made with a key.
    pub(super) fn note_forged(&mut self, claim: Claim, now: Timestamp) {
        self.sources.note_forged(claim, now);
    }

    /// It was made with a key.
    pub(super) fn note_true(&mut self, claim: Claim, now: Timestamp) {
        self.fresh += u32::from(self.sources.prove(claim, now));
    }

    /// Sees to priority and socket after so many datagrams; says until when to rest, if they are too many, or so many
    /// are in vain that more shall come together.
    pub(super) fn after_batch(&mut self, received: u32, now: Timestamp) -> Option<Timestamp> {
        let in_vain = received.saturating_sub(std::mem::take(&mut self.fresh));
        self.keep_to_budget(in_vain, received, now);
        self.keep_out(in_vain, now);
        let pause = self.pace.note(in_vain, now);
        let until = self.limit.note(received, now);
        if until.is_some() {
            count(&self.counters.limited);
        }
        // A full batch: more are there.
        until.or(pause.filter(|_| (received as usize) < BATCH))
    }

    /// Goes to normal priority when the share is used up, and back when there is more.
    fn keep_to_budget(&mut self, in_vain: u32, received: u32, now: Timestamp) {
        if !self.at_realtime {
            return;
        }
        let cpu = clock::thread_time();
        let done = match self.budget.note(cpu, in_vain, received, now) {
            PriorityChange::Stay => return,
            PriorityChange::Lower => {
                count(&self.counters.lowered);
                realtime::try_normal().is_ok()
            }
            PriorityChange::Raise => realtime::try_fifo(realtime::PRIORITY).is_ok(),
        };
        if !done {
            count(&self.counters.faults);
        }
    }

    /// Has the kernel keep out what would be in vain, while that is much.
    fn keep_out(&mut self, in_vain: u32, now: Timestamp) {
        let done = match self.siege.note(in_vain, now) {
            Gate::Stay => return,
            Gate::Close { halvings } => {
                count(&self.counters.closed);
                let listed = self.sources.list(now);
                let program = filter::program(&self.keys, listed, Lots::halved(halvings));
                socket::filter(&self.socket, &program).is_ok()
            }
            Gate::Open => socket::unfilter(&self.socket).is_ok(),
        };
        if !done {
            count(&self.counters.faults);
        }
    }
}
