//! `GET /api/why/NAME`: why a node gets what it gets, how a site chooses, what a class loads
//! and what slows it.
//!
//! The terms are worked out anew from the shared table, by a fresh instance of the site's
//! policy. What a worker's own instance has learned by itself (the pool of prequal, say) is not
//! in them.

use tidegate_core::admission::{Basis, Rank};
use tidegate_core::load::LoadTable;
use tidegate_core::policy::{Policy, View};
use tidegate_core::throttle::ClassPattern;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{AdminState, Health, NodeId, Share, SiteId, Topology};
use tidegate_proxy::Recent;

use super::agents;
use super::findings;
use super::node_metrics;
use super::plane::{Look, Plane};
use super::requests::{self, decisions};
use super::shares;
use super::status::{Detail, grown, node_status};
use super::throttles;
use crate::models::{
    LoadStatus, NodeStatus, TermStatus, Why, WhyClass, WhyNode, WhySite, WhySiteNode, grown_reason,
};

/// Nodes that one sentence names.
const NODES_MAX: usize = 10;
/// Requests that an answer shows.
const DECISIONS_MAX: usize = 20;

/// The answer for a node or site of that name; nodes first, since they are asked for more.
pub(crate) fn why(plane: &Plane, name: &str) -> Option<Why> {
    let topology = plane.shared.topology.load();
    if let Some(node) = topology.node_named(name) {
        return Some(Why::Node(Box::new(why_node(plane, &topology, node))));
    }
    if let Some(site) = topology.site_named(name) {
        return Some(Why::Site(Box::new(why_site(plane, &topology, site))));
    }
    if let Some(class) = why_class(plane, &topology, name) {
        return Some(Why::Class(Box::new(class)));
    }
    requests::found(plane, name).map(|it| Why::Request(Box::new(it)))
}

fn why_class(plane: &Plane, topology: &Topology, name: &str) -> Option<WhyClass> {
    let mut reasons = findings::reasons(plane, name);
    let all = plane.shared.throttles.all();
    let set = throttles::of_class(plane, name, &all);
    let id = set.map(|it| it.id);
    let mut all = throttles::all(plane).into_iter();
    let throttle = set.and_then(|set| all.find(|it| it.class == set.pattern.name()));
    if let Some(throttle) = &throttle {
        reasons.splice(0..0, throttles::reasons(throttle));
    }
    if reasons.is_empty() {
        return None;
    }
    let look = plane.look();
    let held = |recent: &Recent| id.is_some() && recent.throttle == id;
    Some(WhyClass {
        class: name.into(),
        reasons,
        decisions: decisions(plane, &look, topology, DECISIONS_MAX, held),
        throttle,
    })
}

fn why_node(plane: &Plane, topology: &Topology, id: NodeId) -> WhyNode {
    let look = plane.look();
    let site = topology.site(topology.node(id).site);
    let place = site.nodes.iter().position(|node| *node == id);
    let share = place.and_then(|place| look.shares(&site.nodes)[place]);
    let status = NodeStatus {
        share,
        ..node_status(plane, &look, topology, id, Detail::All)
    };
    let explainer = Explainer::new(plane, &look, topology, topology.node(id).site);
    WhyNode {
        site: site.name.clone(),
        policy: site.policy.kind.name().into(),
        policy_what: site.policy.kind.what().into(),
        reasons: node_reasons(plane, &look, topology, id, &status),
        terms: explainer.terms(id),
        metrics: node_metrics::all(plane, &look, topology, id),
        decisions: decisions(plane, &look, topology, DECISIONS_MAX, |recent| {
            recent.node == Some(id)
        }),
        node: status,
    }
}

fn why_site(plane: &Plane, topology: &Topology, id: SiteId) -> WhySite {
    let look = plane.look();
    let site = topology.site(id);
    let explainer = Explainer::new(plane, &look, topology, id);
    let shares = look.shares(&site.nodes);
    let nodes = site.nodes.iter().zip(shares);
    WhySite {
        site: site.name.clone(),
        policy: site.policy.kind.name().into(),
        policy_what: site.policy.kind.what().into(),
        reasons: site_reasons(plane, look.now, topology, id),
        grown: grown(plane, id),
        moves: plane.moves.as_ref().and_then(|it| it.why_site(&site.name)),
        nodes: nodes
            .map(|(node, share)| WhySiteNode {
                name: topology.node(*node).name.clone(),
                candidate: site.candidates.contains(node),
                share,
                terms: explainer.terms(*node),
            })
            .collect(),
        decisions: decisions(plane, &look, topology, DECISIONS_MAX, |recent| {
            recent.site == Some(id)
        }),
    }
}

struct Explainer<'a> {
    policy: Box<dyn Policy>,
    now: Timestamp,
    site: SiteId,
    candidates: &'a [NodeId],
    shares: Vec<Share>,
    table: &'a LoadTable,
}

impl<'a> Explainer<'a> {
    fn new(plane: &'a Plane, look: &Look, topology: &'a Topology, site: SiteId) -> Self {
        let candidates = &topology.site(site).candidates;
        let mut policy = topology.site(site).policy.build();
        policy.on_nodes(topology.nodes.len(), candidates);
        Self {
            policy,
            now: look.now,
            site,
            candidates,
            shares: topology.shares().collect(),
            table: &plane.shared.table,
        }
    }

    fn terms(&self, node: NodeId) -> Vec<TermStatus> {
        // A view without candidates is nothing that a policy has ever seen.
        if self.candidates.is_empty() {
            return Vec::new();
        }
        let view = View {
            now: self.now,
            site: self.site,
            candidates: self.candidates,
            shares: &self.shares,
            table: self.table,
        };
        let terms = self.policy.explain(&view, node);
        terms
            .into_iter()
            .map(|term| TermStatus {
                name: term.name.into(),
                value: term.value.is_finite().then_some(term.value),
                what: term.what.into(),
            })
            .collect()
    }
}

fn node_reasons(
    plane: &Plane,
    look: &Look,
    topology: &Topology,
    id: NodeId,
    status: &NodeStatus,
) -> Vec<String> {
    let node = topology.node(id);
    let site = topology.site(node.site);
    let mut reasons = Vec::new();
    reasons.extend(agents::state_reason(node));
    match node.admin {
        AdminState::Ready => {}
        AdminState::Drain => reasons.push("it gets no new requests: an operator drains it".into()),
        AdminState::Maint => {
            reasons.push("it gets no requests: an operator took it out of service".into());
        }
    }
    if node.withheld {
        let to = status.moves_to.as_ref();
        let to = to.map_or("another site", |it| it.site.as_str());
        reasons.push(format!(
            "it gets no new requests: it is on its way to {to} (`tidegate moves`)"
        ));
    }
    match (node.health, site.fail_open) {
        (Health::Up, _) => {}
        (Health::Ejected, false) => reasons.push("it gets no requests: it is ejected".into()),
        (Health::Ejected, true) => reasons.push(format!(
            "it is ejected, but no node of {} is up: it may get requests all the same",
            site.name
        )),
    }
    reasons.extend(status.trouble.notes.iter().cloned());
    if status.candidate {
        reasons.push(match site.candidates.len() {
            0 | 1 => format!("it is the only candidate of {}", site.name),
            2 => format!("it is a candidate, with one other node of {}", site.name),
            all => format!(
                "it is a candidate, with {} other nodes of {}",
                all - 1,
                site.name
            ),
        });
    }
    let is_asked = plane.reads.asked_rdma(id).is_some();
    reasons.push(load_reason(status, is_asked));
    reasons.extend(agents::reasons(&plane.shared.table, topology, id, status));
    let limit = plane.shared.table.limit(id, Rank::LOWEST);
    if limit.is_finite() {
        reasons.push(format!(
            "at most {limit:.0} requests of this front-end may be in flight there"
        ));
    }
    reasons.push(match status.share {
        Some(share) => format!(
            "it answered {:.0} % of the site's requests in the last {:.0} s; {} are in flight there",
            share * 100.0,
            status.recent.seconds,
            status.in_flight
        ),
        None => format!(
            "the site had no requests in the last {:.0} s; {} are in flight at this node",
            status.recent.seconds, status.in_flight
        ),
    });
    reasons.extend(shares::reasons(&plane.shared.table, look, site, id));
    reasons
}

fn load_reason(status: &NodeStatus, has_note_of_rdma: bool) -> String {
    let trouble = || {
        let error = status
            .reads
            .as_ref()
            .and_then(|reads| reads.last_error.clone());
        error.map_or(String::new(), |error| format!(" ({error})"))
    };
    // Datagrams serve as well: it is said where there is a load, and nothing worse.
    let reads = status.reads.as_ref().filter(|_| !has_note_of_rdma);
    let no_rdma = reads.and_then(|it| it.no_rdma.as_ref());
    let no_rdma = no_rdma.map_or(String::new(), |why| format!("; not over RDMA: {why}"));
    match (&status.load, &status.reads) {
        (Some(load), _) if load.fresh && status.agent.is_some() => format!(
            "its agent was heard {:.1} s ago ({}); it tells no load: own requests in flight and latencies decide",
            load.age_seconds, status.rung
        ),
        (Some(load), _) if load.fresh => format!(
            "its load is known by {}, {:.1} ms old{}{no_rdma}",
            status.rung,
            load.age_seconds * 1e3,
            load_words(load)
        ),
        (Some(load), _) if status.agent.is_some() => format!(
            "its agent was heard {:.1} s ago, and what it said stands{}",
            load.age_seconds,
            trouble()
        ),
        (Some(load), _) => format!(
            "its last load is {:.1} s old and not believed any more{}",
            load.age_seconds,
            trouble()
        ),
        (None, Some(_)) => format!("its load is not known yet{}", trouble()),
        (None, None) => "its load is not read: own requests in flight and latencies decide".into(),
    }
}

/// `: 98 % of its CPUs were used in the last seconds, and 12 tasks are on 2 CPUs now`, or what of that is known.
fn load_words(load: &LoadStatus) -> String {
    let cpu = load.shown_cpu().map(|cpu| {
        let when = match load.recent_cpu {
            Some(_) => "were used in the last seconds",
            None => "are used",
        };
        format!("{:.0} % of its CPUs {when}", cpu * 100.0)
    });
    let tasks = load.runnable.zip(load.capacity);
    let tasks = tasks.map(|(tasks, cpus)| match tasks {
        1.0 => format!("1 task is on {cpus} CPUs now"),
        _ => format!("{tasks:.0} tasks are on {cpus} CPUs now"),
    });
    let known: Vec<_> = cpu.into_iter().chain(tasks).collect();
    match known.is_empty() {
        true => String::new(),
        false => format!(": {}", known.join(", and ")),
    }
}

fn site_reasons(plane: &Plane, now: Timestamp, topology: &Topology, id: SiteId) -> Vec<String> {
    let site = topology.site(id);
    let mut reasons = Vec::new();
    let (candidates, nodes) = (site.candidates.len(), site.nodes.len());
    reasons.push(match candidates {
        0 => format!("none of its {nodes} nodes may take requests: they are refused"),
        1 if nodes == 1 => "its one node is a candidate".into(),
        _ if candidates == nodes => format!("all of its {nodes} nodes are candidates"),
        1 => format!("one of its {nodes} nodes is a candidate"),
        _ => format!("{candidates} of its {nodes} nodes are candidates"),
    });
    for node in &site.nodes {
        let node = topology.node(*node);
        match node.admin {
            AdminState::Ready => {}
            AdminState::Drain => reasons.push(format!("{} is drained by an operator", node.name)),
            AdminState::Maint => reasons.push(format!("{} is out of service", node.name)),
        }
        if let Some(said) = agents::state_reason(node) {
            reasons.push(format!("{}: {said}", node.name));
        }
        if node.withheld {
            reasons.push(format!(
                "{} is on its way to another site, or its agent has not set its servers up for this one (`tidegate status`)",
                node.name
            ));
        }
        if node.health == Health::Ejected {
            let cause = node.ejection.map_or("failures", |it| it.cause.label());
            reasons.push(format!("{} is ejected ({cause})", node.name));
        }
    }
    if site.fail_open {
        reasons.push("no node is up, so ejected ones are used".into());
    }
    reasons.extend(admission_reason(plane, now, topology, id));
    reasons.extend(grown_reason(&grown(plane, id)));
    reasons.extend(group_reason(plane, topology, id));
    let of_site = |class: &ClassPattern| class.site().is_none_or(|it| it == site.name);
    for throttle in throttles::all_where(plane, of_site) {
        reasons.extend(throttles::reasons(&throttle));
    }
    reasons
}

/// What the site shares with others.
fn group_reason(plane: &Plane, topology: &Topology, id: SiteId) -> Option<String> {
    let (group, _) = topology.group_of(id)?;
    let (in_flight, limit) = plane.shared.table.group(group);
    let name = &topology.groups[group.index()].name;
    Some(format!(
        "group {name} bears {limit} requests of this front-end at its nodes; {in_flight} are in flight"
    ))
}

/// What is let in, how much of it is there, and what says so.
fn admission_reason(
    plane: &Plane,
    now: Timestamp,
    topology: &Topology,
    id: SiteId,
) -> Option<String> {
    let (site, table) = (topology.site(id), &plane.shared.table);
    let by = match site.admission.kind.basis() {
        Basis::Nothing => return None,
        Basis::Configuration => "by the configuration",
        Basis::Latency => "by how long answers take",
        Basis::Success => "by how many of them succeed",
        Basis::Load => table.limited_by(id)?.what(),
    };
    let mut busiest = site.candidates.to_vec();
    busiest.sort_by_key(|node| std::cmp::Reverse(table.in_flight(*node)));
    let left = busiest.len().saturating_sub(NODES_MAX);
    busiest.truncate(NODES_MAX);
    let nodes = busiest.iter().map(|node| {
        let (name, in_flight) = (&topology.node(*node).name, table.in_slots(*node));
        let limit = table.limit(*node, Rank::LOWEST);
        let mut said = match limit.is_finite() {
            true => format!("{name} {in_flight} of {limit:.0}"),
            false => format!("{name} {in_flight}"),
        };
        let throttled = table.accounts().in_flight(*node);
        if throttled > 0 {
            said.push_str(&format!(" and {throttled} throttled"));
        }
        let resting = table.resting(*node);
        if resting > 0 {
            said.push_str(&format!(" and {resting} at rest"));
        }
        let load = table.last(*node);
        let age = now.since(load.observed_at).as_secs_f64() * 1e3;
        if load.observed_at != Timestamp::ZERO && load.utilization.is_finite() {
            let busy = load.utilization.clamp(0.0, 1.0) * 100.0;
            said.push_str(&format!(" (CPU {busy:.0} %, {age:.1} ms ago)"));
        }
        if let Some(agreed) = table.agreed(*node) {
            let (held, limit) = (agreed.held, agreed.limit);
            said.push_str(&format!(" (all front-ends {held} of {limit})"));
        }
        said
    });
    let mut nodes: Vec<_> = nodes.collect();
    if left > 0 {
        nodes.push(format!("and {left} nodes with fewer"));
    }
    let is_limited = |node: &NodeId| table.limit(*node, Rank::LOWEST).is_finite();
    if !site.candidates.iter().any(is_limited) {
        return Some(format!(
            "admission {} limits no node now: {}; {} found no room so far",
            site.admission.kind.label(),
            nodes.join(", "),
            table.found_no_room(id),
        ));
    }
    let (mode, mostly) = match site.admission.dry_run {
        true => ("would limit", "would have found"),
        false => ("limits", "found"),
    };
    Some(format!(
        "admission {} {mode} requests at work {by}: {}; {} {mostly} no room so far",
        site.admission.kind.label(),
        nodes.join(", "),
        table.found_no_room(id),
    ))
}
