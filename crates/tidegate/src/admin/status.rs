//! `GET /api/status`: the state of everything, for the page, the command line and programs.

use std::collections::BTreeMap;

use tidegate_core::load::{NodeLoad, Rung};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{Health, Membership, NodeId, SiteId, Topology};
use tidegate_culprits::live::Asks;
use tidegate_culprits::live::front_end::ResourceNode;
use tidegate_proxy::{Ending, HistogramSnapshot, NodeSnapshot, Reason, SiteSnapshot, Snapshot};

use super::agents;
use super::certificates;
use super::checks;
use super::headline::headline;
use super::plane::{Look, Plane, RecentCpu};
use super::soft_limits;
use super::sources;
use super::throttles;
use super::trouble::trouble;
use crate::history::spells::Wrong;
use crate::models::{
    Apart, GrownKind, Headline, LeavingStatus, LoadStatus, NodeStatus, Quantiles, ReaderStatus,
    Recent, Requests, ResourceStatus, SiteStatus, Status,
};

/// Names of the status classes, as the counters have them.
pub(super) const STATUS_CLASSES: [&str; tidegate_proxy::STATUS_CLASSES] =
    ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// The class whose answers are the server's errors.
pub(super) const SERVER_ERRORS: usize = 4;

/// How much is said of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// All that is known.
    All,
    /// What the page shows, and what the headline needs: without its address, its answers by class, its checks and services.
    Shown,
}

/// The whole state.
pub(crate) fn status(plane: &Plane) -> Status {
    in_detail(plane, Detail::All)
}

/// The state, and of nodes so much.
pub(super) fn in_detail(plane: &Plane, detail: Detail) -> Status {
    let look = plane.look();
    let topology = plane.shared.topology.load();
    let reads = &plane.reads;
    let realtime = reads.realtime();
    let mut status = Status {
        version: env!("TIDEGATE_VERSION").into(),
        uptime_seconds: look.now.since(plane.started).as_secs_f64(),
        ready: plane.is_ready(),
        draining: plane.is_draining(),
        headline: Headline::default(),
        listeners: (plane.listeners.load().iter().map(ToString::to_string)).collect(),
        configuration: configuration(plane),
        front_ends: plane.front_ends(),
        topology_version: topology.version,
        reader: ReaderStatus {
            nodes: reads.nodes(),
            interval_seconds: reads.interval().as_secs_f64(),
            shortest_interval_seconds: reads.shortest().as_secs_f64(),
            realtime: realtime.as_ref().map(Result::is_ok),
            note: realtime.and_then(Result::err),
        },
        requests: requests(&look.snapshot),
        connections: look.snapshot.connections,
        connections_evicted: look.snapshot.evicted,
        connections_refused: counted(Reason::UNREAD, |reason| {
            look.snapshot.refused_unread(reason)
        }),
        connections_refused_per_second: counted(Reason::UNREAD, |reason| {
            look.rate_of(|snapshot| snapshot.refused_unread(reason))
        }),
        refused: counted(ended_so(Ending::Rejected), |reason| {
            look.rate_of(|snapshot| snapshot.reason(reason))
        }),
        accept_paused: look.snapshot.accept_paused,
        recent: all_recent(&look),
        load_age: quantiles(&look.snapshot.load_age.since(&look.earlier.load_age)),
        certificates: certificates::status(plane),
        given_certificates: certificates::given(plane),
        webhook_error: plane.output.log.and_then(|log| log.trouble()),
        sites: topology
            .served()
            .map(|(site, _)| site_status(plane, &look, &topology, site, detail))
            .collect(),
        leaving: leaving(plane, &topology),
        sources: sources::status(plane),
        left_out: (plane.cluster.as_ref()).map_or_else(Vec::new, |it| it.left_out()),
        throttles: throttles::all(plane),
        resources: resources(plane, &look),
    };
    let findings = plane.culprits.as_ref().map(Asks::findings);
    let accused: Vec<_> = findings.iter().flat_map(|it| it.flagged()).collect();
    let unsteady = plane.output.log.map_or_else(Vec::new, |log| log.unsteady());
    status.headline = headline(&status, &accused, &unsteady);
    status
}

/// The file that is read again by a reload.
fn configuration(plane: &Plane) -> Option<String> {
    let path = plane.cluster.as_ref()?.path()?;
    // The folder that a relative one begins at may be gone: then it stays relative.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Some(path.display().to_string())
}

/// Nodes that were taken out and have requests yet.
fn leaving(plane: &Plane, topology: &Topology) -> Vec<LeavingStatus> {
    let present = topology.present();
    let leaving = present.filter(|(_, node)| node.membership == Membership::Leaving);
    let status = leaving.map(|(id, node)| LeavingStatus {
        name: node.name.clone(),
        address: node.address.to_string(),
        in_flight: plane.shared.table.in_flight(id),
    });
    status.collect()
}

fn resources(plane: &Plane, look: &Look) -> Vec<ResourceStatus> {
    let resource = |(node, last, reads): (ResourceNode, NodeLoad, _)| {
        let counters = plane.resources.counters(node.place);
        let recent = RecentCpu::since(&look.earlier_resources, node.place as usize, counters);
        let load = load_status(&last, recent, look.now);
        ResourceStatus {
            name: node.name,
            address: node.address.to_string(),
            rung: known_rung(load.as_ref(), &last).label().into(),
            load,
            reads,
        }
    };
    let all = plane.resources.all();
    all.into_iter().map(resource).collect()
}

/// How a load is read; none while it is not known.
fn known_rung(load: Option<&LoadStatus>, last: &NodeLoad) -> Rung {
    match load {
        Some(load) if load.fresh => last.rung,
        Some(_) | None => Rung::None,
    }
}

impl Plane {
    /// Front-ends known to serve these nodes.
    pub(super) fn front_ends(&self) -> u32 {
        let known = self
            .driver
            .front_ends
            .load(std::sync::atomic::Ordering::Relaxed);
        u32::try_from(known).unwrap_or(u32::MAX).max(1)
    }
}

/// Rejected requests by reason, where there are any.
fn rejected(count: impl Fn(Reason) -> u64) -> BTreeMap<String, u64> {
    counted(ended_so(Ending::Rejected), count)
}

fn ended_so(ending: Ending) -> impl Iterator<Item = Reason> {
    let all = Reason::ALL.iter().copied();
    all.filter(move |reason| reason.ending() == ending)
}

/// How often each of these reasons was met that was met at all, in all or per second.
fn counted<T: Default + PartialOrd>(
    reasons: impl IntoIterator<Item = Reason>,
    count: impl Fn(Reason) -> T,
) -> BTreeMap<String, T> {
    let counts = (reasons.into_iter()).map(|reason| (reason.label().to_owned(), count(reason)));
    counts.filter(|(_, count)| *count > T::default()).collect()
}

fn requests(snapshot: &Snapshot) -> Requests {
    Requests {
        received: snapshot.requests,
        completed: snapshot.completed,
        failed: snapshot.ended_as(Ending::Failed),
        rejected: rejected(|reason| snapshot.reason(reason)),
        cancelled: snapshot.ended_as(Ending::Cancelled),
        in_flight: snapshot.in_flight(),
        retries: snapshot.retries,
    }
}

fn all_recent(look: &Look) -> Recent {
    let (now, then) = (&look.snapshot, &look.earlier);
    let errors = |snapshot: &Snapshot| {
        let sites = snapshot.sites.iter();
        sites
            .map(|site| site.status_classes[SERVER_ERRORS])
            .sum::<u64>()
    };
    Recent {
        seconds: look.seconds,
        requests_per_second: look.rate(now.ended(), then.ended()),
        errors_per_second: look.rate(errors(now), errors(then)),
        latency: quantiles(&now.latency.since(&then.latency)),
    }
}

fn site_recent(look: &Look, site: SiteId) -> Recent {
    let Some((now, then)) = look.pair(|snapshot| snapshot.sites.get(site.index())) else {
        return Recent::default();
    };
    Recent {
        seconds: look.seconds,
        requests_per_second: look.rate(now.ended(), then.ended()),
        errors_per_second: look.rate(
            now.status_classes[SERVER_ERRORS],
            then.status_classes[SERVER_ERRORS],
        ),
        latency: quantiles(&now.latency.since(&then.latency)),
    }
}

/// Requests per second that ended that way, by reason, where there were any.
fn site_rates(look: &Look, site: SiteId, ending: Ending) -> BTreeMap<String, f64> {
    let Some((now, then)) = look.pair(|snapshot| snapshot.sites.get(site.index())) else {
        return BTreeMap::new();
    };
    counted(ended_so(ending), |reason| {
        look.rate(now.reason(reason), then.reason(reason))
    })
}

/// The same of those that failed, and of its nodes' answers with a server error.
fn site_errors(look: &Look, site: SiteId, nodes: &[NodeId]) -> BTreeMap<String, f64> {
    let mut rates = site_rates(look, site, Ending::Failed);
    let of_node = |node: &NodeId| {
        let pair = look.pair(|snapshot| snapshot.nodes.get(node.index()));
        pair.map_or(0.0, |(now, then)| {
            let errors = |it: &NodeSnapshot| it.status_classes[SERVER_ERRORS];
            look.rate(errors(now), errors(then))
        })
    };
    let answered: f64 = nodes.iter().map(of_node).sum();
    if answered > 0.0 {
        rates.insert("5xx".into(), answered);
    }
    rates
}

fn site_apart(look: &Look, site: SiteId) -> Apart {
    let Some((now, then)) = look.pair(|snapshot| snapshot.sites.get(site.index())) else {
        return Apart::default();
    };
    let refused = |site: &SiteSnapshot| site.ended_as(Ending::Rejected);
    Apart {
        queued: now.queued,
        queue_wait: quantiles(&now.queueing.since(&then.queueing)),
        refused_per_second: look.rate(refused(now), refused(then)),
        refusal: quantiles(&now.refusals.since(&then.refusals)),
        rejected: rejected(|reason| now.reason(reason)),
        tunnel: quantiles(&now.tunnels.since(&then.tunnels)),
    }
}

fn node_recent(look: &Look, node: NodeId) -> Recent {
    let Some((now, then)) = look.pair(|snapshot| snapshot.nodes.get(node.index())) else {
        return Recent::default();
    };
    let errors = |node: &NodeSnapshot| node.failures + node.status_classes[SERVER_ERRORS];
    Recent {
        seconds: look.seconds,
        requests_per_second: look.rate(answers(now), answers(then)),
        errors_per_second: look.rate(errors(now), errors(then)),
        latency: quantiles(&now.latency.since(&then.latency)),
    }
}

fn answers(node: &NodeSnapshot) -> u64 {
    node.status_classes.iter().sum()
}

impl Look {
    /// Growth of a counter per second.
    fn rate(&self, now: u64, then: u64) -> f64 {
        let grown = now.saturating_sub(then) as f64;
        if self.seconds > 0.0 {
            grown / self.seconds
        } else {
            0.0
        }
    }

    /// The same of one that all sites have together.
    fn rate_of(&self, counter: impl Fn(&Snapshot) -> u64) -> f64 {
        self.rate(counter(&self.snapshot), counter(&self.earlier))
    }

    /// A part of the counters now and at the window's begin.
    fn pair<'a, T>(
        &'a self,
        part: impl Fn(&'a Snapshot) -> Option<&'a T>,
    ) -> Option<(&'a T, &'a T)> {
        Some((part(&self.snapshot)?, part(&self.earlier)?))
    }

    /// Answers of a node within the window.
    pub(super) fn answered(&self, node: NodeId) -> u64 {
        let pair = self.pair(|snapshot| snapshot.nodes.get(node.index()));
        pair.map_or(0, |(now, then)| answers(now).saturating_sub(answers(then)))
    }

    /// Share of each of the nodes in the answers of all of them; nothing without an answer.
    pub(super) fn shares(&self, nodes: &[NodeId]) -> Vec<Option<f64>> {
        let answered: Vec<_> = nodes.iter().map(|node| self.answered(*node)).collect();
        let all: u64 = answered.iter().sum();
        let share = |count| (all > 0).then(|| count as f64 / all as f64);
        answered.into_iter().map(share).collect()
    }
}

fn site_status(
    plane: &Plane,
    look: &Look,
    topology: &Topology,
    id: SiteId,
    detail: Detail,
) -> SiteStatus {
    let site = topology.site(id);
    let specs = plane.sites.load();
    let spec = specs.get(id.index());
    let shares = look.shares(&site.nodes);
    let nodes = site.nodes.iter().zip(shares);
    SiteStatus {
        name: site.name.clone(),
        policy: site.policy.kind.name().into(),
        hosts: spec.map_or(Vec::new(), |spec| spec.hosts.clone()),
        paths: spec.map_or(Vec::new(), |spec| spec.paths.clone()),
        candidates: site.candidates.len() as u32,
        fail_open: site.fail_open,
        recent: site_recent(look, id),
        refusing_seconds: plane.spell_seconds(&site.name, Wrong::Refusals),
        failing_seconds: plane.spell_seconds(&site.name, Wrong::Errors),
        refused: site_rates(look, id, Ending::Rejected),
        errors: site_errors(look, id, &site.nodes),
        apart: site_apart(look, id),
        grown: grown(plane, id),
        nodes: nodes
            .map(|(node, share)| NodeStatus {
                share,
                ..node_status(plane, look, topology, *node, detail)
            })
            .collect(),
    }
}

/// The kinds of a site's requests that go last since they grew.
pub(super) fn grown(plane: &Plane, id: SiteId) -> Vec<GrownKind> {
    let kinds = plane.shared.table.kinds(id).surged().into_iter();
    kinds
        .map(|it| GrownKind {
            kind: it.name,
            in_flight: it.waiting,
        })
        .collect()
}

/// One node, without its share in its site's answers.
pub(super) fn node_status(
    plane: &Plane,
    look: &Look,
    topology: &Topology,
    id: NodeId,
    detail: Detail,
) -> NodeStatus {
    let node = topology.node(id);
    let is_all = detail == Detail::All;
    let address = is_all.then(|| node.address.to_string());
    let checks = is_all.then(|| checks::status(plane, look, topology, id));
    let responses = is_all.then(|| responses(look, id));
    let last = plane.shared.table.last(id);
    let counters = plane.shared.table.counters(id);
    let recent = RecentCpu::since(&look.earlier_nodes, id.index(), counters);
    let load = load_status(&last, recent, look.now);
    let rung = known_rung(load.as_ref(), &last);
    let mut trouble = trouble(plane, look, topology, id);
    let moves = plane.moves.as_ref();
    trouble
        .notes
        .extend(moves.and_then(|it| it.failure(&node.name)));
    trouble.notes.extend(stays(plane, &node.name));
    trouble.notes.extend(weighed(plane, &node.name));
    // The overview has room for so many notes, and datagrams serve as well: nodes that are out need them more.
    trouble
        .notes
        .extend(not_by_rdma(plane, id).filter(|_| is_all));
    NodeStatus {
        name: node.name.clone(),
        address: address.unwrap_or_default(),
        state: node.admin.label().into(),
        health: match (node.health, trouble.in_a_row) {
            (Health::Up, 1..) => "failing".into(),
            (health, _) => health.label().into(),
        },
        trouble,
        candidate: topology.site(node.site).candidates.contains(&id),
        moving: node.withheld,
        moves_to: moves.and_then(|it| it.moves_to(&node.name)),
        slow_start: checks::slow_start(plane, topology, id),
        checks: checks.unwrap_or_default(),
        services: checks::services(plane, topology, id).filter(|_| is_all),
        soft_limit: soft_limits::status(topology, id),
        agent: agents::status(plane, look, topology, id),
        weight: node.weight,
        rung: rung.label().into(),
        load,
        reads: plane.reads.status(id),
        in_flight: plane.shared.table.in_flight(id),
        responses: responses.unwrap_or_default(),
        share: None,
        recent: node_recent(look, id),
    }
}

/// That an operator has a node weigh more or less than its owner.
fn weighed(plane: &Plane, node: &str) -> Option<String> {
    let weights = plane.cluster.as_ref()?.weights_now();
    let it = weights.get(node)?;
    Some(format!(
        "an operator has it weigh {}, not {}: `POST /api/nodes/{node}/weight` with null takes that back",
        it.weight, it.instead_of
    ))
}

/// That a node is where it was moved, if none is moved any more.
fn stays(plane: &Plane, node: &str) -> Option<String> {
    let cluster = plane.cluster.as_ref().filter(|_| plane.moves.is_none())?;
    let moved = cluster.moved_now();
    let site = moved.load().get(node)?.clone();
    Some(format!(
        "it was moved to {site}, and stays: [reconfigure] is off"
    ))
}

/// That datagrams stand in for RDMA at a node for which an operator has asked for it.
fn not_by_rdma(plane: &Plane, id: NodeId) -> Option<String> {
    let why = plane.reads.asked_rdma(id)?.err()?;
    Some(format!(
        "its load is not read over RDMA, as it is to be: {why}"
    ))
}

fn responses(look: &Look, id: NodeId) -> BTreeMap<String, u64> {
    let Some(node) = look.snapshot.nodes.get(id.index()) else {
        return BTreeMap::new();
    };
    let by_status = STATUS_CLASSES.iter().zip(node.status_classes);
    let mut responses: BTreeMap<_, _> = by_status
        .map(|(code, count)| ((*code).to_owned(), count))
        .collect();
    responses.insert("failed".into(), node.failures);
    responses
}

fn load_status(load: &NodeLoad, recent: RecentCpu, now: Timestamp) -> Option<LoadStatus> {
    if load.observed_at == Timestamp::ZERO {
        return None;
    }
    // An `f32` has no more digits than that.
    let known = |number: f32| {
        number
            .is_finite()
            .then(|| (f64::from(number) * 1e6).round() / 1e6)
    };
    let age = now.since(load.observed_at);
    Some(LoadStatus {
        fresh: age <= load.freshness(),
        age_seconds: age.as_secs_f64(),
        capacity: known(load.capacity),
        runnable: known(load.runnable),
        // Counters and clock of a node are not read at the same moment: a full CPU can seem more than full.
        cpu: known(load.utilization.clamp(0.0, 1.0)),
        recent_cpu: recent.used.and_then(known),
        counts_cpu: recent.is_counted,
        memory: known(load.memory),
        files: known(load.files),
        in_flight: known(load.in_flight),
        softirqs: known(load.softirqs),
        one_way_seconds: load.one_way.into(),
    })
}

fn quantiles(histogram: &HistogramSnapshot) -> Quantiles {
    Quantiles {
        p50_seconds: histogram.quantile_seconds(0.5),
        p99_seconds: histogram.quantile_seconds(0.99),
    }
}
