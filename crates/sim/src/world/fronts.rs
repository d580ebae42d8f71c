//! What happens at front-ends: requests arrive, are sent, answered, tried again.

use std::time::Duration;

use tidegate_core::admission::{AdmissionKind, Kind, Priority};
use tidegate_core::load::RestKind;
use tidegate_core::picker::{Arrival, Decision, LONG_ANSWER, Outcome, Retried, Ticket, WaitId};
use tidegate_core::policy::Probe;
use tidegate_core::prng::Prng;
use tidegate_core::time::{Timestamp, nanos};
use tidegate_core::topology::{NodeId, SiteId};

use super::{Choosers, START, World};
use crate::checks::Violation;
use crate::front_end::FrontEnd;
use crate::model::Arrivals;
use crate::queue::Event;
use crate::requests::{TryOutcome, Wanted};
use crate::scenario::HeldBy;

/// What is asked for by requests that are held open, where that tells them from the others.
const HELD_PATH: &str = "/held";

/// Where a request goes.
enum Chosen {
    Node(u32, Option<Ticket>),
    Nowhere,
    /// Until there is room.
    Later,
}

impl World<'_> {
    /// A client of a closed loop has its answer: when it asks for the next one. Others do not wait.
    pub(super) fn ask_again(&mut self, site: u32) {
        let Arrivals::Closed { think, .. } = self.scenario.sites[site as usize].arrivals else {
            return;
        };
        let prng = &mut self.arrivals[site as usize].prng;
        let thinks = match think.is_zero() {
            true => Duration::ZERO,
            false => Duration::from_secs_f64(prng.exponential(think.as_secs_f64())),
        };
        self.queue
            .schedule(self.now + thinks, Event::Arrival { site });
    }

    pub(super) fn schedule_arrival(&mut self, site: u32) {
        if let Arrivals::Closed { .. } = self.scenario.sites[site as usize].arrivals {
            return;
        }
        let arrivals = &mut self.arrivals[site as usize];
        let at = arrivals.times.draw(&mut arrivals.prng);
        self.queue.schedule(at, Event::Arrival { site });
    }

    pub(super) fn on_arrival(&mut self, site: u32) -> Result<(), Violation> {
        let offered = self.measures.offered();
        if offered == u64::from(self.scenario.requests) {
            return Ok(());
        }
        let model = &self.scenario.sites[site as usize];
        let prng = &mut self.arrivals[site as usize].prng;
        let front_end = prng.below(self.scenario.front_ends.count as usize) as u32;
        let demand = model.demand.draw(model.mean_demand.as_secs_f64(), prng);
        let mut io = model
            .io
            .map_or(0.0, |io| io.shape.draw(io.mean.as_secs_f64(), prng));
        let since = self.now.since(START);
        let held = model
            .held
            .filter(|held| prng.unit() < held.share && (held.from..held.until).contains(&since));
        if let Some(held) = held {
            io = held.shape.draw(held.lasts.as_secs_f64(), prng);
        }
        let path = held.filter(|held| !held.alike).map(|_| HELD_PATH);
        let priority = draw_priority(&model.priorities, model.admission.priorities, prng);
        let wanted = Wanted {
            site,
            priority,
            path,
            front_end,
            arrived: self.now,
            demand: Duration::from_secs_f64(demand),
            io: Duration::from_secs_f64(io),
            held: held.is_some(),
            measured: self.measures.is_warm() && held.is_none(),
            tried: None,
        };
        self.measures.totals(site).offered += 1;
        self.measures.priorities[priority.index()].offered += u64::from(wanted.measured);
        self.schedule_arrival(site);
        match self.choose(&wanted) {
            Chosen::Node(node, ticket) => {
                self.measures.totals(site).in_flight += 1;
                self.send(wanted, node, ticket)
            }
            Chosen::Nowhere => {
                self.measures.totals(site).rejected += 1;
                self.ask_again(site);
                Ok(())
            }
            Chosen::Later => {
                self.measures.totals(site).waiting += 1;
                self.waiting.insert(self.arrivals_so_far, wanted);
                // A request of a lower priority may have made room.
                self.serve_waiting(wanted.front_end)
            }
        }
    }

    /// What becomes of those that wait at a front-end, as far as it can be known.
    fn serve_waiting(&mut self, number: u32) -> Result<(), Violation> {
        loop {
            let Some((front_end, now)) = self.front_end(number) else {
                return Ok(());
            };
            let Some((id, decision)) = front_end.picker.poll_waiting(now) else {
                return Ok(());
            };
            let Some(wanted) = self.waiting.remove(&id.0) else {
                return Err(self.violation(format!("{id:?} did not wait")));
            };
            let totals = self.measures.totals(wanted.site);
            totals.waiting -= 1;
            match decision {
                Decision::Forward(ticket) => {
                    totals.in_flight += 1;
                    let node = self.global(number, ticket.node);
                    self.send(wanted, node, Some(ticket))?;
                }
                Decision::Reject(_) => {
                    totals.rejected += 1;
                    self.ask_again(wanted.site);
                }
                Decision::Wait => {
                    return Err(self.violation(format!("{id:?} waits on and was told of")));
                }
            }
        }
    }

    fn choose(&mut self, wanted: &Wanted) -> Chosen {
        let (now, site) = (self.now, SiteId(wanted.site));
        let front_ends = match &mut self.choosers {
            Choosers::FrontEnds(front_ends) => front_ends,
            Choosers::Oracle(oracle) => {
                let tried = wanted.tried.map(|node| node.0);
                let chosen = oracle.choose(wanted.site, tried);
                return chosen.map_or(Chosen::Nowhere, |node| Chosen::Node(node, None));
            }
        };
        let front_end = &mut front_ends[wanted.front_end as usize];
        let probes = front_end.catch_up(now, &self.nodes, self.reads.as_mut());
        let decision = match &wanted.tried {
            None => {
                self.arrivals_so_far += 1;
                let picker = &mut front_end.picker;
                let kind = |path| picker.kind_of(site, "GET", path);
                let arrival = Arrival {
                    priority: wanted.priority,
                    kind: wanted.path.map_or(Kind::ANY, kind),
                    id: WaitId(self.arrivals_so_far),
                    ..Arrival::at(site)
                };
                picker.handle_request(&arrival, now)
            }
            Some(tried) => {
                let tried = std::slice::from_ref(tried);
                let retried = front_end
                    .picker
                    .handle_retry(site, tried, Retried::Failure, now);
                retried.map_or_else(Decision::Reject, Decision::Forward)
            }
        };
        let chosen = match decision {
            Decision::Forward(ticket) => {
                let node = front_end.nodes[ticket.node.index()];
                Chosen::Node(node, Some(ticket))
            }
            Decision::Reject(_) => Chosen::Nowhere,
            Decision::Wait => Chosen::Later,
        };
        self.look_after(wanted.front_end, &probes);
        chosen
    }

    fn send(&mut self, wanted: Wanted, node: u32, ticket: Option<Ticket>) -> Result<(), Violation> {
        if let Some(ticket) = &ticket {
            self.check_dispatch(&wanted, node, ticket)?;
            if wanted.measured {
                self.measures.compared += u64::from(ticket.why.compared);
                self.measures.decisions += 1;
                self.measures
                    .load_ages
                    .extend(ticket.why.load_age.map(nanos));
            }
            self.count_sent(&wanted, ticket.node)?;
        }
        self.measures.sent(node, wanted.measured, self.now);
        self.nodes[node as usize].expected += 1;
        self.tell_oracle(node);
        let request = self.requests.add(wanted, node, ticket);
        let at = self.after_delay();
        self.queue.schedule(at, Event::Delivered { request });
        self.schedule_rest(request);
        if let Some(timeout) = self.scenario.front_ends.timeout {
            let version = self.requests.get(request).version;
            let event = Event::TimedOut { request, version };
            self.queue.schedule(self.now + timeout, event);
        }
        Ok(())
    }

    /// When a request begins to rest if it is still there, as a proxy would see it.
    fn schedule_rest(&mut self, request: u32) {
        let entry = self.requests.get(request);
        let (wanted, version) = (entry.wanted, entry.version);
        let model = &self.scenario.sites[wanted.site as usize];
        if model.admission.kind != AdmissionKind::Adaptive {
            return;
        }
        let held = model.held.filter(|_| wanted.held);
        let site = SiteId(wanted.site);
        let Some((front_end, now)) = self.front_end(wanted.front_end) else {
            return;
        };
        let (after, answered) = match held.map(|held| held.by) {
            Some(HeldBy::Tunnel(head)) => (head, true),
            Some(HeldBy::Download(head)) => (head + LONG_ANSWER, true),
            Some(HeldBy::Poll) | None => (front_end.picker.overdue_after(site), false),
        };
        let event = Event::Rests {
            request,
            version,
            answered,
        };
        self.queue.schedule(now + after, event);
    }

    pub(super) fn on_rests(
        &mut self,
        (request, version): (u32, u32),
        answered: bool,
    ) -> Result<(), Violation> {
        let Some(entry) = self.requests.same(request, version) else {
            return Ok(());
        };
        let Some(node) = entry.ticket.as_ref().map(|ticket| ticket.node) else {
            return Ok(());
        };
        let number = entry.wanted.front_end;
        let Choosers::FrontEnds(front_ends) = &mut self.choosers else {
            return Ok(());
        };
        let picker = &mut front_ends[number as usize].picker;
        let entry = self.requests.get(request);
        let kind = match answered {
            true => RestKind::Answered,
            false => RestKind::Unanswered,
        };
        if let (true, Some(ticket)) = (answered, &mut entry.ticket) {
            picker.handle_head(ticket, self.now);
        }
        entry.resting = Some(picker.rest(node, kind));
        self.serve_waiting(number)
    }

    pub(super) fn on_answered(&mut self, request: u32) -> Result<(), Violation> {
        let entry = self.requests.get(request);
        let (wanted, ended) = (entry.wanted, entry.ended);
        let (abandoned, report) = (entry.abandoned, entry.report);
        entry.resting = None;
        let ticket = entry.ticket.take();
        let node = entry.node;
        self.requests.remove(request);
        if abandoned {
            return Ok(());
        }
        self.measures.digest.add(self.now.nanos());
        if let Some(mut ticket) = ticket {
            if ended == TryOutcome::Broken
                && let Some((front_end, now)) = self.front_end(wanted.front_end)
            {
                front_end.picker.handle_head(&mut ticket, now);
            }
            let outcome = match ended {
                TryOutcome::Served => Outcome::Success,
                TryOutcome::Refused | TryOutcome::Failed => Outcome::ServerError,
                TryOutcome::Broken | TryOutcome::Lost => Outcome::Broken,
                TryOutcome::Unreachable => Outcome::Unreachable,
            };
            if let (Some((in_flight, latency)), Some(front_end)) =
                (report, self.front_end(wanted.front_end))
            {
                let probe = Probe {
                    node: ticket.node,
                    in_flight,
                    latency,
                };
                let site = SiteId(wanted.site);
                front_end.0.picker.handle_probe(site, &probe, front_end.1);
            }
            self.end_ticket(&wanted, ticket, outcome)?;
        }
        self.conclude(wanted, node, ended)
    }

    pub(super) fn on_timed_out(&mut self, request: u32, version: u32) -> Result<(), Violation> {
        let Some(entry) = self.requests.same(request, version) else {
            return Ok(());
        };
        let (wanted, node) = (entry.wanted, entry.node);
        entry.abandoned = true;
        entry.resting = None;
        let ticket = entry.ticket.take();
        let at = self.after_delay();
        self.queue
            .schedule(at, Event::Cancelled { request, version });
        self.measures.digest.add(self.now.nanos());
        if let Some(ticket) = ticket {
            self.end_ticket(&wanted, ticket, Outcome::Broken)?;
        }
        self.conclude(wanted, node, TryOutcome::Lost)
    }

    /// A try has ended, as the picker learns.
    fn end_ticket(
        &mut self,
        wanted: &Wanted,
        ticket: Ticket,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        let Some((front_end, now)) = self.front_end(wanted.front_end) else {
            return Ok(());
        };
        front_end.news |= outcome != Outcome::Success;
        front_end.picker.handle_outcome(&ticket, outcome, now);
        let node = ticket.node;
        drop(ticket);
        match front_end.ended(node, now) {
            None => Ok(()),
            Some(wrong) => Err(self.violation(wrong)),
        }
    }

    /// A try has ended: another one, or the request's end.
    fn conclude(
        &mut self,
        mut wanted: Wanted,
        node: u32,
        ended: TryOutcome,
    ) -> Result<(), Violation> {
        let unanswered = matches!(ended, TryOutcome::Lost | TryOutcome::Unreachable);
        if unanswered && wanted.tried.is_none() {
            wanted.tried = Some(match &self.choosers {
                Choosers::Oracle(_) => NodeId(node),
                Choosers::FrontEnds(front_ends) => {
                    let local = front_ends[wanted.front_end as usize].local(node);
                    local.unwrap_or(NodeId(node))
                }
            });
            if let Chosen::Node(node, ticket) = self.choose(&wanted) {
                return self.send(wanted, node, ticket);
            }
        }
        self.measures.ended(&wanted, ended, self.now);
        self.ask_again(wanted.site);
        self.serve_waiting(wanted.front_end)
    }

    fn front_end(&mut self, number: u32) -> Option<(&mut FrontEnd, Timestamp)> {
        match &mut self.choosers {
            Choosers::FrontEnds(front_ends) => Some((&mut front_ends[number as usize], self.now)),
            Choosers::Oracle(_) => None,
        }
    }

    /// Sends the probes that a director wants, and sees to it that the director is woken.
    fn look_after(&mut self, number: u32, probes: &[NodeId]) {
        let now = self.now;
        let Choosers::FrontEnds(front_ends) = &mut self.choosers else {
            return;
        };
        let front_end = &mut front_ends[number as usize];
        if front_end.must_wake() {
            front_end.waking = true;
            let event = Event::Wake { front_end: number };
            self.queue.schedule(now + front_end.nap(), event);
        }
        self.send_questions(number);
        for local in probes {
            let node = self.global(number, *local);
            let (answered, at) = self.probe(node);
            let event = Event::Probed {
                front_end: number,
                node: local.0,
                answered,
            };
            self.queue.schedule(at, event);
        }
    }

    pub(super) fn global(&self, front_end: u32, node: NodeId) -> u32 {
        match &self.choosers {
            Choosers::FrontEnds(front_ends) => front_ends[front_end as usize].nodes[node.index()],
            Choosers::Oracle(_) => node.0,
        }
    }

    pub(super) fn on_wake(&mut self, number: u32) -> Result<(), Violation> {
        let Choosers::FrontEnds(front_ends) = &mut self.choosers else {
            return Ok(());
        };
        let front_end = &mut front_ends[number as usize];
        front_end.waking = false;
        let probes = front_end.catch_up(self.now, &self.nodes, self.reads.as_mut());
        self.look_after(number, &probes);
        self.serve_waiting(number)
    }

    pub(super) fn on_probed(&mut self, front_end: u32, node: u32, answered: bool) {
        if let Some((front_end, now)) = self.front_end(front_end) {
            front_end.director.handle_probe(NodeId(node), answered, now);
            front_end.news = true;
        }
    }

    pub(super) fn wake_who_limits(&mut self) {
        if let Choosers::FrontEnds(front_ends) = &self.choosers {
            for number in 0..front_ends.len() as u32 {
                self.look_after(number, &[]);
            }
        }
    }

    fn count_sent(&mut self, wanted: &Wanted, node: NodeId) -> Result<(), Violation> {
        let Some((front_end, now)) = self.front_end(wanted.front_end) else {
            return Ok(());
        };
        match front_end.sent(node, now) {
            None => Ok(()),
            Some(wrong) => Err(self.violation(wrong)),
        }
    }

    fn check_dispatch(&self, wanted: &Wanted, node: u32, ticket: &Ticket) -> Result<(), Violation> {
        let here = &self.nodes[node as usize];
        let tick = self.scenario.front_ends.tick;
        if self.scenario.nodes[node as usize].site != SiteId(wanted.site) {
            let what = format!("node {node} got a request of site {}", wanted.site);
            return Err(self.violation(what));
        }
        if here.barred.is_some_and(|since| self.now > since + tick) {
            return Err(self.violation(format!("node {node} is out of service and was picked")));
        }
        if let Choosers::FrontEnds(front_ends) = &self.choosers {
            let front_end = &front_ends[wanted.front_end as usize];
            if front_end.knows_ejected(ticket.node) && !ticket.why.fail_open {
                return Err(self.violation(format!("node {node} is ejected and was picked")));
            }
        }
        Ok(())
    }
}

/// One of the priorities by their shares; the lowest of those in use if there are none.
fn draw_priority(shares: &[f64], priorities: u8, prng: &mut Prng) -> Priority {
    let lowest = priorities.saturating_sub(1);
    if shares.is_empty() {
        return Priority::new(lowest).unwrap_or(Priority::HIGHEST);
    }
    let mut left = prng.unit() * shares.iter().sum::<f64>();
    for (number, share) in (0..=lowest).zip(shares) {
        left -= share;
        if left < 0.0 {
            return Priority::new(number).unwrap_or(Priority::HIGHEST);
        }
    }
    Priority::new(lowest).unwrap_or(Priority::HIGHEST)
}
