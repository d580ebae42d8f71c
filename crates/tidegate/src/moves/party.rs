//! What moves nodes by one constitution: the core's mover, what was read for it, and the words that it changes.
//!
//! ```text
//! look n     home's words (S, U) as they were read after look n - 1;  then nodes' words (A), which load reads bring
//! so that    each A was asked for after each S was answered, as plans want it
//! ```
//!
//! Failure case: a home that changes between two looks makes swaps fail, which costs a move and nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_core::load::LoadTable;
use tidegate_core::moves::arrivals::NodeWatch;
use tidegate_core::moves::atomics::{HomeWords, WordAtomic, WordPlace};
use tidegate_core::moves::home::{HomeLook, HomeState, HomeWatch};
use tidegate_core::moves::lease::{Patience, SILENT_AFTER};
use tidegate_core::moves::mover::{Mover, MoverSight, NodeSight, SiteSight};
use tidegate_core::moves::numbering::Constitution;
use tidegate_core::moves::plan::{NodeReading, SiteReading};
use tidegate_core::moves::quiet::Quiet;
use tidegate_core::moves::steps::{Attempt, AttemptEnd, MoveReply};
use tidegate_core::moves::words::{AgentStatus, NodeNumber, SiteLock, SiteNumber, WordError};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::Topology;
use tidegate_remote::clock;

use super::agents::Agents;
use super::engine::Words;
use super::models::UnfollowedNode;
use super::sight::Places;

/// How long an answer of the home is on its way, as far as is known before any was measured: it makes leases longer.
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(5);

/// Home's words are read again after this, whatever nodes there are that were not: that a home is blank counts while it
/// is read each 100 ms (`lease.rs`).
const HOME_AGE_MAX: Duration = Duration::from_millis(80);

/// See the module.
pub(super) struct Party {
    pub(super) mover: Mover,
    pub(super) places: Places,
    words: Words,
    patience: Patience,
    home: HomeWatch,
    /// What was read after the last look.
    home_words: Result<HomeWords, String>,
    home_look: Option<HomeLook>,
    /// Since when the home does not answer.
    silent_since: Option<Timestamp>,
    /// The constitution that was found last was ours: nodes' words mean what they say.
    believes: bool,
    nodes: Vec<NodeWatch>,
    readings: Vec<NodeReading>,
    /// By node.
    quiet: Vec<Quiet>,
    /// What agents say, where they must say that a node is drained.
    agents: Option<Agents>,
    garbled: Option<(NodeNumber, WordError)>,
}

/// What is read at one look.
pub(super) struct Reading {
    sites: Vec<Option<SiteReading>>,
    nodes: Vec<NodeReading>,
    site_sights: Vec<SiteSight>,
    node_sights: Vec<NodeSight>,
    /// Words that are to begin, or to begin anew.
    pub(super) mend: Vec<WordAtomic>,
}

impl Reading {
    pub(super) fn sight(&self) -> MoverSight<'_> {
        MoverSight {
            site_words: &self.sites,
            node_words: &self.nodes,
            sites: &self.site_sights,
            nodes: &self.node_sights,
        }
    }
}

/// What keeps this front-end from moving nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Words have not begun yet, or are about to be replaced: that ends by itself.
    Begins(String),
    /// The home does not answer.
    Silent(String),
    /// Other front-ends have another configuration.
    Disagrees(String),
    /// A word that no front-end writes.
    Garbled(String),
}

impl Trouble {
    /// For people.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Begins(text)
            | Self::Silent(text)
            | Self::Disagrees(text)
            | Self::Garbled(text) => text,
        }
    }

    /// The event that says it, if it is worth one.
    pub(super) fn event(&self) -> Option<&'static str> {
        match self {
            Self::Begins(_) => None,
            Self::Silent(_) => Some("moves_home_silent"),
            Self::Disagrees(_) => Some("moves_disagree"),
            Self::Garbled(_) => Some("moves_garbled"),
        }
    }
}

impl Party {
    pub(super) fn new(
        mover: Mover,
        places: Places,
        words: Words,
        patience: Patience,
        agents: Option<Agents>,
        seed: u64,
    ) -> Self {
        let nodes = mover.constitution().nodes();
        Self {
            mover,
            places,
            words,
            patience,
            home: HomeWatch::new(seed),
            home_words: Err("it was not asked yet".into()),
            home_look: None,
            silent_since: None,
            believes: false,
            nodes: vec![NodeWatch::default(); nodes],
            readings: vec![NodeReading::Unread; nodes],
            quiet: vec![Quiet::default(); nodes],
            agents,
            garbled: None,
        }
    }

    pub(super) fn constitution(&self) -> &Constitution {
        self.mover.constitution()
    }

    /// Whether nodes' words mean what they say.
    pub(super) fn believes(&self) -> bool {
        self.believes
    }

    /// Reads the home for the next look, unless nodes have not been read yet since the last time.
    pub(super) async fn read_home(&mut self, now: Timestamp) {
        if let Ok(words) = &self.home_words
            && now.since(words.at) < HOME_AGE_MAX
            && self.readings.iter().any(|it| is_older(it, words.at))
        {
            return;
        }
        let sites = self.home.sites_to_read(self.mover.constitution());
        self.home_words = self.words.home(sites, now).await;
        let Ok(words) = &self.home_words else {
            self.silent_since.get_or_insert(now);
            self.home_look = None;
            return;
        };
        self.silent_since = None;
        let look = self
            .home
            .look(words, self.mover.constitution(), &self.patience);
        match look.state {
            HomeState::Joined => self.believes = true,
            HomeState::Disagrees(_) | HomeState::Older => self.believes = false,
            // It has lost its words; nodes have theirs.
            HomeState::Blank => {}
        }
        self.home_look = Some(look);
    }

    /// Takes in which nodes have requests of this front-end, once for each look.
    pub(super) fn note_quiet(&mut self, table: &LoadTable, now: Timestamp) {
        self.places.note_quiet(table, &mut self.quiet, now);
    }

    /// All that a look looks at.
    pub(super) fn reading(
        &mut self,
        topology: &Topology,
        table: &LoadTable,
        now: Timestamp,
    ) -> Reading {
        let mut mend = Vec::new();
        self.garbled = None;
        for number in 0..self.nodes.len() {
            let node = NodeNumber(number as u16);
            let seen = match &self.words {
                Words::Own(words) => words.assignment(node).map(|word| (word, now)),
                Words::Shared(_) => self.places.first_word(node, table),
            };
            if !self.believes {
                self.readings[number] = NodeReading::Unread;
                continue;
            }
            let look = self.nodes[number].look(node, seen, self.mover.constitution(), now);
            self.readings[number] = look.reading;
            mend.extend(look.mend);
            if let Some(error) = look.garbled {
                self.garbled.get_or_insert((node, error));
            }
        }
        let none = || vec![None; self.mover.constitution().sites()];
        let look = self.home_look.as_ref();
        mend.extend(look.iter().flat_map(|it| it.begin.iter().copied()));
        Reading {
            sites: look.map_or_else(none, |it| it.sites.clone()),
            nodes: self.readings.clone(),
            site_sights: self.places.sites(topology, table, now),
            node_sights: self.node_sights(topology, table, now),
            mend,
        }
    }

    /// What is seen of nodes. Where agents must say when one is drained, one whose agent does not is not moved.
    fn node_sights(
        &self,
        topology: &Topology,
        table: &LoadTable,
        now: Timestamp,
    ) -> Vec<NodeSight> {
        let mut sights = self.places.nodes(topology, table, &self.quiet, now);
        let Some(agents) = &self.agents else {
            return sights;
        };
        for (number, sight) in sights.iter_mut().enumerate() {
            let node = NodeNumber(number as u16);
            sight.agent = agents.status(node);
            sight.quiet_since = None;
            sight.fresh &= agents.is_ready(node, self.mover.assignment(node));
        }
        sights
    }

    /// Asks agents, where they must say when a node is drained; at once those of nodes on their way and of these.
    pub(super) async fn ask_agents(&mut self, waiting: &BTreeSet<String>) {
        let Some(agents) = &mut self.agents else {
            return;
        };
        // An agent that goes by our numbers would follow words that do not.
        if !self.believes {
            return;
        }
        let is_read = |node: NodeNumber| {
            let reading = self.readings.get(node.index());
            reading.is_some_and(|it| *it != NodeReading::Silent)
        };
        let is_urgent = |node| {
            let name = self.mover.constitution().node_name(node);
            let is_on_its_way = self
                .mover
                .assignment(node)
                .is_some_and(|it| !it.is_serving());
            is_on_its_way || name.is_some_and(|it| waiting.contains(it))
        };
        agents.look(&self.words, is_urgent, is_read).await;
    }

    /// A site's lock, as it was last read.
    pub(super) fn lock(&self, site: SiteNumber) -> Option<SiteLock> {
        let reading = self.home_look.as_ref()?.sites.get(site.index());
        reading.copied().flatten().map(|it| it.lock)
    }

    /// What a node's agent said last.
    pub(super) fn agent(&self, node: NodeNumber) -> Option<AgentStatus> {
        self.agents.as_ref()?.status(node)
    }

    /// Whether a node's servers are set up for what it serves, as far as agents do that.
    pub(super) fn is_set_up(&self, name: &str) -> bool {
        let Some(node) = self.constitution().node_number(name) else {
            return true;
        };
        let assignment = self.mover.assignment(node);
        // What its agent says while the node is on its way is of the way alone.
        let serves = assignment.is_none_or(|it| it.is_serving());
        let agents = self.agents.as_ref();
        serves && agents.is_none_or(|it| it.is_set_up(node, assignment))
    }

    /// Why a node may not move: its agent must follow it, and does not.
    pub(super) fn why_unfollowed(&self, node: NodeNumber) -> Option<&'static str> {
        let agents = self.agents.as_ref()?;
        agents.why_unready(node, self.mover.assignment(node))
    }

    /// Nodes whose words are known and that may not move, as their agents do not follow them.
    pub(super) fn unfollowed(&self) -> Vec<UnfollowedNode> {
        let numbers = (0..self.nodes.len()).map(|number| NodeNumber(number as u16));
        let known = numbers.filter(|it| self.mover.assignment(*it).is_some());
        let found = known.filter_map(|node| {
            let name = self.constitution().node_name(node)?.to_owned();
            let why = self.why_unfollowed(node)?.to_owned();
            Some(UnfollowedNode { node: name, why })
        });
        found.collect()
    }

    /// Carries an atomic out. Lost at a node that is not read for long, it is not known and will not be.
    pub(super) async fn carry_out(&mut self, atomic: WordAtomic) -> MoveReply {
        let reply = self.words.carry_out(atomic).await;
        let is_silent = |node: NodeNumber| self.readings[node.index()] == NodeReading::Silent;
        match (reply, atomic.place()) {
            (MoveReply::Lost, WordPlace::Node(node)) if is_silent(node) => MoveReply::Silent,
            (reply, _) => reply,
        }
    }

    /// Takes an attempt through its steps.
    pub(super) async fn run(&mut self, attempt: Attempt) -> AttemptEnd {
        let mut attempt = attempt;
        loop {
            let op = attempt.op(self.mover.constitution());
            let reply = self.carry_out(op.atomic()).await;
            match attempt.on_reply(reply, clock::now()) {
                Ok(next) => attempt = next,
                Err(end) => return end,
            }
        }
    }

    /// What keeps this front-end from moving nodes, if anything does.
    pub(super) fn trouble(&self, now: Timestamp) -> Option<Trouble> {
        if let Err(why) = &self.home_words {
            let long = self
                .silent_since
                .is_some_and(|since| now.since(since) >= SILENT_AFTER);
            let text = format!("the home of the words does not answer ({why}): no node moves");
            return long.then_some(Trouble::Silent(text));
        }
        let look = self.home_look.as_ref()?;
        let ours = self.constitution().word();
        match look.state {
            HomeState::Joined => {}
            HomeState::Blank => {
                let text =
                    "the home has no words yet, or has lost them: they begin in half a second";
                return Some(Trouble::Begins(text.into()));
            }
            HomeState::Older => {
                let text = "moves by an older configuration are under way: they end first";
                return Some(Trouble::Begins(text.into()));
            }
            HomeState::Disagrees(there) => {
                return Some(Trouble::Disagrees(format!(
                    "another front-end has or had other sites, nodes, homes of nodes, min, max or priority (digest {:08x}, \
                     serial {}; here {:08x}, {}): this one moves no node until they are alike, or its `serial` is greater",
                    there.digest, there.serial, ours.digest, ours.serial
                )));
            }
        }
        if let Some(error) = look.garbled {
            let text = format!("a lock at the home was written by no front-end: {error}");
            return Some(Trouble::Garbled(text));
        }
        let (node, error) = self.garbled?;
        let name = self.constitution().node_name(node).unwrap_or_default();
        let text = format!("the word of node {name} was written by no front-end: {error}");
        Some(Trouble::Garbled(text))
    }
}

/// Whether a node was asked before this moment, as far as it answers.
fn is_older(reading: &NodeReading, than: Timestamp) -> bool {
    match reading {
        NodeReading::Read { asked_at, .. } => *asked_at < than,
        NodeReading::Silent | NodeReading::Unread => false,
    }
}
