//! One thread that asks nodes for their load and keeps the load table current.
//!
//! A node is asked each of its periods, the first time at a random moment of the second half of one (or of [`FIRST_MAX`]), by a task of its own: a poll that takes
//! longer than a period makes the next one late, and there are never two of a node under way. At most
//! [`POLLS_MAX`] are under way altogether. A node that streams its load has a task as well, which waits for reports. A node that
//! does not answer costs its polls and nothing else: its load grows old, and old is unknown.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::ids::NodeId;
use tidegate_core::load::{Exchange, LoadTable, ReportedLoad, ReportedValue};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::AgentNews;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::agent_check::AgentLine;
use crate::orca::OrcaStream;
use crate::source::{Poll, PollFault, Polled, Source, SourceConfig};

/// Most polls under way at a time.
const POLLS_MAX: usize = 64;
/// Longest wait for the first poll.
const FIRST_MAX: Duration = Duration::from_millis(500);

/// A node to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its place in the load table.
    pub node: NodeId,
    /// Which of the nodes that have its place.
    pub generation: u32,
    /// By what.
    pub source: SourceConfig,
}

/// How the polls of a node go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportStatus {
    /// Polls that were answered.
    pub answered: u64,
    /// Polls that were not, in time.
    pub timeouts: u64,
    /// Polls whose answer could not be true.
    pub implausible: u64,
    /// How long the last answer took.
    pub took: Duration,
    /// What is wrong now.
    pub fault: Option<PollFault>,
    /// What was heard of the node's agent, if it is one of HAProxy's that is asked.
    pub agent: Option<AgentHeard>,
}

impl ReportStatus {
    /// Before the first poll.
    fn of(target: &Target) -> Self {
        Self {
            agent: target.source.agent().map(AgentHeard::of),
            ..Self::default()
        }
    }
}

/// How a node's agent is heard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentHeard {
    /// Where it answers.
    pub address: Option<SocketAddr>,
    /// When it answered last.
    pub answered_at: Option<Timestamp>,
    /// Words of all answers that were not understood.
    pub ignored: u64,
    /// The last such word.
    pub ignored_word: Option<String>,
}

impl AgentHeard {
    /// Of an agent at this address that was not heard yet.
    fn of(address: SocketAddr) -> Self {
        Self {
            address: Some(address),
            ..Self::default()
        }
    }
}

/// What a node's agent has said.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSaid {
    /// The node's place in the load table.
    pub node: NodeId,
    /// Which of the nodes that have its place.
    pub generation: u32,
    /// That.
    pub news: AgentNews,
}

/// What asks; see [`ReportReader::spawn`].
#[derive(Debug)]
pub struct ReportReader;

impl ReportReader {
    /// Starts the thread, which asks until its handle is dropped; it calls `settle` first.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn spawn(
        table: Arc<LoadTable>,
        clock: fn() -> Timestamp,
        settle: fn(),
    ) -> std::io::Result<ReportReaderHandle> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (ended, end) = oneshot::channel();
        let thread = std::thread::Builder::new().name("reports".into());
        thread.spawn(move || {
            settle();
            // Nothing is ever sent: it ends as its sender does.
            runtime.block_on(end).ok();
            runtime.shutdown_background();
        })?;
        Ok(ReportReaderHandle {
            shared: Arc::new(Shared {
                nodes: Mutex::default(),
                table,
                clock,
                polls: Semaphore::new(POLLS_MAX),
                said: Mutex::default(),
            }),
            runtime: handle,
            _ended: ended,
        })
    }
}

/// A running reader; it ends when this is dropped.
#[derive(Debug)]
pub struct ReportReaderHandle {
    shared: Arc<Shared>,
    runtime: Handle,
    _ended: oneshot::Sender<Infallible>,
}

impl ReportReaderHandle {
    /// These nodes are asked from now on, in place of those before; what is known of those that stay is kept, also where they are
    /// asked otherwise. Nothing is written any more for the others once this returns.
    pub fn set_targets(&self, targets: Vec<Target>) {
        let mut nodes = self.shared.nodes();
        let left: Vec<_> = nodes
            .extract_if(.., |_, asked| !targets.contains(&asked.target))
            .map(|(_, asked)| asked)
            .collect();
        left.iter().for_each(|asked| asked.task.abort());
        for target in targets {
            nodes.entry(target.node.0).or_insert_with(|| {
                let shared = Arc::clone(&self.shared);
                let task = self.runtime.spawn(follow(shared, target.clone()));
                let kept = left.iter().find(|before| before.tells_of(&target));
                let (load, status) = match kept {
                    Some(before) => before.kept(),
                    None => (ReportedLoad::default(), ReportStatus::of(&target)),
                };
                Asked {
                    load,
                    status,
                    target,
                    task: task.abort_handle(),
                }
            });
        }
        for before in &left {
            let now = nodes.get(&before.target.node.0);
            if !now.is_some_and(|now| before.is_same_agent(&now.target)) {
                // It is not asked any more, and so what it said does not stand any more.
                self.shared.say(&before.target, AgentNews::anew());
            }
        }
    }

    /// What agents have said that is new since this was called last.
    pub fn poll_agents(&self) -> Vec<AgentSaid> {
        std::mem::take(&mut *self.shared.said())
            .into_values()
            .collect()
    }

    /// How the polls of a node go, if it is one of the targets.
    pub fn status(&self, node: NodeId) -> Option<ReportStatus> {
        let nodes = self.shared.nodes();
        nodes.get(&node.0).map(|asked| asked.status.clone())
    }
}

#[derive(Debug)]
struct Shared {
    /// By node.
    nodes: Mutex<BTreeMap<u32, Asked>>,
    table: Arc<LoadTable>,
    clock: fn() -> Timestamp,
    polls: Semaphore,
    /// What agents have said that was not polled yet, by node.
    said: Mutex<BTreeMap<u32, AgentSaid>>,
}

#[derive(Debug)]
struct Asked {
    target: Target,
    load: ReportedLoad,
    status: ReportStatus,
    task: AbortHandle,
}

impl Asked {
    fn is_same_agent(&self, other: &Target) -> bool {
        let (own, source) = (&self.target, &other.source);
        let is_node = (own.node, own.generation) == (other.node, other.generation);
        is_node && own.source.is_same_agent(source)
    }

    /// Whether what is known of its node is known of the target's: it is asked by other words, with other keys or as another user,
    /// and no other agent of HAProxy's.
    fn tells_of(&self, target: &Target) -> bool {
        let own = &self.target;
        let is_node = (own.node, own.generation) == (target.node, target.generation);
        let is_alike = own.source.rung() == target.source.rung() && own.source.agent().is_none();
        is_node && (is_alike || own.source.is_same_agent(&target.source))
    }

    /// What was wrong with the former questions is not wrong with the next ones.
    fn kept(&self) -> (ReportedLoad, ReportStatus) {
        let status = ReportStatus {
            fault: None,
            ..self.status.clone()
        };
        (self.load.clone(), status)
    }
}

impl Shared {
    fn nodes(&self) -> MutexGuard<'_, BTreeMap<u32, Asked>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn said(&self) -> MutexGuard<'_, BTreeMap<u32, AgentSaid>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the node's agent say this, after what it has said that was not polled yet.
    fn say(&self, target: &Target, news: AgentNews) {
        let (node, generation) = (target.node, target.generation);
        let said = AgentSaid {
            node,
            generation,
            news,
        };
        match self.said().entry(node.0) {
            Entry::Occupied(mut unheard) if unheard.get().generation == generation => {
                unheard.get_mut().news.then(said.news);
            }
            Entry::Occupied(mut unheard) => drop(unheard.insert(said)),
            Entry::Vacant(place) => drop(place.insert(said)),
        }
    }

    /// Keeps what a poll has come to, unless another node has the place by now.
    fn note(&self, target: &Target, polled: Result<Polled, PollFault>, exchange: &Exchange) {
        let mut nodes = self.nodes();
        let asked = nodes.get_mut(&target.node.0);
        let Some(asked) = asked.filter(|asked| asked.target == *target) else {
            return;
        };
        let status = &mut asked.status;
        match polled {
            Ok(polled) => {
                status.answered += 1;
                status.took = exchange.received_at.since(exchange.sent_at);
                match polled {
                    Polled::Values(values) => self.note_values(asked, &values, exchange),
                    Polled::Line(line) => self.note_line(asked, line, exchange),
                }
            }
            Err(fault) => {
                status.timeouts += u64::from(matches!(fault, PollFault::NoAnswer(_)));
                status.fault = Some(fault);
            }
        }
    }

    fn note_values(&self, asked: &mut Asked, values: &[ReportedValue], exchange: &Exchange) {
        let (status, target) = (&mut asked.status, &asked.target);
        let true_ones = values.iter().filter(|it| asked.load.note(it, exchange));
        let implausible = true_ones.count() < values.len();
        status.implausible += u64::from(implausible);
        status.fault = implausible.then_some(PollFault::Implausible);
        let load = asked.load.load(target.source.rung(), exchange.received_at);
        // What is not known any more stays in the table and grows old.
        if load.observed_at != Timestamp::ZERO {
            let measured = asked.load.measured(exchange.received_at);
            self.table.store_reported(target.node, &load, &measured);
        }
    }

    fn note_line(&self, asked: &mut Asked, line: AgentLine, exchange: &Exchange) {
        let (status, target) = (&mut asked.status, &asked.target);
        status.fault = None;
        let heard = status.agent.get_or_insert_default();
        heard.answered_at = Some(exchange.received_at);
        heard.ignored += u64::from(line.ignored);
        heard.ignored_word = line.ignored_word.or(heard.ignored_word.take());
        let news = AgentNews {
            anew: false,
            answer: line.answer,
            at: exchange.received_at,
            from: target.source.agent(),
        };
        self.say(target, news);
        let (rung, period) = (target.source.rung(), target.source.tick());
        self.table
            .store(target.node, &exchange.unmeasured(rung, period));
    }
}

/// Hears one node for ever.
async fn follow(shared: Arc<Shared>, target: Target) {
    // Not at once: a reader of records may be about to leave the node.
    let first_wait = target.source.tick().min(FIRST_MAX);
    sleep(first_wait.mul_f64((1.0 + random_share()) / 2.0)).await;
    match Source::new(&target.source) {
        Source::Asked(poll) => ask(&shared, &target, poll).await,
        Source::Streamed(stream) => take_in(&shared, &target, *stream).await,
    }
}

/// Asks a node each period.
async fn ask(shared: &Shared, target: &Target, mut poll: Poll) {
    let tick = target.source.tick();
    let first = (shared.clock)();
    let mut due = first;
    loop {
        // The semaphore is never closed.
        let Ok(permit) = shared.polls.acquire().await else {
            return;
        };
        let own = || shared.table.own(target.node);
        let (sent_at, own_sent) = ((shared.clock)(), own());
        let polled = poll.ask(sent_at.since(first)).await;
        let exchange = Exchange {
            sent_at,
            own_sent,
            own_received: own(),
            received_at: (shared.clock)(),
        };
        drop(permit);
        shared.note(target, polled, &exchange);
        let now = (shared.clock)();
        due = (due + tick).max(now);
        sleep(due.since(now)).await;
    }
}

/// Takes in what a node streams. It waits nearly always, and so takes no turn of those that ask.
async fn take_in(shared: &Shared, target: &Target, mut stream: OrcaStream) {
    loop {
        let report = stream.next().await;
        let is_broken = report.is_err();
        // A report is made when it is sent: it has seen what had come to the node by then, as far as is known here.
        let (now, own) = ((shared.clock)(), shared.table.own(target.node));
        let exchange = Exchange {
            sent_at: now,
            own_sent: own,
            own_received: own,
            received_at: now,
        };
        shared.note(target, report.map(Polled::Values), &exchange);
        if is_broken {
            let pause = stream.pause();
            sleep(pause.mul_f64((1.0 + random_share()) / 2.0)).await;
        }
    }
}

/// From 0 to 1: nodes that are added together are not asked together.
fn random_share() -> f64 {
    let bits = RandomState::new().hash_one(0_u8);
    f64::from(bits as u32) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use tidegate_core::load::{NodeLoad, OwnTraffic, ReportedMetric};

    use super::*;
    use crate::source::Secret;
    use crate::{Periods, SnmpConfig, SnmpVersion};

    const NOW: Timestamp = Timestamp::from_millis(10_000);
    const NODE: NodeId = NodeId(0);

    /// A target that is not asked while the test runs.
    fn target(generation: u32, community: &str) -> Target {
        let period = Duration::from_secs(600);
        let config = SnmpConfig {
            address: ([127, 0, 0, 1], 9).into(),
            version: SnmpVersion::V2c(Secret::new(community)),
            periods: Periods {
                usual: period,
                memory: period,
                files: period,
            },
            objects: Vec::new(),
        };
        Target {
            node: NODE,
            generation,
            source: SourceConfig::Snmp(config),
        }
    }

    fn exchange() -> Exchange {
        let none = OwnTraffic {
            dispatched: 0,
            completed: 0,
        };
        Exchange {
            sent_at: NOW,
            received_at: NOW,
            own_sent: none,
            own_received: none,
        }
    }

    fn note(reader: &ReportReaderHandle, target: &Target, metric: ReportedMetric, value: f32) {
        let value = ReportedValue {
            metric,
            value,
            period: Duration::from_secs(1),
            age: Duration::ZERO,
        };
        let values = Polled::Values(vec![value]);
        reader.shared.note(target, Ok(values), &exchange());
    }

    #[test]
    fn what_is_known_of_a_node_is_kept_where_it_is_asked_otherwise() {
        let table = Arc::new(LoadTable::new(1, 1));
        let reader = ReportReader::spawn(Arc::clone(&table), || NOW, || {}).unwrap();
        let [one, other] = ["one", "other"].map(|community| target(1, community));
        reader.set_targets(vec![one.clone()]);
        note(&reader, &one, ReportedMetric::Cpu, 0.5);
        reader
            .shared
            .note(&one, Err(PollFault::Malformed), &exchange());
        reader.set_targets(vec![other.clone()]);
        let status = reader.status(NODE).unwrap();
        assert_eq!((status.answered, status.fault), (1, None));
        note(&reader, &other, ReportedMetric::Memory, 0.25);
        // A poll of before that is late changes nothing.
        note(&reader, &one, ReportedMetric::Memory, 0.75);
        let of = |load: NodeLoad| (load.utilization, load.memory);
        assert_eq!(of(table.fresh(NODE, NOW).unwrap()), (0.5, 0.25));
        assert_eq!(reader.status(NODE).unwrap().answered, 2);
        // Another node has its place.
        let next = target(2, "other");
        reader.set_targets(vec![next.clone()]);
        assert_eq!(reader.status(NODE), Some(ReportStatus::default()));
        note(&reader, &next, ReportedMetric::Memory, 0.75);
        let load = table.fresh(NODE, NOW).unwrap();
        assert!(load.utilization.is_nan() && load.memory == 0.75, "{load:?}");
        reader.set_targets(Vec::new());
        assert_eq!(reader.status(NODE), None);
    }
}
