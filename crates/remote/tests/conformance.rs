//! What every transport holds to, and what only datagrams can do wrong.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

mod attacks;
mod rdma;
mod shared;
mod support;

use std::net::UdpSocket;
use std::time::Duration;

use attacks::Raw;
use support::*;
use tidegate_core::record::{AGGREGATE_LINES, LINE_BYTES, LINES_MAX};
use tidegate_core::time::{Timestamp, nanos};
use tidegate_remote::udp::wire::{
    DropReason, MESSAGE_BYTES_MAX, Reply, Request, Status, TRIAL, Verb, message_bytes,
};
use tidegate_remote::udp::{Key, ResponderOptions, UdpOptions, UdpRegion};
use tidegate_remote::{LATE_MAX, Refusal, Region, RegionError, RegionMemory, WORDS, clock};

/// The suite for one transport.
macro_rules! conforms {
    ($transport:ident: $node:ty; $($case:ident)*) => {
        mod $transport {
            $( #[test] fn $case() { super::$case::<$node>() } )*
        }
    };
}

/// Those that publish a record.
macro_rules! transports {
    ($($transport:ident: $node:ty,)*) => {
        $( conforms! { $transport: $node;
            what_is_published_is_read
            a_record_that_stands_still_is_read_again
            every_read_tells_word_0
            nothing_is_absent_until_it_is_published
            a_torn_record_is_never_given_out
            a_reader_beside_a_writer_sees_whole_records_in_order
            an_owner_that_ends_is_missed_and_the_next_one_is_found
            an_owner_that_was_replaced_is_left
        } )*
    };
}

/// All of them, and the kernel.
macro_rules! words {
    ($($transport:ident: $node:ty,)*) => {
        $( conforms! { $transport: $node;
            compare_and_swap_swaps_only_what_was_expected
            a_swap_that_comes_too_late_is_not_carried_out
            fetch_and_add_wraps
            a_word_that_does_not_exist_is_refused
            lines_that_no_record_has_are_refused
            additions_from_everywhere_add_up
            swaps_from_everywhere_are_won_once
        } )*
    };
}

transports! {
    shm: crate::support::ShmNode,
    udp: crate::support::UdpNode,
    by_rdma: crate::support::rdma::RdmaServer,
}

// Records go no other way than without a card.
conforms! { udp_beside_rdma: crate::support::rdma::BesideRdma;
    every_read_tells_word_0
    an_owner_that_ends_is_missed_and_the_next_one_is_found
    an_owner_that_was_replaced_is_left
}

words! {
    words_in_shm: crate::support::ShmNode,
    words_by_udp: crate::support::UdpNode,
    words_by_rdma: crate::support::rdma::RdmaServer,
    words_by_udp_beside_rdma: crate::support::rdma::BesideRdma,
    words_in_the_kernel: crate::support::kernel::KernelNode,
}

fn what_is_published_is_read<N: Node>() {
    let Some(node) = N::begin() else { return };
    let mut handle = node.handle();
    for number in 1..4 {
        node.memory().publish(&record(number), &[cpu(number)]);
        for lines in [AGGREGATE_LINES, LINES_MAX] {
            let read = handle.read(lines).unwrap();
            assert_eq!(read.bytes().len(), lines * LINE_BYTES);
            assert!(read.received_at >= read.sent_at);
            assert!(read.node_now_ns.is_some());
            let seen = read.record().unwrap();
            assert_eq!((seen.t_ns, seen.busy_ns), (number, number * 3));
            assert_eq!(seen.generation, node.memory().generation());
            let cpus: Vec<_> = seen.cpus(read.bytes()).collect();
            let asked = lines > AGGREGATE_LINES;
            assert_eq!(cpus, if asked { vec![cpu(number)] } else { vec![] });
        }
    }
}

fn a_record_that_stands_still_is_read_again<N: Node>() {
    let Some(node) = N::begin() else { return };
    let mut handle = node.handle();
    node.memory().publish(&record(1), &[]);
    let first = handle.read(AGGREGATE_LINES).unwrap();
    let second = handle.read(AGGREGATE_LINES).unwrap();
    assert_eq!(first.bytes(), second.bytes());
    assert!(second.sent_at >= first.received_at);
}

fn every_read_tells_word_0<N: Node>() {
    let Some(node) = N::begin() else { return };
    let mut handle = node.handle();
    node.memory().publish(&record(1), &[]);
    assert_eq!(handle.read(AGGREGATE_LINES).unwrap().first_word, Some(0));
    // By whatever way the words of this node are changed.
    node.handle().compare_and_swap(0, 0, 77).unwrap();
    for lines in [AGGREGATE_LINES, LINES_MAX] {
        assert_eq!(handle.read(lines).unwrap().first_word, Some(77), "{lines}");
    }
    handle.compare_and_swap(0, 77, 78).unwrap();
    assert_eq!(
        node.handle().read(AGGREGATE_LINES).unwrap().first_word,
        Some(78)
    );
}

fn nothing_is_absent_until_it_is_published<N: Node>() {
    let Some(node) = N::begin() else { return };
    let mut handle = node.handle();
    assert!(matches!(handle.read(1), Err(RegionError::Absent)));
    node.memory().publish(&record(1), &[]);
    handle.read(AGGREGATE_LINES).unwrap();
}

fn a_torn_record_is_never_given_out<N: Node>() {
    let Some(node) = N::begin() else { return };
    let mut handle = node.handle();
    node.memory().publish(&record(1), &[]);
    for line in 0..AGGREGATE_LINES as u64 {
        for end in [0, LINE_BYTES as u64 - 4] {
            let at = line * LINE_BYTES as u64 + end;
            tear(node.memory(), at);
            // A responder may still have the last whole one.
            match handle.read(AGGREGATE_LINES) {
                Ok(read) => assert_eq!(read.record().unwrap().t_ns, 1),
                Err(error) => assert!(matches!(error, RegionError::Torn), "{error}"),
            }
            tear(node.memory(), at);
        }
    }
    node.memory().publish(&record(2), &[]);
    let read = handle.read(AGGREGATE_LINES).unwrap();
    assert_eq!(read.record().unwrap().t_ns, 2);
}

fn a_reader_beside_a_writer_sees_whole_records_in_order<N: Node>() {
    const READS: usize = 2_000;
    let Some(node) = N::begin() else { return };
    node.memory().publish(&record(1), &[]);
    let done = std::sync::atomic::AtomicBool::new(false);
    let memory = node.memory();
    let mut handle = node.handle();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 1;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                number += 1;
                memory.publish(&record(number), &[cpu(number)]);
            }
        });
        let mut last = 0;
        for _ in 0..READS {
            match handle.read(LINES_MAX) {
                Ok(read) => {
                    let seen = read.record().unwrap();
                    assert_eq!(seen.completions, seen.t_ns * 7);
                    assert!(seen.t_ns >= last);
                    last = seen.t_ns;
                }
                // A writer that never rests may win every try.
                Err(error) => assert!(matches!(error, RegionError::Torn), "{error}"),
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

fn an_owner_that_ends_is_missed_and_the_next_one_is_found<N: Node>() {
    let Some(mut node) = N::begin() else { return };
    let mut handle = node.handle();
    node.memory().publish(&record(9), &[]);
    let before = handle.read(AGGREGATE_LINES).unwrap().record().unwrap();
    assert_eq!(handle.fetch_and_add(0, 5).unwrap(), 0);
    node.restart();
    node.memory().publish(&record(1), &[]);
    let after = handle.read(AGGREGATE_LINES).unwrap().record().unwrap();
    assert_eq!(
        after.t_ns, 1,
        "the new owner's record, though its clock is behind"
    );
    assert_ne!(after.generation, before.generation);
    // Words start anew. The transport may say so first.
    let word = match handle.fetch_and_add(0, 1) {
        Err(RegionError::Restarted) => handle.fetch_and_add(0, 1),
        word => word,
    };
    assert_eq!(word.unwrap(), 0);
    assert_eq!(node.memory().word(0).unwrap(), 1);
}

fn an_owner_that_was_replaced_is_left<N: Node>() {
    let Some(mut node) = N::begin() else { return };
    let mut handle = node.handle();
    for round in 1..20 {
        node.memory().publish(&record(round), &[]);
        let read = handle.read(AGGREGATE_LINES).unwrap();
        assert_eq!(read.record().unwrap().t_ns, round);
        node.restart();
    }
}

fn compare_and_swap_swaps_only_what_was_expected<W: Words>() {
    let Some(node) = W::begin() else { return };
    let (mut one, mut other) = (node.initiator(), node.initiator());
    assert_eq!(one.compare_and_swap(3, 0, 10).unwrap(), 0);
    assert_eq!(other.compare_and_swap(3, 0, 11).unwrap(), 10);
    assert_eq!(node.word(3), 10);
    assert_eq!(other.compare_and_swap(3, 10, u64::MAX).unwrap(), 10);
    assert_eq!(node.word(3), u64::MAX);
    assert_eq!(node.word(2), 0);
}

/// A swap that was decided this long ago, as after a pause of its process.
fn decided_ago(ago: Duration) -> Timestamp {
    Timestamp::from_nanos(clock::now().nanos() - nanos(ago))
}

fn a_swap_that_comes_too_late_is_not_carried_out<W: Words>() {
    let Some(node) = W::begin() else { return };
    let mut handle = node.initiator();
    let late = decided_ago(LATE_MAX + Duration::from_millis(1));
    let mut swap = |since| handle.compare_and_swap_since(3, 0, 10, since);
    let refused = swap(late).unwrap_err();
    let too_old = matches!(refused, RegionError::Refused(Refusal::TooOld));
    assert!(too_old, "{refused}");
    assert_eq!(node.word(3), 0);
    // On a machine that stands still for as long as that, one that is decided now comes too late as well.
    assert_eq!(until_in_time(|| swap(clock::now())), 0);
    assert_eq!(node.word(3), 10);
}

fn fetch_and_add_wraps<W: Words>() {
    let Some(node) = W::begin() else { return };
    let mut handle = node.initiator();
    let last = WORDS as u32 - 1;
    assert_eq!(handle.fetch_and_add(last, u64::MAX).unwrap(), 0);
    assert_eq!(handle.fetch_and_add(last, 3).unwrap(), u64::MAX);
    assert_eq!(handle.fetch_and_add(last, 0).unwrap(), 2);
}

fn a_word_that_does_not_exist_is_refused<W: Words>() {
    let Some(node) = W::begin() else { return };
    let mut handle = node.initiator();
    for word in [WORDS as u32, 65_535, 65_536 + 3, u32::MAX] {
        for refused in [
            handle.fetch_and_add(word, 1),
            handle.compare_and_swap(word, 0, 1),
        ] {
            assert!(
                matches!(refused, Err(RegionError::Refused(Refusal::Word(named))) if named == word),
                "{word}: {refused:?}"
            );
        }
    }
    assert!((0..WORDS as u32).all(|word| node.word(word) == 0));
}

fn lines_that_no_record_has_are_refused<W: Words>() {
    let Some(node) = W::begin() else { return };
    let mut handle = node.initiator();
    for lines in [0, LINES_MAX + 1, 261, usize::MAX] {
        let refused = handle.read(lines).unwrap_err();
        assert!(matches!(refused, RegionError::Refused(Refusal::Lines(named)) if named == lines));
    }
}

/// An atomic that happens in the end: while its initiator is known, "too old" says that it was not
/// carried out and never will be, as on a machine that stands still for longer than that.
fn until_in_time(mut atomic: impl FnMut() -> Result<u64, RegionError>) -> u64 {
    loop {
        match atomic() {
            Err(RegionError::Refused(Refusal::TooOld)) => {}
            held => return held.unwrap(),
        }
    }
}

fn additions_from_everywhere_add_up<W: Words>() {
    const THREADS: usize = 4;
    const ADDITIONS: u64 = 500;
    let Some(node) = W::begin() else { return };
    let handles: Vec<_> = (0..THREADS).map(|_| node.initiator()).collect();
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = handles
            .into_iter()
            .map(|mut handle| {
                scope.spawn(move || {
                    let add = |_| until_in_time(|| handle.fetch_and_add(7, 1));
                    (0..ADDITIONS).map(add).collect::<Vec<_>>()
                })
            })
            .collect();
        for thread in threads {
            let values = thread.join().unwrap();
            assert!(values.is_sorted());
            seen.extend(values);
        }
    });
    // Every value was seen by one addition: none was lost, none done twice.
    seen.sort_unstable();
    let expected: Vec<_> = (0..THREADS as u64 * ADDITIONS).collect();
    assert_eq!(seen, expected);
}

fn swaps_from_everywhere_are_won_once<W: Words>() {
    const THREADS: u64 = 4;
    const SWAPS: u64 = 200;
    let Some(node) = W::begin() else { return };
    let handles: Vec<_> = (0..THREADS).map(|_| node.initiator()).collect();
    std::thread::scope(|scope| {
        for mut handle in handles {
            scope.spawn(move || {
                let mut expected = 0;
                for _ in 0..SWAPS {
                    loop {
                        let swap = || handle.compare_and_swap(1, expected, expected + 1);
                        let held = until_in_time(swap);
                        if held == expected {
                            break;
                        }
                        expected = held;
                    }
                }
            });
        }
    });
    assert_eq!(node.word(1), THREADS * SWAPS);
}

// What follows is about datagrams only.

fn dropped(node: &UdpNode, reason: DropReason) -> u64 {
    let stats = node.responder().stats();
    stats
        .dropped
        .iter()
        .find(|(other, _)| *other == reason)
        .unwrap()
        .1
}

#[test]
fn a_wrong_key_gets_no_answer_and_changes_nothing() {
    let node = UdpNode::start();
    node.memory().publish(&record(1), &[]);
    let wrong = Key::new("n1", 0xff0102030405060708090a0b0c0d0e0f_u128.to_be_bytes());
    let mut handle = UdpRegion::connect(node.address(), wrong, IMPATIENT).unwrap();
    assert!(matches!(
        handle.read(1),
        Err(RegionError::Timeout { tries: 2 })
    ));
    assert!(matches!(
        handle.fetch_and_add(0, 1),
        Err(RegionError::Timeout { tries: 2 })
    ));
    // The responder takes them in order: once this answer is here, it has seen the others.
    node.handle().read(AGGREGATE_LINES).unwrap();
    assert_eq!(dropped(&node, DropReason::Key), 4);
    assert_eq!(node.memory().word(0).unwrap(), 0);
}

#[test]
fn a_read_that_tries_an_unknown_key_is_counted_apart() {
    let node = UdpNode::start();
    node.memory().publish(&record(1), &[]);
    let front_end = UdpSocket::bind("127.0.0.1:0").unwrap();
    let wrong = Key::new("n1", 0xff0102030405060708090a0b0c0d0e0f_u128.to_be_bytes());
    let ask = |request: Request, key: &Key| {
        let mut message = [0; MESSAGE_BYTES_MAX];
        request.encode(key, message.first_chunk_mut().unwrap());
        let message = &message[..message_bytes(request.lines)];
        front_end.send_to(message, node.address()).unwrap();
    };
    let read = Request::read(1, 1, 1);
    let trial = Request {
        word: TRIAL,
        ..read
    };
    let atomic = Request {
        verb: Verb::FetchAndAdd,
        lines: 0,
        ..trial
    };
    for request in [read, trial, trial, atomic] {
        ask(request, &wrong);
    }
    ask(trial, &key());
    node.handle().read(AGGREGATE_LINES).unwrap();
    assert_eq!(dropped(&node, DropReason::Key), 4);
    let stats = node.responder().stats();
    assert_eq!((stats.trials, stats.reads), (2, 2));
}

#[test]
fn an_answer_made_with_another_key_is_not_believed() {
    let impostor = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = impostor.local_addr().unwrap();
    let options = UdpOptions {
        tries: 1,
        ..IMPATIENT
    };
    let mut handle = UdpRegion::connect(address, key(), options).unwrap();
    let thread = std::thread::spawn(move || {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let (length, from) = impostor.recv_from(&mut bytes).unwrap();
        let (request, _) = Request::decode(&bytes[..length], &[key()]).unwrap();
        answer(&request, 0).encode(&Key::random("n1").unwrap(), &mut bytes[..length]);
        impostor.send_to(&bytes[..length], from).unwrap();
    });
    let refused = handle.read(1).unwrap_err();
    thread.join().unwrap();
    // On a machine that was too slow for the wait, the answer did not come in time.
    assert!(matches!(
        refused,
        RegionError::WrongKey { forged: 1 } | RegionError::Timeout { .. }
    ));
}

fn answer(request: &Request, value: u64) -> Reply {
    Reply {
        verb: request.verb,
        lines: request.lines,
        status: Status::Done,
        initiator: request.initiator,
        sequence: request.sequence,
        nonce: request.nonce,
        node_now_ns: 1,
        value,
        readers: 0,
        epoch: 1,
    }
}

#[test]
fn a_replayed_atomic_is_carried_out_once() {
    let node = UdpNode::start();
    let raw = Raw::to(&node);
    let mut add = Request {
        verb: Verb::FetchAndAdd,
        word: 5,
        operand: 3,
        ..Request::read(0, 77, 1)
    };
    // A first one learns the epoch and is not carried out.
    let refused = raw.ask(&add);
    assert_eq!(refused.status, Status::Epoch);
    add.epoch = refused.epoch;
    add.sequence = refused.node_now_ns;
    for nonce in 2..6 {
        let reply = raw.ask(&Request { nonce, ..add });
        assert_eq!((reply.status, reply.value), (Status::Done, 0));
    }
    assert_eq!(node.memory().word(5).unwrap(), 3);
    let next = Request {
        sequence: add.sequence + 1,
        ..add
    };
    assert_eq!(raw.ask(&next).value, 3);
    // The old one comes late, byte by byte the same.
    assert_eq!(raw.ask(&add).status, Status::Stale);
    // The same number for another thing is a mistake or an attack.
    let other = Request { operand: 4, ..next };
    assert_eq!(raw.ask(&other).status, Status::Stale);
    assert_eq!(node.memory().word(5).unwrap(), 6);
    let stats = node.responder().stats();
    assert_eq!((stats.atomics, stats.repeated, stats.refused), (2, 3, 3));
}

#[test]
fn a_network_that_doubles_and_loses_changes_nothing() {
    const ADDITIONS: u64 = 20;
    let node = UdpNode::start();
    let network = BadNetwork::before(node.address());
    let options = UdpOptions {
        wait: Duration::from_millis(20),
        tries: 16,
    };
    let mut handle = UdpRegion::connect(network.address(), key(), options).unwrap();
    for number in 0..ADDITIONS {
        assert_eq!(handle.fetch_and_add(2, 1).unwrap(), number);
        node.memory().publish(&record(number + 1), &[]);
        let read = handle.read(AGGREGATE_LINES).unwrap();
        assert_eq!(read.record().unwrap().t_ns, number + 1);
    }
    assert_eq!(node.memory().word(2).unwrap(), ADDITIONS);
    assert!(node.responder().stats().repeated >= ADDITIONS);
}

#[test]
fn what_is_not_padded_or_not_ours_is_dropped_and_counted() {
    let node = UdpNode::start();
    node.memory().publish(&record(1), &[]);
    let raw = Raw::to(&node);
    let mut bytes = vec![0; message_bytes(5)];
    Request::read(5, 1, 1).encode(&key(), bytes.first_chunk_mut().unwrap());
    raw.send(&bytes[..64]);
    raw.send(&[&bytes[..], &[0; 2000]].concat());
    raw.send(b"GET / HTTP/1.1\r\n\r\n");
    raw.send(&[]);
    raw.send(&[0x20; 64]);
    bytes[60] ^= 1;
    raw.send(&bytes);
    // Answered after all of these were taken in.
    raw.ask(&Request::read(1, 1, 2));
    let counts = [
        (DropReason::Length, 2),
        (DropReason::Short, 2),
        (DropReason::Magic, 1),
        (DropReason::Mac, 1),
        (DropReason::Source, 0),
    ];
    for (reason, expected) in counts {
        assert_eq!(dropped(&node, reason), expected, "{reason:?}");
    }
    assert_eq!(node.responder().stats().reads, 1);
}

#[test]
fn sources_that_are_not_on_the_list_get_nothing() {
    let node = UdpNode::with(ResponderOptions {
        allow: vec![
            "127.0.0.2/32".parse().unwrap(),
            "10.0.0.0/8".parse().unwrap(),
        ],
        ..UdpNode::options("127.0.0.1:0".parse().unwrap())
    });
    node.memory().publish(&record(1), &[]);
    let mut refused = UdpRegion::connect(node.address(), key(), IMPATIENT).unwrap();
    assert!(matches!(refused.read(1), Err(RegionError::Timeout { .. })));
    let allowed = UdpSocket::bind("127.0.0.2:0").unwrap();
    allowed.connect(node.address()).unwrap();
    let allowed = Raw::by(allowed);
    assert_eq!(allowed.ask(&Request::read(1, 1, 2)).status, Status::Done);
    assert_eq!(dropped(&node, DropReason::Source), 2);
}

#[test]
fn an_answer_comes_from_the_address_that_was_asked() {
    for (listen, asked) in [("0.0.0.0:0", "127.0.0.3"), ("[::]:0", "::1")] {
        let node = match std::panic::catch_unwind(|| UdpSocket::bind(listen).unwrap()) {
            Ok(_) => UdpNode::with(UdpNode::options(listen.parse().unwrap())),
            Err(_) => {
                println!("SKIPPED {listen}: it cannot be bound here");
                continue;
            }
        };
        node.memory().publish(&record(1), &[]);
        // The handle's socket is connected: it hears no other address.
        let address = (
            asked.parse::<std::net::IpAddr>().unwrap(),
            node.address().port(),
        );
        let mut handle = UdpRegion::connect(address.into(), key(), PATIENT).unwrap();
        handle.read(AGGREGATE_LINES).unwrap();
    }
}

#[test]
fn front_ends_that_read_are_counted() {
    let node = UdpNode::start();
    node.memory().publish(&record(1), &[]);
    let mut handles: Vec<_> = (0..3).map(|_| node.handle()).collect();
    let mut most = 0;
    for _ in 0..2 {
        for handle in &mut handles {
            most = most.max(handle.read(AGGREGATE_LINES).unwrap().readers.unwrap());
        }
    }
    // A first read counts no front-end. Two rounds may straddle two seconds on a slow machine, but not
    // count a front-end twice.
    assert!((1..=3).contains(&most), "{most}");
}

#[test]
fn old_and_new_key_are_both_served_while_keys_change() {
    let new = Key::random("n1").unwrap();
    let node = UdpNode::with(ResponderOptions {
        keys: vec![key(), new.clone()],
        ..UdpNode::options("127.0.0.1:0".parse().unwrap())
    });
    node.memory().publish(&record(1), &[]);
    for key in [key(), new] {
        let mut handle = UdpRegion::connect(node.address(), key, PATIENT).unwrap();
        handle.read(AGGREGATE_LINES).unwrap();
        handle.fetch_and_add(0, 1).unwrap();
    }
    assert_eq!(node.memory().word(0).unwrap(), 2);
}

#[test]
fn an_agent_can_publish_at_the_moment_of_the_read() {
    use std::sync::Arc;
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let publisher = Arc::clone(&memory);
    let mut number = 0;
    let before_read = tidegate_remote::udp::BeforeRead {
        every: Duration::ZERO,
        hook: Box::new(move |_| {
            number += 1;
            publisher.publish(&record(number), &[]);
        }),
    };
    let options = ResponderOptions {
        before_read: Some(before_read),
        ..UdpNode::options("127.0.0.1:0".parse().unwrap())
    };
    let responder = tidegate_remote::udp::Responder::spawn(memory, options).unwrap();
    let mut handle = UdpRegion::connect(responder.address(), key(), PATIENT).unwrap();
    for number in 1..4 {
        let read = handle.read(AGGREGATE_LINES).unwrap();
        assert_eq!(read.record().unwrap().t_ns, number);
    }
}

#[test]
fn nobody_there_is_said_at_once_or_times_out() {
    let mut node = UdpNode::start();
    let mut handle = UdpRegion::connect(node.address(), key(), IMPATIENT).unwrap();
    node.stop();
    let refused = handle.read(1).unwrap_err();
    assert!(
        matches!(
            refused,
            RegionError::Io { .. } | RegionError::Timeout { .. }
        ),
        "{refused}"
    );
}
