//! One front-end: the core's director, picker and table, as a shell would drive them.
//!
//! What it does not see does not happen: its reads and the ticks of its director are made up for
//! just before it chooses. Reads are exactly those of a front-end that takes in each one (see
//! `reads`). Ticks are at most one per interval, before a choice; one that has been idle for
//! long makes one tick of many, and its terms are then as of now instead of up to an interval
//! old. A front-end that knows of an ejected or a silent node wakes up for it. What the policy does not look
//! at (`PolicyKind::signals`) does not happen either: no reads without load, and where nothing
//! uses learned terms the director ticks only when there is something for it to see: failures,
//! overrides, probes, and silence where nodes pause.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::director::Director;
use tidegate_core::load::{LoadTable, WordReply, WordRequest};
use tidegate_core::picker::Picker;
use tidegate_core::policy::{PolicyConfig, Signal};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{
    Capacity, ChangeError, ClusterChange, ClusterSpec, Edit, Health, HealthConfig, NodeId,
    NodeSpec, NodeWanted, SiteId, SiteSpec,
};

use crate::fault::FaultKind;
use crate::model::Stream;
use crate::node::Node;
use crate::reader::Reader;
use crate::reads::Reads;
use crate::scenario::{Scenario, SiteModel};

const NOT_SEEN: u32 = u32::MAX;
/// A front-end that knows of an ejected node looks after it this often.
const WAKE: Duration = Duration::from_millis(10);

/// See the module. Its nodes have numbers of its own, which say how they lie in its table.
#[derive(Debug)]
pub(crate) struct FrontEnd {
    pub(crate) director: Director,
    pub(crate) picker: Picker,
    table: Arc<LoadTable>,
    /// The cluster's numbers of its nodes, ascending.
    pub(crate) nodes: Vec<u32>,
    /// Its numbers of the cluster's nodes.
    local: Vec<u32>,
    reader: Option<Reader>,
    /// Own requests in flight by node, counted apart from the core's count.
    in_flight: Vec<u32>,
    tick: Duration,
    ticked_at: Timestamp,
    /// Whether there may be something to see at any tick: the policy uses what the director
    /// learns, or nodes fall silent.
    attentive: bool,
    /// Whether it works out limits, or has requests that wait for room.
    limits: bool,
    /// The last question about each node's words that was sent.
    asked: Vec<u32>,
    /// Something has happened that a director must see.
    pub(crate) news: bool,
    /// Whether an event will wake it.
    pub(crate) waking: bool,
}

impl FrontEnd {
    pub(crate) fn new(
        scenario: &Scenario,
        policy: PolicyConfig,
        number: u32,
        nodes: Vec<u32>,
        reads: Option<&Reads>,
        now: Timestamp,
    ) -> Self {
        let seed = scenario.seed;
        let spec = cluster(scenario, policy, &nodes);
        let director = Director::new(spec, Stream::Director(number).prng(seed).bits());
        let table = Arc::new(LoadTable::new(nodes.len(), scenario.sites.len()));
        let chooser = Stream::Picker(number).prng(seed).bits();
        let mut local = vec![NOT_SEEN; scenario.nodes.len()];
        for (index, node) in nodes.iter().enumerate() {
            local[*node as usize] = index as u32;
        }
        let learned = policy.kind.signals().contains(&Signal::Learned);
        let pauses = scenario
            .faults
            .iter()
            .any(|fault| fault.kind == FaultKind::Paused);
        let tick = scenario.front_ends.tick;
        let waits = |site: &SiteModel| site.admission.build().waits().is_some();
        let limits = scenario.sites.iter().any(waits);
        let ramps = (scenario.sites.iter()).any(|site| !site.slow_start.is_zero());
        let files = scenario.nodes.iter().any(|node| node.files.is_some());
        Self {
            picker: Picker::new(Arc::clone(&table), director.topology(), chooser),
            director,
            table,
            reader: reads.map(|reads| Reader::new(number, &nodes, reads)),
            in_flight: vec![0; nodes.len()],
            local,
            tick,
            ticked_at: now - tick,
            attentive: learned || pauses || limits || ramps || files,
            limits,
            asked: vec![0; nodes.len()],
            nodes,
            news: false,
            waking: false,
        }
    }

    /// Its number of a node, if it sees it.
    pub(crate) fn local(&self, node: u32) -> Option<NodeId> {
        let local = self.local[node as usize];
        (local != NOT_SEEN).then_some(NodeId(local))
    }

    /// A node is no part of the cluster any more.
    pub(crate) fn remove(&mut self, node: NodeId) -> Result<(), ChangeError> {
        let name = self.director.topology().node(node).name.clone();
        self.change(Edit::RemoveNode(name))
    }

    /// It is one again, in its place: this front-end does not let go of those that leave.
    pub(crate) fn add(&mut self, node: NodeId) -> Result<(), ChangeError> {
        let topology = self.director.topology();
        let known = topology.node(node);
        self.change(Edit::AddNode(NodeWanted {
            name: known.name.clone(),
            address: known.address,
            site: topology.site(known.site).name.clone(),
            weight: known.weight,
            capacity: Capacity::default(),
        }))
    }

    fn change(&mut self, edit: Edit) -> Result<(), ChangeError> {
        self.news = true;
        let change = ClusterChange { edits: vec![edit] };
        self.director.handle_change(&change, &self.table)
    }

    /// Makes up for reads and ticks; to be called before it chooses. Gives the nodes that its
    /// director wants probed.
    pub(crate) fn catch_up(
        &mut self,
        now: Timestamp,
        nodes: &[Node],
        reads: Option<&mut Reads>,
    ) -> Vec<NodeId> {
        if let (Some(reader), Some(reads)) = (&mut self.reader, reads) {
            reader.catch_up(now, nodes, reads, &self.table);
        }
        let due = now.since(self.ticked_at) >= self.tick;
        if due && (self.attentive || self.news || self.director.probing() > 0) {
            self.tick(now)
        } else {
            Vec::new()
        }
    }

    fn tick(&mut self, now: Timestamp) -> Vec<NodeId> {
        self.ticked_at = now;
        self.news = false;
        self.director.handle_tick(&self.table, now);
        if let Some(topology) = self.director.poll_topology() {
            self.picker.handle_topology(topology);
        }
        // The log is not read here.
        while self.director.poll_event().is_some() {}
        std::iter::from_fn(|| self.director.poll_probe(now)).collect()
    }

    /// Whether it has to be woken: it knows of an ejected or a silent node, or it looks for room at
    /// each tick.
    pub(crate) fn must_wake(&self) -> bool {
        (self.director.probing() > 0 || self.limits) && !self.waking
    }

    /// How long it may sleep.
    pub(crate) fn nap(&self) -> Duration {
        if self.limits {
            self.tick
        } else {
            WAKE.max(self.tick)
        }
    }

    /// A request is on its way to the node. What is wrong with the count, if anything is.
    pub(crate) fn sent(&mut self, node: NodeId, now: Timestamp) -> Option<String> {
        self.in_flight[node.index()] += 1;
        self.own_changed(node, now)
    }

    /// A request has left the node.
    pub(crate) fn ended(&mut self, node: NodeId, now: Timestamp) -> Option<String> {
        let count = &mut self.in_flight[node.index()];
        *count = count.saturating_sub(1);
        self.own_changed(node, now)
    }

    fn own_changed(&mut self, node: NodeId, now: Timestamp) -> Option<String> {
        let own = self.table.own(node);
        if let Some(reader) = &mut self.reader {
            reader.own_changed(node, own, now);
        }
        let counted = u64::from(self.in_flight[node.index()]);
        (own.in_flight() != counted).then(|| {
            let told = own.in_flight();
            format!("the picker counts {told} requests in flight at {node:?}, there are {counted}")
        })
    }

    /// What its director asks of nodes' words, each handed over once.
    pub(crate) fn questions(&mut self) -> impl Iterator<Item = (NodeId, u32)> {
        let table = &self.table;
        let asked = self.asked.iter_mut().zip(0..);
        asked.filter_map(|(last, local)| {
            let ticket = table.asked_word(NodeId(local))?.ticket;
            (std::mem::replace(last, ticket) != ticket).then_some((NodeId(local), ticket))
        })
    }

    /// The question of this number, if it has not been answered.
    pub(crate) fn question(&self, node: NodeId, ticket: u32) -> Option<WordRequest> {
        let asked = self.table.asked_word(node);
        asked.filter(|asked| asked.ticket == ticket)
    }

    /// An answer has come.
    pub(crate) fn answer(&self, node: NodeId, ticket: u32, reply: WordReply) {
        self.table.answer_word(node, ticket, reply);
    }

    /// Requests in flight, by the core's count.
    pub(crate) fn in_flight(&self) -> u64 {
        let nodes = 0..self.nodes.len() as u32;
        nodes.map(|node| self.table.in_flight(NodeId(node))).sum()
    }

    /// Whether its picker knows that the node is ejected.
    pub(crate) fn knows_ejected(&self, node: NodeId) -> bool {
        self.picker.topology().node(node).health == Health::Ejected
    }
}

/// The cluster as this front-end's configuration has it.
fn cluster(scenario: &Scenario, policy: PolicyConfig, nodes: &[u32]) -> ClusterSpec {
    let node = |number: &u32| {
        let model = &scenario.nodes[*number as usize];
        NodeSpec {
            name: format!("n{number}"),
            address: ([127, 0, 0, 1], 8000).into(),
            site: model.site,
            weight: model.weight,
            capacity: Capacity::default(),
        }
    };
    let site = |number: usize| SiteSpec {
        name: format!("site{number}"),
        hosts: Vec::new(),
        paths: Vec::new(),
        policy,
        admission: scenario.sites[number].admission,
        health: HealthConfig {
            slow_start: scenario.sites[number].slow_start,
            soft_limits: scenario.sites[number].soft_limits,
            ..HealthConfig::default()
        },
    };
    ClusterSpec {
        sites: (0..scenario.sites.len()).map(site).collect(),
        nodes: nodes.iter().map(node).collect(),
        groups: Vec::new(),
        front_ends: front_ends_per_node(scenario),
    }
}

/// How many front-ends serve a node, as their configuration has it.
fn front_ends_per_node(scenario: &Scenario) -> u32 {
    let Some(subset) = scenario.front_ends.subset else {
        return scenario.front_ends.count;
    };
    let sites = 0..scenario.sites.len() as u32;
    let seen = |site: u32| {
        let nodes = scenario
            .nodes
            .iter()
            .filter(|node| node.site == SiteId(site));
        f64::from(subset) / (nodes.count() as f64).max(f64::from(subset))
    };
    let share = sites.clone().map(seen).sum::<f64>() / sites.len().max(1) as f64;
    (f64::from(scenario.front_ends.count) * share)
        .round()
        .max(1.0) as u32
}

/// The nodes that each front-end sees: all, or a subset of each site's, dealt out like cards so
/// that each node is seen as often as any other.
pub(crate) fn subsets(scenario: &Scenario) -> Vec<Vec<u32>> {
    let count = scenario.front_ends.count as usize;
    let Some(subset) = scenario.front_ends.subset else {
        let all: Vec<u32> = (0..scenario.nodes.len() as u32).collect();
        return vec![all; count];
    };
    let mut seen = vec![Vec::new(); count];
    let mut prng = Stream::Subsets.prng(scenario.seed);
    for site in 0..scenario.sites.len() as u32 {
        let nodes = scenario.nodes.iter().enumerate();
        let mut deck: Vec<u32> = nodes
            .filter(|(_, node)| node.site == SiteId(site))
            .map(|(number, _)| number as u32)
            .collect();
        let hand = (subset as usize).min(deck.len());
        let mut left: Vec<u32> = Vec::new();
        for hands in &mut seen {
            let mut dealt: Vec<u32> = Vec::with_capacity(hand);
            while dealt.len() < hand {
                if left.is_empty() {
                    shuffle(&mut deck, &mut prng);
                    left.clone_from(&deck);
                }
                // The first one that this hand has not.
                match left.iter().rposition(|node| !dealt.contains(node)) {
                    Some(place) => dealt.push(left.remove(place)),
                    None => left.clear(),
                }
            }
            hands.extend(dealt);
        }
    }
    for hands in &mut seen {
        hands.sort_unstable();
    }
    seen
}

fn shuffle(deck: &mut [u32], prng: &mut tidegate_core::prng::Prng) {
    for last in (1..deck.len()).rev() {
        deck.swap(last, prng.below(last + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_front_end_sees_its_subset_and_each_node_is_seen_as_often() {
        for (nodes, subset) in [(100, 20), (10, 3), (7, 7), (5, 50)] {
            let mut scenario = Scenario::new(nodes, 64, 0.5);
            scenario.front_ends.subset = Some(subset);
            let mut seen = vec![0u32; nodes as usize];
            for hand in subsets(&scenario) {
                assert_eq!(hand.len() as u32, subset.min(nodes));
                assert!(hand.is_sorted_by(|one, other| one < other), "{hand:?}");
                for node in hand {
                    seen[node as usize] += 1;
                }
            }
            let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
            assert!(most - least <= 2, "{seen:?}");
        }
    }
}
