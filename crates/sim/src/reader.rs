//! One front-end's reads: which record of each node it has by now, and what of its own traffic
//! that record cannot have seen.

use tidegate_core::load::{LoadTable, NodeLoad, OwnTraffic, Recent};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;

use crate::node::Node;
use crate::own_log::{OwnLog, Polls};
use crate::reads::{LoadRead, Reads};

/// See the module.
#[derive(Debug)]
pub(crate) struct Reader {
    front_end: u32,
    groups: Vec<Group>,
    /// By the front-end's numbers of its nodes.
    links: Vec<Link>,
}

/// Nodes that are read at the same time and in the same way.
#[derive(Debug)]
struct Group {
    class: usize,
    phase: u32,
    regular: bool,
    /// The newest read that was looked for.
    newest: i64,
    /// Cluster's and own numbers.
    members: Vec<(u32, u32)>,
}

#[derive(Debug)]
struct Link {
    /// Own traffic now, and since when.
    now: OwnTraffic,
    changed_at: Timestamp,
    own: OwnLog,
    /// None if the node is not read.
    polls: Option<Polls>,
    /// The read whose record is known, -1 if there is none.
    read: i64,
    generation: u64,
    made_at: Timestamp,
}

impl Reader {
    pub(crate) fn new(front_end: u32, nodes: &[u32], reads: &Reads) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut links = Vec::with_capacity(nodes.len());
        for (local, node) in nodes.iter().enumerate() {
            let phase = reads.phase(front_end, *node as usize);
            let class = reads.class(*node as usize);
            links.push(Link {
                now: OwnTraffic::default(),
                changed_at: Timestamp::ZERO,
                own: OwnLog::default(),
                polls: class.map(|class| reads.polls(class, phase)),
                read: -1,
                generation: 0,
                made_at: Timestamp::ZERO,
            });
            let Some(class) = class else { continue };
            let member = (*node, local as u32);
            let alike = |group: &&mut Group| (group.class, group.phase) == (class, phase);
            match groups.iter_mut().find(alike) {
                Some(group) => group.members.push(member),
                None => groups.push(Group {
                    class,
                    phase,
                    regular: reads.classes[class].regular,
                    newest: -1,
                    members: vec![member],
                }),
            }
        }
        Self {
            front_end,
            groups,
            links,
        }
    }

    /// Own traffic to the node is this from now on.
    pub(crate) fn own_changed(&mut self, node: NodeId, own: OwnTraffic, now: Timestamp) {
        let link = &mut self.links[node.index()];
        if let Some(polls) = link.polls {
            (link.now, link.changed_at) = (own, now);
            link.own.push(now, own, polls);
        }
    }

    /// The nodes that were read last.
    fn recent(&self, now: Timestamp, reads: &Reads) -> Option<Recent> {
        let sent = |group: &Group| {
            let newest = reads.newest(group.class, group.phase, now);
            (newest >= 0).then(|| reads.polls(group.class, group.phase).at(newest))
        };
        let last = self.groups.iter().max_by_key(|group| sent(group))?;
        sent(last)?;
        let mut nodes = last.members.iter().map(|(_, local)| NodeId(*local));
        let first = nodes.next()?;
        Some(Recent::new(first, nodes.next_back().unwrap_or(first)))
    }

    /// Brings the table to what it would hold by now if each read had been taken in.
    pub(crate) fn catch_up(
        &mut self,
        now: Timestamp,
        nodes: &[Node],
        reads: &mut Reads,
        table: &LoadTable,
    ) {
        if reads.in_turn {
            table.set_recent(self.recent(now, reads));
        }
        for group in &mut self.groups {
            let newest = reads.newest(group.class, group.phase, now);
            // Where every read takes as long, nothing can have come since.
            if group.regular && newest <= group.newest {
                continue;
            }
            group.newest = newest;
            for (node, local) in &group.members {
                let link = &mut self.links[*local as usize];
                let pair = (self.front_end, *node as usize);
                if let Some(number) = reads.find(nodes, pair, (link.read, newest), now) {
                    link.read = number;
                    let phase = group.phase;
                    if let Some(load) = link.take(number, pair.1, phase, nodes, reads) {
                        table.store(NodeId(*local), &load);
                    }
                }
            }
        }
    }
}

impl Link {
    /// The load that a read tells, if it is news.
    fn take(
        &mut self,
        number: i64,
        node: usize,
        phase: u32,
        nodes: &[Node],
        reads: &mut Reads,
    ) -> Option<NodeLoad> {
        let read = reads.read(nodes, node, phase, number)?;
        if read.generation == self.generation && read.made_at <= self.made_at {
            return None;
        }
        self.generation = read.generation;
        self.made_at = read.made_at;
        // A record that was published came with an earlier read already.
        if read.timing.answered_at == read.made_at {
            return Some(NodeLoad {
                unseen_from: self.unseen_from(read, read.timing.received_at),
                ..read.load
            });
        }
        let read = *read;
        let first = reads.first_with(node, number, &read);
        let timing = reads.timing(nodes, node, phase, first);
        let received_at = timing.unwrap_or(read.timing).received_at;
        Some(NodeLoad {
            unseen_from: self.unseen_from(&read, received_at),
            ..read.load
        })
    }

    /// Own traffic that the record has seen: what was sent a one-way delay before it was made,
    /// and what had come back a one-way delay after.
    fn unseen_from(&self, read: &LoadRead, received_at: Timestamp) -> OwnTraffic {
        let Some(polls) = self.polls else {
            return OwnTraffic::default();
        };
        let timing = &read.timing;
        if read.made_at == timing.answered_at && timing.received_at == received_at {
            // Made at the read: seen are what had been sent and what had ended then.
            if self.changed_at <= timing.sent_at {
                return self.now;
            }
            return OwnTraffic {
                dispatched: self.own.at(timing.sent_at).dispatched,
                completed: self.own.at(received_at).completed,
            };
        }
        let one_way = timing.received_at.since(timing.sent_at) / 2;
        let observed_at = read.load.observed_at;
        let noted = |when| self.own.noted_at(when, received_at, polls);
        OwnTraffic {
            dispatched: noted(observed_at - one_way).dispatched,
            completed: noted(observed_at + one_way).completed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::counters::{CounterLog, Scope};
    use crate::node_model::Records;
    use crate::reads::WantedRates;
    use crate::scenario::Scenario;
    use tidegate_core::load::{History, Progress, Reading};
    use tidegate_core::prng::Prng;
    use tidegate_core::record::LoadRecord;

    const START: Timestamp = Timestamp::from_millis(1000);
    const NODE: NodeId = NodeId(0);
    const BOTH: WantedRates = WantedRates {
        utilization: true,
        request_times: true,
    };

    /// What happens in the test, at random.
    enum Step {
        Node,
        Silent(bool),
        Restart,
        Own,
        Sent,
        Reached(i64),
        Received(i64),
        Check,
    }

    /// A reader that takes in every single read, as a shell would drive the core's history.
    struct Eager {
        history: History,
        table: LoadTable,
        /// Everything, ever.
        log: CounterLog,
        answers: Vec<Option<(Timestamp, LoadRecord)>>,
    }

    impl Eager {
        fn note(&mut self, node: &mut Node) {
            while node.processor.poll_completed().is_some() {}
            node.note();
            self.log.push(node.processor.counters(), Timestamp::ZERO);
        }

        fn reached(&mut self, node: &Node, reads: &Reads, number: i64, now: Timestamp) {
            let class = &reads.classes[0];
            let silent = node.silent_since(now).is_some();
            let made_at = reads.made_at(class, 0, now).filter(|_| !silent);
            let seen = made_at.and_then(|made_at| {
                let (scope, sources) = (class.records.scope, class.sources);
                let counters = self.log.before(made_at)?;
                Some((now, counters.record_at(made_at, scope, sources)))
            });
            assert_eq!(self.answers.len() as i64, number);
            self.answers.push(seen);
        }

        fn received(&mut self, reads: &Reads, number: i64, now: Timestamp, own: OwnTraffic) {
            let class = &reads.classes[0];
            let Some((answered_at, mut record)) = self.answers[number as usize] else {
                return;
            };
            record.rung = class.records.rung as u8;
            record.interval_ns = class.published_ns;
            let reading = Reading {
                record: &record,
                sent_at: now - Duration::from_nanos(2 * class.one_way_ns),
                received_at: now,
                node_now_ns: Some(answered_at.nanos()),
            };
            if let Progress::Advanced(load) = self.history.accept(&reading, own) {
                self.table.store(NODE, &load);
            }
        }
    }

    fn steps(scenario: &Scenario, polls: Polls, prng: &mut Prng) -> Vec<(Timestamp, Step)> {
        let length = 400_000_000;
        let mut steps = Vec::new();
        let mut at_random = |mean: f64, step: fn() -> Step| {
            let mut at = prng.exponential(mean) as u64;
            while at < length {
                steps.push((START + Duration::from_nanos(at), step()));
                at += prng.exponential(mean) as u64 + 1;
            }
        };
        at_random(1.5e6, || Step::Node);
        at_random(3e6, || Step::Own);
        at_random(7e6, || Step::Check);
        let one_way = scenario.network.delay;
        for number in 0..(length / polls.interval_ns) as i64 {
            let sent = polls.at(number);
            steps.push((sent, Step::Sent));
            steps.push((sent + one_way, Step::Reached(number)));
            steps.push((sent + one_way * 2, Step::Received(number)));
        }
        if prng.unit() < 0.5 {
            let from = START + Duration::from_nanos(prng.bits() % length);
            let to = from + Duration::from_nanos(prng.bits() % 60_000_000);
            steps.push((from, Step::Silent(true)));
            if prng.unit() < 0.5 {
                steps.push((from, Step::Restart));
            }
            steps.push((to, Step::Silent(false)));
        }
        steps.sort_by_key(|(at, _)| *at);
        steps
    }

    /// Plays one history to both readers and compares their tables at each check.
    fn compare(records: Records, seed: u64) -> usize {
        let scenario = Scenario::new(1, 8, 0.5).records(|all| *all = records);
        let mut prng = Prng::new(seed);
        let mut reads = Reads::new(&scenario, BOTH, START);
        let front_end = prng.below(8) as u32;
        let polls = reads.polls(0, reads.phase(front_end, 0));
        let look_back = Some(reads.look_back());
        let mut nodes = [Node::new(&scenario.nodes[0], 0, seed, look_back, START)];
        let mut reader = Reader::new(front_end, &[0], &reads);
        let table = LoadTable::new(1, 1);
        let mut eager = Eager {
            history: History::default(),
            table: LoadTable::new(1, 1),
            log: CounterLog::default(),
            answers: Vec::new(),
        };
        eager.note(&mut nodes[0]);
        let mut own = OwnTraffic::default();
        let (mut task, mut checks) = (0, 0);
        for (now, step) in steps(&scenario, polls, &mut prng) {
            let node = &mut nodes[0];
            // Each completion is a change that the logs must know of.
            while let Some(due) = node.processor.next_completion().filter(|due| *due <= now) {
                node.processor.advance(due);
                eager.note(node);
            }
            node.processor.advance(now);
            match step {
                Step::Node if node.silent_since(now).is_some() => {}
                Step::Node => {
                    task += 1;
                    let demand = Duration::from_nanos(prng.exponential(4e6) as u64);
                    node.processor.arrive(now, task, demand);
                }
                Step::Silent(silent) => {
                    node.set_silent(silent, now);
                    node.processor.set_stopped(now, silent);
                }
                Step::Restart => node.restart(&scenario.nodes[0], now),
                Step::Own if prng.unit() < 0.5 => own.dispatched += 1,
                Step::Own => own.completed = own.dispatched.min(own.completed + 1),
                Step::Sent => eager.history.note_poll(now, own),
                Step::Reached(number) => eager.reached(node, &reads, number, now),
                Step::Received(number) => eager.received(&reads, number, now, own),
                Step::Check => {
                    reader.catch_up(now, &nodes, &mut reads, &table);
                    let read = format!("{:?}", table.last(NODE));
                    let wanted = format!("{:?}", eager.table.last(NODE));
                    assert_eq!(read, wanted, "seed {seed}, {records:?} at {now:?}");
                    checks += 1;
                }
            }
            eager.note(&mut nodes[0]);
            reader.own_changed(NODE, own, now);
        }
        checks
    }

    #[test]
    fn what_is_made_up_for_is_what_a_reader_of_every_record_knows() {
        let ms = Duration::from_millis;
        let every = |interval| Records {
            interval: ms(interval),
            ..Records::default()
        };
        let kinds = [
            every(1),
            every(7),
            every(50),
            Records {
                scope: Scope::Requests,
                in_flight: false,
                ..every(2)
            },
            Records {
                age: ms(20),
                ..every(1)
            },
            Records {
                published: ms(50),
                ..every(1)
            },
            Records {
                published: ms(12),
                age: ms(3),
                rung: tidegate_core::load::Rung::Agent,
                ..every(4)
            },
        ];
        for records in kinds {
            let checks: usize = (1..=20).map(|seed| compare(records, seed)).sum();
            assert!(checks > 500, "{checks}");
        }
    }
}
