//! What is known of the sources, for the log, the metrics and the admin interface.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use tidegate_core::time::Timestamp;
use tidegate_core::topology::discovered::{Departure, DiscoveryEvent};
use tidegate_discover::{Asked, Naming, SourceConfig};
use tidegate_remote::clock;

use crate::config::NodeSource;
use crate::output::Output;

/// Last events of a source that are kept.
const EVENTS_MAX: usize = 20;
/// Events of one answer that are logged.
const LOGGED_MAX: usize = 50;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SourceBook(Mutex<BTreeMap<String, SourceState>>);

/// A source.
#[derive(Clone, Debug)]
pub(crate) struct SourceState {
    config: SourceConfig,
    /// What is asked: `dns web.internal, port 80`.
    pub(crate) what: String,
    /// The site of its nodes.
    pub(crate) site: String,
    /// Answers so far.
    pub(crate) answers: u64,
    /// Questions without one.
    pub(crate) failures: u64,
    /// The last answer.
    pub(crate) answered: Option<Timestamp>,
    /// How many nodes were in it, and how many of these cannot be used.
    pub(crate) found: usize,
    pub(crate) refused: usize,
    /// Why the last question had no answer, or its nodes were not taken over.
    pub(crate) error: Option<String>,
    /// What has changed, the last first.
    pub(crate) events: VecDeque<SourceEvent>,
    many: bool,
}

/// Something that has happened at a source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SourceEvent {
    /// When.
    pub(crate) at: Timestamp,
    /// What, in a sentence.
    pub(crate) text: String,
}

impl SourceState {
    fn new(source: &NodeSource) -> Self {
        Self {
            config: source.config.clone(),
            what: source.config.kind.to_string(),
            site: source.site.clone(),
            answers: 0,
            failures: 0,
            answered: None,
            found: 0,
            refused: 0,
            error: None,
            events: VecDeque::new(),
            many: false,
        }
    }

    fn note(&mut self, at: Timestamp, text: String) {
        self.events.truncate(EVENTS_MAX - 1);
        self.events.push_front(SourceEvent { at, text });
    }
}

impl SourceBook {
    /// These are the sources from now on. What is known of those that are as they were stays.
    pub(super) fn set(&self, sources: &[NodeSource]) {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *states);
        for source in sources {
            let name = &source.config.name;
            let kept = before.remove(name).filter(|it| it.config == source.config);
            let mut state = kept.unwrap_or_else(|| SourceState::new(source));
            state.site.clone_from(&source.site);
            states.insert(name.clone(), state);
        }
    }

    /// All, by their names.
    pub(crate) fn all(&self) -> BTreeMap<String, SourceState> {
        let states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.clone()
    }

    /// A source was asked.
    pub(super) fn asked(&self, source: &str, asked: &Asked, output: Output) {
        self.with(source, |state, now| {
            let mut lines = Vec::new();
            match &asked.answer {
                Ok(found) => {
                    state.answers += 1;
                    state.answered = Some(now);
                    state.found = *found;
                    state.refused = asked.refused;
                    state.error = None;
                    let many = many(&state.config, *found);
                    if many.is_some() != state.many {
                        state.many = many.is_some();
                        lines.extend(many.map(|text| ("node_addresses", text)));
                    }
                }
                Err(why) => {
                    state.failures += 1;
                    state.error = Some(why.clone());
                }
            }
            let name = called(source);
            for event in &asked.events {
                let (event, text) = describe(event);
                state.note(now, text.clone());
                lines.push((event, format!("{name}: {text}")));
            }
            let over = lines.len().saturating_sub(LOGGED_MAX);
            for (event, text) in lines.iter().take(LOGGED_MAX) {
                output.event(event, text);
            }
            if over > 0 {
                output.event("discovery", &format!("{name}: and {over} events more"));
            }
        });
    }

    /// Its nodes were taken over or not.
    pub(super) fn announced(&self, source: &str, done: &Result<(), String>, output: Output) {
        let Err(why) = done else { return };
        self.with(source, |state, now| {
            let text = format!("its nodes are not taken over: {why}");
            if state.error.as_ref() != Some(&text) {
                output.event("source_failed", &format!("{}: {text}", called(source)));
                state.note(now, text.clone());
            }
            state.error = Some(text);
        });
    }

    fn with(&self, source: &str, change: impl FnOnce(&mut SourceState, Timestamp)) {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = states.get_mut(source) {
            change(state, clock::now());
        }
    }
}

/// A source in a sentence: those of single nodes are called by their nodes.
pub(super) fn called(source: &str) -> String {
    match source.contains(' ') {
        true => source.into(),
        false => format!("source {source}"),
    }
}

/// What is said of a node whose name has several addresses.
pub(super) fn many(config: &SourceConfig, found: usize) -> Option<String> {
    match &config.naming {
        Naming::Single(node) if found > 1 => Some(format!(
            "node {node}: its host name has {found} addresses, of which it has one; \
             [[discover]] makes a node of each"
        )),
        Naming::Single(_) | Naming::Prefix(_) => None,
    }
}

/// An event's name and its text.
pub(super) fn describe(event: &DiscoveryEvent) -> (&'static str, String) {
    let why = |departure: &Departure| match departure {
        Departure::Absent => "",
        Departure::Ends => ", which the source says will end",
        Departure::AbsentForLong => ", for long enough that more than max_drop go",
    };
    match event {
        DiscoveryEvent::Added(node) => (
            "node_added",
            format!("node {} at {} is new", node.name, node.address),
        ),
        DiscoveryEvent::Removed(node, departure) => (
            "node_removed",
            format!(
                "node {node} is not in the answer any more{}",
                why(departure)
            ),
        ),
        DiscoveryEvent::Moved(node, departure) => (
            "node_moved",
            format!(
                "node {} is at {} now{}",
                node.name,
                node.address,
                why(departure)
            ),
        ),
        DiscoveryEvent::Reweighted(node) => (
            "node_weight",
            format!("node {} has the weight {}", node.name, node.weight),
        ),
        DiscoveryEvent::Refused(node, unfit) => (
            "node_refused",
            format!("node {node} cannot be used: {unfit}"),
        ),
        DiscoveryEvent::HeldBack(node) => (
            "node_held_back",
            format!("node {node} comes and goes too often, and waits before it is used again"),
        ),
        DiscoveryEvent::Kept(count) => (
            "nodes_kept",
            format!(
                "{count} nodes that the answer lacks stay: more than max_drop at once; they go if they are absent \
                 for `hold`"
            ),
        ),
        DiscoveryEvent::Full(count) => (
            "nodes_full",
            format!("{count} nodes of the answer find no room: the most are `nodes`"),
        ),
        DiscoveryEvent::Failed(why) => {
            ("source_failed", format!("{why}; the last good nodes stay"))
        }
        DiscoveryEvent::Recovered => ("source_recovered", "it answers again".into()),
    }
}
