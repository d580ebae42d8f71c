//! Words that a card serves: changed over RDMA, by datagrams and by the node itself, all at once; and by the reader, as the
//! director asks for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::load::{LoadTable, WordOp, WordReply};
use tidegate_core::record::AGGREGATE_LINES;
use tidegate_remote::rdma::{RdmaNode, RdmaNodeOptions};
use tidegate_remote::reader::{OneSided, ReaderHandle};
use tidegate_remote::udp::{UdpOptions, UdpRegion};
use tidegate_remote::{Refusal, Region, RegionError, RegionMemory, clock};

use super::any_port;
use super::processes::{Other, is_silent};
use super::reading::{Fickle, NODE, PATIENT, Publisher, read_into, until, until_it_stands};
use crate::support::rdma::{CARD, RdmaServer, handle, has_device, options};
use crate::support::{Node, UdpNode, key, record};

const ADDED: u32 = 60;
const SWAPPED: u32 = 61;
/// Atomics of each way.
const TIMES: u64 = 60;

fn by_udp(node: std::net::SocketAddr) -> UdpRegion {
    UdpRegion::connect(node, key(), crate::support::PATIENT).unwrap()
}

/// "Too old" says that it was not carried out, and never will be.
fn in_time(mut atomic: impl FnMut() -> Result<u64, RegionError>) -> u64 {
    loop {
        match atomic() {
            Err(RegionError::Refused(Refusal::TooOld)) => {}
            held => return held.unwrap(),
        }
    }
}

/// What one way saw: values that its additions found, and which value each of its swaps replaced.
fn use_words(number: u64, mut change: impl FnMut(u32, Option<(u64, u64)>) -> u64) -> Answers {
    let mut answers = Answers::default();
    let mut held = 0;
    for time in 1..=TIMES {
        answers.added.push(change(ADDED, None));
        let new = (number << 32) | time;
        loop {
            let found = change(SWAPPED, Some((held, new)));
            let expected = std::mem::replace(&mut held, found);
            if found == expected {
                answers.swapped.insert(new, expected);
                held = new;
                break;
            }
        }
    }
    answers
}

#[derive(Default)]
struct Answers {
    added: Vec<u64>,
    swapped: HashMap<u64, u64>,
}

#[test]
fn additions_and_swaps_by_all_ways_at_once_are_carried_out_once_each() {
    if !has_device() {
        return;
    }
    let node = RdmaServer::start();
    let (address, memory) = (node.address(), node.memory());
    let answers: Vec<Answers> = std::thread::scope(|scope| {
        let region = |number, mut region: Box<dyn Region + Send>| {
            scope.spawn(move || {
                use_words(number, |word, swap| {
                    in_time(|| match swap {
                        None => region.fetch_and_add(word, 1),
                        Some((expected, new)) => region.compare_and_swap(word, expected, new),
                    })
                })
            })
        };
        let threads = [
            region(1, Box::new(handle(address, crate::support::PATIENT))),
            region(2, Box::new(by_udp(address))),
            region(3, Box::new(by_udp(address))),
            scope.spawn(|| {
                use_words(4, |word, swap| match swap {
                    None => memory.fetch_and_add(word, 1).unwrap(),
                    Some((expected, new)) => memory.compare_and_swap(word, expected, new).unwrap(),
                })
            }),
        ];
        threads.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let mut added: Vec<_> = answers.iter().flat_map(|it| it.added.clone()).collect();
    added.sort_unstable();
    let expected: Vec<_> = (0..4 * TIMES).collect();
    assert_eq!(added, expected, "no two saw one value");
    let mut swaps: HashMap<u64, u64> = answers.into_iter().flat_map(|it| it.swapped).collect();
    assert_eq!(swaps.len() as u64, 4 * TIMES);
    let mut value = memory.word(SWAPPED).unwrap();
    while value != 0 {
        value = swaps.remove(&value).expect("each value was written once");
    }
    assert!(swaps.is_empty(), "every swap is in the chain");
}

/// Adds by datagrams where the node waits for its card no longer than this: (answered, carried out).
fn add_in_haste(words_wait: Duration, times: u64) -> (u64, u64) {
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    memory.publish(&record(1), &[]);
    let hasty = RdmaNodeOptions {
        words_wait,
        ..options(true)
    };
    let node = RdmaNode::new(&memory, &hasty).unwrap();
    let node = RdmaServer::with(memory, any_port(), node);
    let often = UdpOptions {
        wait: Duration::from_millis(2),
        tries: 4,
    };
    let mut datagrams = UdpRegion::connect(node.address(), key(), often).unwrap();
    let mut answered = 0;
    for _ in 0..times {
        match datagrams.fetch_and_add(ADDED, 1) {
            Ok(_) => answered += 1,
            Err(RegionError::Timeout { .. } | RegionError::Refused(Refusal::TooOld)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    let held = handle(node.address(), crate::support::PATIENT).fetch_and_add(ADDED, 0);
    // The record is read all the same, and nothing is said of word 0 that is not known.
    let read = by_udp(node.address()).read(AGGREGATE_LINES).unwrap();
    assert!(matches!(read.first_word, None | Some(0)));
    (answered, held.unwrap())
}

#[test]
fn an_atomic_whose_fate_is_unknown_is_neither_answered_nor_repeated() {
    const ASKED: u64 = 40;
    if !has_device() {
        return;
    }
    // From "none is begun" to "most are answered": waits that end in the middle cost the queue pairs.
    for wait_us in [20, 100, 300, 600, 1_200, 5_000] {
        let (answered, held) = add_in_haste(Duration::from_micros(wait_us), ASKED);
        println!("{wait_us} us: {held} of {ASKED} additions carried out, {answered} answered");
        assert!((answered..=ASKED).contains(&held), "{answered} {held}");
    }
}

#[test]
fn what_a_datagrams_atomic_takes_longer_by_the_card() {
    const MEASURED: usize = 200;
    if !has_device() {
        return;
    }
    let median = |mut region: UdpRegion| {
        let mut times: Vec<_> = (0..MEASURED)
            .map(|_| {
                let began = clock::now();
                in_time(|| region.fetch_and_add(ADDED, 1));
                clock::now().since(began)
            })
            .collect();
        times.sort_unstable();
        times[MEASURED / 2]
    };
    let (by_cpu, by_card) = (UdpNode::start(), RdmaServer::start());
    println!(
        "a datagram's addition: median {:?} by the CPU, {:?} by the card (emulated)",
        median(by_udp(by_cpu.address())),
        median(by_udp(by_card.address()))
    );
}

/// Asks as the director does, and waits for what comes of it.
struct Asker {
    table: Arc<LoadTable>,
}

const ADD_ONE: WordOp = WordOp::FetchAndAdd {
    word: ADDED,
    delta: 1,
};

impl Asker {
    fn ask(&self, op: WordOp) -> WordReply {
        self.answer(self.table.ask_word(NODE, op))
    }

    fn answer(&self, ticket: u32) -> WordReply {
        let mut reply = None;
        until(|| {
            reply = self.table.answered_word(NODE, ticket);
            reply.is_some()
        });
        reply.unwrap()
    }

    /// What the word held, once it is known that it was done.
    fn at_last(&self, op: WordOp) -> u64 {
        loop {
            if let WordReply::Done { held, node_now } = self.ask(op) {
                assert!(node_now <= clock::now(), "the node's clock is ours");
                return held;
            }
        }
    }
}

fn begin(address: std::net::SocketAddr, wait: Duration) -> (ReaderHandle, Asker) {
    let table = Arc::new(LoadTable::new(1, 1));
    let reader = read_into(Arc::clone(&table), address, wait);
    (reader, Asker { table })
}

#[test]
fn a_reader_changes_words_over_rdma() {
    if !has_device() {
        return;
    }
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let node = RdmaNode::new(&memory, &options(true)).unwrap();
    let node = RdmaServer::with(Arc::clone(&memory), any_port(), node);
    let _publisher = Publisher::start(&memory);
    let (reader, asker) = begin(node.address(), PATIENT);
    until_it_stands(&reader);
    // A busy machine may lose the link: then some go by datagrams until there is another one.
    let mut additions = Additions::default();
    let by_datagrams = || node.responder().stats().atomics;
    while (additions.done.len() as u64) < by_datagrams() + 50 {
        additions.note(asker.ask(ADD_ONE));
    }
    let Additions { done, lost } = additions;
    assert!(done.is_sorted_by(|one, other| one < other));
    let held = memory.word(ADDED).unwrap();
    let answered = done.len() as u64;
    assert!((answered..=answered + lost).contains(&held));
    // One that was lost may have been done.
    let swap = |expected, new| {
        let word = SWAPPED;
        asker.at_last(WordOp::CompareAndSwap {
            word,
            expected,
            new,
        })
    };
    assert!(matches!(swap(0, 9), 0 | 9));
    assert_eq!(swap(0, 8), 9);
    // A word that no node has is the node's to refuse.
    let nowhere = asker.ask(WordOp::FetchAndAdd {
        word: 512,
        delta: 1,
    });
    assert_eq!(nowhere, WordReply::Lost);
    // What reads tell of word 0 comes by the same way.
    memory.fetch_and_add(0, 77).unwrap();
    let told = || asker.table.first_word(NODE).map(|(held, _)| held);
    until(|| told() == Some(77));
}

#[test]
fn a_reader_changes_words_of_a_node_that_stands_still() {
    if !has_device() {
        return;
    }
    let node = Other::start(any_port(), false);
    let (reader, asker) = begin(node.address, PATIENT);
    until_it_stands(&reader);
    let before = asker.at_last(ADD_ONE);
    node.stop();
    assert!(is_silent(node.address));
    for number in 1..20 {
        assert_eq!(asker.at_last(ADD_ONE), before + number);
    }
    assert!(is_silent(node.address));
}

/// What came of a reader's additions.
#[derive(Default)]
struct Additions {
    /// What the word held before those that were done.
    done: Vec<u64>,
    lost: u64,
}

impl Additions {
    fn note(&mut self, reply: WordReply) {
        match reply {
            WordReply::Done { held, .. } => self.done.push(held),
            WordReply::Lost => self.lost += 1,
        }
    }

    /// Adds until something has come.
    fn until(&mut self, asker: &Asker, mut come: impl FnMut() -> bool) {
        while !come() {
            self.note(asker.ask(ADD_ONE));
        }
    }
}

#[test]
fn what_a_reader_asks_for_goes_by_datagrams_while_rdma_is_gone() {
    const GONE: usize = 1;
    if !has_device() {
        return;
    }
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let fickle = Fickle::default();
    let node = RdmaServer::with(Arc::clone(&memory), any_port(), fickle.clone());
    fickle.begin(&memory, true);
    let _publisher = Publisher::start(&memory);
    let (reader, asker) = begin(node.address(), CARD.wait);
    let stands = || reader.one_sided(NODE) == Some(OneSided::Stands);
    let mut additions = Additions::default();
    for _ in 0..GONE {
        additions.until(&asker, stands);
        // In the middle of one.
        let ticket = asker.table.ask_word(NODE, ADD_ONE);
        fickle.end();
        additions.note(asker.answer(ticket));
        let by_datagrams = || node.responder().stats().atomics;
        let before = by_datagrams();
        additions.until(&asker, || by_datagrams() > before + 5);
        fickle.begin(&memory, true);
    }
    additions.until(&asker, stands);
    let Additions { done, lost } = additions;
    let held = memory.word(ADDED).unwrap();
    println!(
        "{} additions done, {lost} lost; the word is {held}",
        done.len()
    );
    // Each is carried out once or not at all, and once where its answer came.
    assert!(done.is_sorted_by(|one, other| one < other));
    let answered = done.len() as u64;
    assert!((answered..=answered + lost).contains(&held));
}
