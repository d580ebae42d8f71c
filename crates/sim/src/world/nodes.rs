//! What happens at nodes: requests run, wait for IO, are refused; antagonists come and go.

use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::{START, World};
use crate::node::Condition;
use crate::queue::Event;
use crate::requests::{TryOutcome, TryStage};

/// A front-end waits so long for the answer to a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

impl World<'_> {
    pub(super) fn schedule_first_antagonist(&mut self, node: u32) {
        let Some(antagonist) = self.scenario.nodes[node as usize].antagonist else {
            return;
        };
        // On from the start with the chance that it is on at any time.
        let prng = &mut self.nodes[node as usize].prng;
        let on = prng.unit() < antagonist.duty;
        let wait = if on {
            Duration::ZERO
        } else {
            antagonist.draw_off(prng)
        };
        self.queue
            .schedule(START + wait, Event::Antagonist { node });
    }

    pub(super) fn on_antagonist(&mut self, node: u32) {
        let Some(antagonist) = self.scenario.nodes[node as usize].antagonist else {
            return;
        };
        let here = &mut self.nodes[node as usize];
        let stretch = if here.processor.antagonists() == 0 {
            here.processor.set_antagonists(self.now, antagonist.tasks);
            antagonist.draw_on(&mut here.prng)
        } else {
            here.processor.set_antagonists(self.now, 0);
            antagonist.draw_off(&mut here.prng)
        };
        self.settle(node);
        self.queue
            .schedule(self.now + stretch, Event::Antagonist { node });
    }

    pub(super) fn on_delivered(&mut self, request: u32) {
        let entry = self.requests.get(request);
        let here = &mut self.nodes[entry.node as usize];
        here.expected -= 1;
        entry.reached_at = self.now;
        let node = entry.node;
        if entry.abandoned {
            self.requests.remove(request);
        } else {
            match here.condition {
                Condition::Well | Condition::Slow { .. } => self.accept(request),
                Condition::Dead => self.answer(request, TryOutcome::Unreachable),
                Condition::Failing => self.answer(request, TryOutcome::Failed),
                Condition::Breaking => self.answer(request, TryOutcome::Broken),
                Condition::Paused => {
                    entry.stage = TryStage::Held;
                    here.held.push(request);
                }
            }
        }
        self.tell_oracle(node);
    }

    /// A request is at a node that works.
    pub(super) fn accept(&mut self, request: u32) {
        let node = self.requests.get(request).node;
        if self.is_out_of_files(node) {
            self.measures.out_of_files += 1;
            self.answer(request, TryOutcome::Unreachable);
            return;
        }
        let entry = self.requests.get(request);
        let here = &mut self.nodes[node as usize];
        let limit = self.scenario.nodes[node as usize].limit;
        if limit.is_some_and(|limit| here.processor.in_flight() >= limit) {
            self.answer(request, TryOutcome::Refused);
            return;
        }
        if !here.workers.begin(request) {
            entry.stage = TryStage::Unaccepted;
            here.processor
                .set_unaccepted(self.now, here.workers.queued());
            self.settle(node);
            return;
        }
        self.begin(request);
    }

    /// Whether a node has no file descriptor for another connection.
    fn is_out_of_files(&self, node: u32) -> bool {
        let here = &self.nodes[node as usize];
        let in_flight = here.processor.in_flight();
        let since = self.now.since(START);
        here.files
            .as_ref()
            .is_some_and(|it| it.is_full(since, in_flight))
    }

    /// A worker takes a request on.
    fn begin(&mut self, request: u32) {
        let entry = self.requests.get(request);
        let node = entry.node;
        let here = &mut self.nodes[node as usize];
        let model = &self.scenario.nodes[node as usize];
        let demand = here.demand(model, entry.wanted.demand, self.now);
        if entry.wanted.io.is_zero() {
            entry.stage = TryStage::Last;
            here.processor.arrive(self.now, request.into(), demand);
        } else {
            entry.stage = TryStage::First;
            here.processor
                .arrive_for_io(self.now, request.into(), demand / 2);
        }
        self.settle(node);
    }

    /// Takes on what has ended at the node, and comes back when more will have.
    pub(super) fn settle(&mut self, node: u32) {
        let here = &mut self.nodes[node as usize];
        here.processor.advance(self.now);
        while let Some(done) = self.nodes[node as usize].processor.poll_completed() {
            let request = done.task as u32;
            if self.requests.get(request).stage == TryStage::First {
                self.want_io(request);
            } else {
                let stay = self.now.since(self.requests.get(request).reached_at);
                self.nodes[node as usize].served(stay, self.now);
                self.answer(request, TryOutcome::Served);
                self.next_accepted(node);
            }
        }
        let here = &mut self.nodes[node as usize];
        self.due.set(node, here.processor.next_completion());
        here.note();
        self.tell_oracle(node);
        self.tell_mates(node);
    }

    /// What runs here takes CPU time from the other nodes of the same host: each has the host's CPUs,
    /// and the others' tasks beside its own.
    fn tell_mates(&mut self, node: u32) {
        let host = self.scenario.nodes[node as usize].host;
        if host.is_none() {
            return;
        }
        let nodes = 0..self.nodes.len() as u32;
        let on_host = |other: &u32| self.scenario.nodes[*other as usize].host == host;
        let mates: Vec<_> = nodes.filter(on_host).collect();
        for mate in &mates {
            let running = |other: &u32| self.nodes[*other as usize].processor.running();
            let others = mates
                .iter()
                .filter(|other| *other != mate)
                .map(running)
                .sum();
            let here = &mut self.nodes[*mate as usize].processor;
            if here.antagonists() != others {
                here.set_antagonists(self.now, others);
                self.settle(*mate);
            }
        }
    }

    /// A worker is free: for what waited longest to be accepted.
    fn next_accepted(&mut self, node: u32) {
        let here = &mut self.nodes[node as usize];
        let next = here.workers.end();
        here.processor
            .set_unaccepted(self.now, here.workers.queued());
        if let Some(next) = next {
            self.begin(next);
        }
    }

    fn want_io(&mut self, request: u32) {
        let entry = self.requests.get(request);
        if self.nodes[entry.node as usize].io.begin(request) {
            self.begin_io(request);
        } else {
            entry.stage = TryStage::Queued;
        }
    }

    fn begin_io(&mut self, request: u32) {
        let entry = self.requests.get(request);
        entry.stage = TryStage::Io;
        let version = entry.version;
        let slowness = self.scenario.nodes[entry.node as usize].io_slowness;
        let at = self.now + entry.wanted.io.mul_f64(slowness.max(0.0));
        self.queue.schedule(at, Event::IoDone { request, version });
    }

    pub(super) fn on_io_done(&mut self, request: u32, version: u32) {
        let Some(entry) = self.requests.same(request, version) else {
            return;
        };
        if entry.stage != TryStage::Io {
            return;
        }
        let node = entry.node;
        entry.stage = TryStage::Last;
        let rest = entry.wanted.demand - entry.wanted.demand / 2;
        let here = &mut self.nodes[node as usize];
        here.processor.go_on(self.now, request.into(), rest);
        self.next_io(node);
        self.settle(node);
    }

    fn next_io(&mut self, node: u32) {
        if let Some(next) = self.nodes[node as usize].io.end() {
            self.begin_io(next);
        }
    }

    pub(super) fn on_cancelled(&mut self, request: u32, version: u32) {
        let Some(entry) = self.requests.same(request, version) else {
            return;
        };
        let (node, stage) = (entry.node, entry.stage);
        let here = &mut self.nodes[node as usize];
        match stage {
            // Whatever is under way will find out by itself.
            TryStage::Sent | TryStage::Back => return,
            TryStage::Held => here.held.retain(|held| *held != request),
            TryStage::Unaccepted => {
                here.workers.leave(request);
                here.processor
                    .set_unaccepted(self.now, here.workers.queued());
            }
            TryStage::First | TryStage::Last => {
                here.processor.cancel(self.now, request.into());
                self.next_accepted(node);
            }
            TryStage::Queued => {
                here.io.leave(request);
                here.processor.cancel_waiting(self.now);
                self.next_accepted(node);
            }
            TryStage::Io => {
                here.processor.cancel_waiting(self.now);
                self.next_io(node);
                self.next_accepted(node);
            }
        }
        self.requests.remove(request);
        self.settle(node);
    }

    /// An answer goes back.
    pub(super) fn answer(&mut self, request: u32, ended: TryOutcome) {
        let at = self.after_delay();
        let entry = self.requests.get(request);
        entry.stage = TryStage::Back;
        entry.ended = ended;
        let node = entry.node as usize;
        let tells = !matches!(ended, TryOutcome::Lost | TryOutcome::Unreachable);
        if self.scenario.nodes[node].reports && tells {
            let here = &self.nodes[node];
            let latency = match here.latency {
                0.0 => f32::NAN,
                seconds => seconds as f32,
            };
            entry.report = Some((here.processor.in_flight() as f32, latency));
        }
        self.queue.schedule(at, Event::Answered { request });
    }

    /// Whether a probe that leaves a front-end now will be answered; when it is known.
    pub(super) fn probe(&mut self, node: u32) -> (bool, Timestamp) {
        let condition = self.nodes[node as usize].condition;
        let round_trip = self.scenario.network.delay * 2;
        if self.is_out_of_files(node) && condition != Condition::Paused {
            return (false, self.now + round_trip);
        }
        match condition {
            Condition::Well | Condition::Failing | Condition::Breaking | Condition::Slow { .. } => {
                (true, self.now + round_trip)
            }
            Condition::Dead => (false, self.now + round_trip),
            Condition::Paused => (false, self.now + PROBE_TIMEOUT),
        }
    }
}
