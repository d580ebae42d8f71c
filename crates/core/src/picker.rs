//! The picker: one per worker thread, decides on each request. No lock, no allocation, no
//! await.
//!
//! A picked request is a [`Ticket`]. The ticket counts the request as in flight from the pick
//! on, and counts it as ended when it is dropped, whoever drops it: a cancelled request cannot
//! leak. The questions of counting are answered here, once:
//!
//! * A request is **in flight** from the pick to the end of the response body (or to its
//!   failure or cancellation): that is how long the node has it.
//! * Its **latency**, which policies learn from, ends with the response head: later bytes wait
//!   for the client, which is not the node's doing.
//! * An answer with a server error (5xx) is a failure to learn from, but an answer: it never
//!   ejects a node. Only failures of the transport and time-outs do.

use std::sync::Arc;
use std::time::Duration;

use crate::admission::{Admission, AdmissionKind, RejectReason, Verdict};
use crate::load::LoadTable;
use crate::policy::{Choice, Policy, PolicyConfig, Probe, Sample, Term, View};
use crate::prng::Prng;
use crate::time::Timestamp;
use crate::topology::{NodeId, SiteId, Topology};

/// What to do with a request.
#[derive(Debug)]
pub enum Decision {
    /// Send it to the ticket's node.
    Forward(Ticket),
    /// Refuse it.
    Reject(RejectReason),
}

/// Why a request goes where it goes: what the access log tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Why {
    /// Nodes that were compared.
    pub compared: u32,
    /// The chosen node's score; NaN if the policy compares nothing.
    pub score: f32,
    /// Age of the load record that the choice rests on, if there was one.
    pub load_age: Option<Duration>,
    /// Own requests in flight at the node, this one included.
    pub in_flight: u32,
    /// Ejections were ignored: too many nodes are out.
    pub fail_open: bool,
}

/// How a dispatched request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The node answered without a server error.
    Success,
    /// The node answered with a server error.
    ServerError,
    /// The node did not answer: no connection, a broken one, or a time-out.
    TransportFailure,
}

/// One request on its way. Dropping it ends it.
#[derive(Debug)]
#[must_use = "a dropped ticket is an ended request"]
pub struct Ticket {
    /// The node that has it.
    pub node: NodeId,
    /// Why it went there.
    pub why: Why,
    site: SiteId,
    slowdown: f32,
    dispatched_at: Timestamp,
    table: TicketTable,
}

/// The table as the tickets of one picker share it: counted by a counter of this picker's own,
/// for the table's would be fought over by all workers, twice per request.
type TicketTable = Arc<Arc<LoadTable>>;

impl Ticket {
    /// The site that it belongs to.
    pub fn site(&self) -> SiteId {
        self.site
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.table.complete(self.node);
    }
}

/// See the module.
#[derive(Debug)]
pub struct Picker {
    table: TicketTable,
    topology: Arc<Topology>,
    sites: Vec<PickerSite>,
    prng: Prng,
    /// Candidates left in a retry; kept so that a retry allocates nothing.
    left: Vec<NodeId>,
}

#[derive(Debug)]
struct PickerSite {
    config: PolicyConfig,
    policy: Box<dyn Policy>,
    admission: Box<dyn Admission>,
}

impl PickerSite {
    fn new(topology: &Topology, site: SiteId) -> Self {
        let config = topology.site(site).policy;
        let mut policy = config.build();
        policy.on_topology(topology, site);
        Self {
            config,
            policy,
            admission: AdmissionKind::default().build(),
        }
    }
}

impl Picker {
    /// A picker that draws its choices from `seed`.
    pub fn new(table: Arc<LoadTable>, topology: Arc<Topology>, seed: u64) -> Self {
        let mut picker = Self {
            left: Vec::with_capacity(table.nodes()),
            table: Arc::new(table),
            topology: Arc::clone(&topology),
            sites: Vec::with_capacity(topology.sites.len()),
            prng: Prng::new(seed),
        };
        picker.handle_topology(topology);
        picker
    }

    /// Goes over to a newer topology. Policies keep what they learned unless their site's
    /// configuration changed.
    pub fn handle_topology(&mut self, topology: Arc<Topology>) {
        self.sites.truncate(topology.sites.len());
        for (index, site) in topology.sites.iter().enumerate() {
            let id = SiteId(index as u32);
            match self.sites.get_mut(index) {
                Some(kept) if kept.config == site.policy => {
                    kept.policy.on_topology(&topology, id);
                }
                Some(changed) => *changed = PickerSite::new(&topology, id),
                None => self.sites.push(PickerSite::new(&topology, id)),
            }
        }
        self.topology = topology;
    }

    /// The topology that decisions rest on.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// The load table that decisions rest on.
    pub fn table(&self) -> &Arc<LoadTable> {
        &self.table
    }

    /// Replaces a site's admission: for the modes to come, and for tests of the hooks.
    pub fn set_admission(&mut self, site: SiteId, admission: Box<dyn Admission>) {
        self.sites[site.index()].admission = admission;
    }

    /// Stage 0: whether a connection that was just accepted may be read at all. It may while
    /// any of the sites that it could ask for would let something in.
    pub fn handle_accept(&mut self, now: Timestamp) -> Verdict {
        let mut verdict = Verdict::Admit;
        for site in &mut self.sites {
            verdict = site.admission.on_accept(now);
            if verdict == Verdict::Admit {
                break;
            }
        }
        verdict
    }

    /// Stage 1 and the choice: what to do with a request for `site`.
    pub fn handle_request(&mut self, site: SiteId, now: Timestamp) -> Decision {
        let candidates = &self.topology.site(site).candidates;
        if candidates.is_empty() {
            return Decision::Reject(RejectReason::NoNode);
        }
        let view = View {
            now,
            site,
            candidates,
            topology: &self.topology,
            table: &self.table,
        };
        let state = &mut self.sites[site.index()];
        match state.admission.on_request(&view) {
            Verdict::Reject(reason) => Decision::Reject(reason),
            Verdict::Admit => {
                let choice = state.policy.pick(&view, &mut self.prng);
                Decision::Forward(self.dispatch(site, &choice, now))
            }
        }
    }

    /// Another node for a request that failed at all nodes in `tried`; it was let in already.
    pub fn handle_retry(&mut self, site: SiteId, tried: &[NodeId], now: Timestamp) -> Decision {
        self.left.clear();
        let candidates = self.topology.site(site).candidates.iter();
        self.left
            .extend(candidates.filter(|node| !tried.contains(node)));
        if self.left.is_empty() {
            return Decision::Reject(RejectReason::NoNode);
        }
        let view = View {
            now,
            site,
            candidates: &self.left,
            topology: &self.topology,
            table: &self.table,
        };
        let choice = self.sites[site.index()].policy.pick(&view, &mut self.prng);
        Decision::Forward(self.dispatch(site, &choice, now))
    }

    /// The terms by which the site's policy sees a node now.
    pub fn explain(&self, site: SiteId, node: NodeId, now: Timestamp) -> Vec<Term> {
        let view = View {
            now,
            site,
            candidates: &self.topology.site(site).candidates,
            topology: &self.topology,
            table: &self.table,
        };
        self.sites[site.index()].policy.explain(&view, node)
    }

    /// The response head of a request has come, or will never come. The ticket itself stays
    /// with the response body, and ends with it.
    pub fn handle_outcome(&mut self, ticket: &Ticket, outcome: Outcome, now: Timestamp) {
        let latency = now.since(ticket.dispatched_at);
        match outcome {
            Outcome::Success => self.table.succeeded(ticket.node, latency, ticket.slowdown),
            Outcome::ServerError => self.table.failed(ticket.node, true),
            Outcome::TransportFailure => self.table.failed(ticket.node, false),
        }
        let sample = Sample {
            node: ticket.node,
            in_flight: ticket.why.in_flight,
            latency,
            success: outcome == Outcome::Success,
        };
        if let Some(site) = self.sites.get_mut(ticket.site.index()) {
            site.policy.on_sample(&sample, now);
        }
    }

    /// A request that was let in has ended, after all of its tries.
    pub fn handle_end(&mut self, site: SiteId, now: Timestamp) {
        if let Some(site) = self.sites.get_mut(site.index()) {
            site.admission.on_end(now);
        }
    }

    /// A server told its load with a response to `site`.
    pub fn handle_probe(&mut self, site: SiteId, probe: &Probe, now: Timestamp) {
        self.table.reported(probe.node, probe.in_flight, now);
        if let Some(site) = self.sites.get_mut(site.index()) {
            site.policy.on_probe(probe, now);
        }
    }

    fn dispatch(&self, site: SiteId, choice: &Choice, now: Timestamp) -> Ticket {
        let node = choice.node;
        let load = self.table.brief(node);
        let in_flight = u32::try_from(self.table.dispatch(node)).unwrap_or(u32::MAX);
        Ticket {
            node,
            why: Why {
                compared: choice.compared,
                score: choice.score,
                load_age: load.is_fresh(now).then(|| now.since(load.observed_at)),
                in_flight,
                fail_open: self.topology.site(site).fail_open,
            },
            site,
            slowdown: choice.slowdown,
            dispatched_at: now,
            table: Arc::clone(&self.table),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::director::Director;
    use crate::policy::PolicyKind;
    use crate::testing::cluster;

    const SITE: SiteId = SiteId(0);
    const NOW: Timestamp = Timestamp::from_millis(1000);

    fn picker(nodes: u32) -> Picker {
        let spec = cluster(nodes, PolicyConfig::new(PolicyKind::Random));
        let table = Arc::new(LoadTable::new(nodes as usize, 1));
        let topology = Director::new(spec, 1).topology();
        Picker::new(table, topology, 1)
    }

    fn forward(picker: &mut Picker) -> Ticket {
        match picker.handle_request(SITE, NOW) {
            Decision::Forward(ticket) => ticket,
            Decision::Reject(reason) => panic!("rejected: {reason:?}"),
        }
    }

    #[test]
    fn a_dropped_ticket_leaves_nothing_in_flight() {
        let mut picker = picker(1);
        let tickets: Vec<_> = (0..1000).map(|_| forward(&mut picker)).collect();
        assert_eq!(picker.table().in_flight(NodeId(0)), 1000);
        assert_eq!(tickets.last().unwrap().why.in_flight, 1000);
        drop(tickets);
        assert_eq!(picker.table().in_flight(NodeId(0)), 0);
    }

    #[test]
    fn an_outcome_is_counted_once_and_the_ticket_stays_in_flight() {
        let mut picker = picker(1);
        let ticket = forward(&mut picker);
        picker.handle_outcome(&ticket, Outcome::Success, NOW + Duration::from_millis(5));
        assert_eq!(picker.table().in_flight(NodeId(0)), 1);
        let outcomes = picker.table().outcomes(NodeId(0));
        assert_eq!((outcomes.successes, outcomes.failures), (1, 0));
        assert!((outcomes.sum_seconds - 0.005).abs() < 1e-9);
    }

    #[test]
    fn a_retry_goes_elsewhere_until_nobody_is_left() {
        let mut picker = picker(3);
        let mut tried = Vec::new();
        for _ in 0..3 {
            let Decision::Forward(ticket) = picker.handle_retry(SITE, &tried, NOW) else {
                panic!("an untried node was left");
            };
            assert!(!tried.contains(&ticket.node));
            tried.push(ticket.node);
        }
        let last = picker.handle_retry(SITE, &tried, NOW);
        assert!(matches!(last, Decision::Reject(RejectReason::NoNode)));
    }

    #[test]
    fn a_site_without_nodes_rejects() {
        let mut picker = picker(0);
        let decision = picker.handle_request(SITE, NOW);
        assert!(matches!(decision, Decision::Reject(RejectReason::NoNode)));
    }

    #[derive(Debug)]
    struct Closed;

    impl Admission for Closed {
        fn on_accept(&mut self, _: Timestamp) -> Verdict {
            Verdict::Reject(RejectReason::Overload)
        }
        fn on_request(&mut self, _: &View<'_>) -> Verdict {
            Verdict::Reject(RejectReason::Overload)
        }
        fn on_end(&mut self, _: Timestamp) {}
    }

    #[test]
    fn admission_is_asked_at_both_stages_and_before_the_policy() {
        let mut picker = picker(1);
        assert_eq!(picker.handle_accept(NOW), Verdict::Admit);
        picker.set_admission(SITE, Box::new(Closed));
        assert_eq!(
            picker.handle_accept(NOW),
            Verdict::Reject(RejectReason::Overload)
        );
        let decision = picker.handle_request(SITE, NOW);
        assert!(matches!(decision, Decision::Reject(RejectReason::Overload)));
        assert_eq!(picker.table().own(NodeId(0)).dispatched, 0);
    }
}
