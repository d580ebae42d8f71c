//! The reader against real regions and responders of this process. Nothing here says how fast.

use std::net::UdpSocket;
use std::time::Instant;

use tidegate_core::load::{Rung, WordOp, WordReply};
use tidegate_core::record::{LoadRecord, Sources};
use tidegate_core::time::Timestamp;

use super::*;
use crate::udp::wire::{MESSAGE_BYTES_MAX, Reply, Request, Status};
use crate::udp::{Responder, ResponderOptions};
use crate::{RegionMemory, clock};

/// Far beyond anything that a slow machine needs: a test that waits so long has failed.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Waits for something that comes by itself.
#[expect(
    clippy::disallowed_methods,
    reason = "a test gives up on the real clock"
)]
#[track_caller]
fn until(what: &str, mut come: impl FnMut() -> bool) {
    let start = Instant::now();
    while !come() {
        assert!(start.elapsed() < GIVE_UP, "never: {what}");
        std::thread::yield_now();
    }
}

fn key() -> Key {
    Key::new("n1", *b"0123456789abcdef")
}

fn record(t_ms: u64, runnable: u32) -> LoadRecord {
    LoadRecord {
        t_ns: t_ms * 1_000_000,
        runnable,
        sources: Sources::RUNNABLE,
        rung: Rung::Agent as u8,
        ..LoadRecord::default()
    }
}

fn shm_path(name: &str) -> PathBuf {
    PathBuf::from(format!(
        "/dev/shm/tidegate-test-reader-{name}-{}",
        std::process::id()
    ))
}

fn serve(memory: &Arc<RegionMemory>, listen: SocketAddr) -> Responder {
    let options = ResponderOptions {
        realtime: false,
        ..ResponderOptions::new(listen, vec![key()])
    };
    Responder::spawn(Arc::clone(memory), options).unwrap()
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn udp(node: u32, address: SocketAddr) -> Target {
    Target {
        node: NodeId(node),
        generation: 0,
        transport: Transport::Udp {
            address,
            keys: vec![key()],
            rdma: false,
        },
    }
}

fn shm(node: u32, path: PathBuf) -> Target {
    Target {
        node: NodeId(node),
        generation: 0,
        transport: Transport::Shm { path },
    }
}

fn options() -> ReaderOptions {
    ReaderOptions {
        realtime: false,
        ..ReaderOptions::default()
    }
}

fn status(reader: &ReaderHandle, node: u32) -> NodeReadStatus {
    reader.status(NodeId(node)).unwrap()
}

#[test]
fn every_node_that_answers_is_known_and_no_other() {
    let table = Arc::new(LoadTable::new(8, 1));
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let responder = serve(&memory, any_port());
    let path = shm_path("known");
    let shared = RegionMemory::create(&path).unwrap();
    // No listener here, no record ever there, and to the last there is no way.
    let dead = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let targets = vec![
        udp(6, responder.address()),
        udp(1, dead),
        shm(2, path),
        shm(3, shm_path("missing")),
        udp(4, "[2001:db8::1]:9901".parse().unwrap()),
    ];
    let reader = Reader::spawn(targets, Arc::clone(&table), options()).unwrap();
    for round in 1..=5 {
        memory.publish(&record(round, 7), &[]);
        shared.publish(&record(round, 9), &[]);
        until("both read", || {
            [6, 2]
                .map(|node| status(&reader, node))
                .iter()
                .all(|node| node.reads > node.unchanged && node.last_error.is_none())
        });
    }
    until("the dead are noticed", || {
        status(&reader, 1).timeouts > 2 && status(&reader, 3).consecutive_faults > 2
    });
    assert_eq!(table.last(NodeId(6)).runnable, 7.0);
    assert_eq!(table.last(NodeId(2)).runnable, 9.0);
    assert_eq!(status(&reader, 6).rung, Rung::Agent);
    assert_eq!(status(&reader, 2).rung, Rung::SharedMemory);
    for node in [1, 3, 4] {
        assert_eq!(table.last(NodeId(node)).observed_at, Timestamp::ZERO);
        assert_eq!(status(&reader, node).reads, 0);
    }
    assert_eq!(status(&reader, 3).last_error, Some(ReadFault::Absent));
    assert_eq!(reader.status(NodeId(0)), None, "not a target");
    assert_eq!(reader.status(NodeId(99)), None);
}

#[test]
fn agents_that_vanish_and_come_back_are_picked_up() {
    let table = Arc::new(LoadTable::new(2, 1));
    let path = shm_path("back");
    let mut memory = Arc::new(RegionMemory::anonymous().unwrap());
    let mut responder = serve(&memory, any_port());
    let address = responder.address();
    let mut shared = RegionMemory::create(&path).unwrap();
    let targets = vec![udp(0, address), shm(1, path.clone())];
    let reader = Reader::spawn(targets, Arc::clone(&table), options()).unwrap();
    for life in 0..4 {
        memory.publish(&record(1, life), &[]);
        shared.publish(&record(1, life), &[]);
        for node in [0, 1] {
            until("the newest life is seen", || {
                table.last(NodeId(node)).runnable == life as f32
                    && status(&reader, node).restarts == life
            });
        }
        drop(responder);
        drop(shared);
        // Gone for long enough to be read only now and then.
        until("both missed", || {
            (0..2).all(|node| status(&reader, node).consecutive_faults > FAULTS_MAX)
        });
        assert_eq!(
            table.last(NodeId(0)).runnable,
            life as f32,
            "old, and as it was"
        );
        memory = Arc::new(RegionMemory::anonymous().unwrap());
        responder = serve(&memory, address);
        shared = RegionMemory::create(&path).unwrap();
    }
    drop((responder, shared));
}

#[test]
fn a_record_that_stands_still_gets_no_younger() {
    let table = Arc::new(LoadTable::new(1, 1));
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let responder = serve(&memory, any_port());
    memory.publish(&record(1, 3), &[]);
    let targets = vec![udp(0, responder.address())];
    let reader = Reader::spawn(targets, Arc::clone(&table), options()).unwrap();
    until("first read", || status(&reader, 0).reads > 0);
    let before = table.last(NodeId(0)).observed_at;
    until("read again", || status(&reader, 0).unchanged > 5);
    assert_eq!(table.last(NodeId(0)).observed_at, before);
    let status = status(&reader, 0);
    assert!(
        status.reads <= status.unchanged + 1,
        "only the first one was new"
    );
}

#[test]
fn answers_of_impostors_are_counted_and_not_believed() {
    let impostor = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = impostor.local_addr().unwrap();
    let table = Arc::new(LoadTable::new(1, 1));
    let reader = Reader::spawn(vec![udp(0, address)], Arc::clone(&table), options()).unwrap();
    let memory = RegionMemory::anonymous().unwrap();
    memory.publish(&record(1, 3), &[]);
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    for round in 0..100 {
        let (length, from) = impostor.recv_from(&mut bytes).unwrap();
        let (request, _) = Request::decode(&bytes[..length], &[key()]).unwrap();
        let reply = Reply {
            verb: request.verb,
            lines: request.lines,
            status: Status::Done,
            initiator: request.initiator,
            sequence: 0,
            // Half of them answer reads that were never sent.
            nonce: request.nonce ^ (round % 2) << 40,
            node_now_ns: 1,
            value: 0,
            readers: 99,
            epoch: 1,
        };
        memory.copy(&mut bytes[64..length]).unwrap();
        reply.encode(&Key::random("n1").unwrap(), &mut bytes[..length]);
        impostor.send_to(&bytes[..length], from).unwrap();
        // Noise of any length, too.
        impostor.send_to(&bytes[..length / 2], from).unwrap();
        impostor.send_to(&[], from).unwrap();
    }
    until("they are counted", || {
        reader.stats().forged > 0 && reader.stats().unexpected > 100
    });
    assert_eq!(table.last(NodeId(0)).observed_at, Timestamp::ZERO);
    assert_eq!(reader.readers(), 0);
}

#[test]
fn readers_of_one_node_know_of_each_other() {
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let responder = serve(&memory, any_port());
    memory.publish(&record(1, 3), &[]);
    let read = || {
        let table = Arc::new(LoadTable::new(1, 1));
        Reader::spawn(vec![udp(0, responder.address())], table, options()).unwrap()
    };
    let readers = [read(), read(), read()];
    until("all three are counted", || {
        readers.iter().all(|reader| reader.readers() == 3)
    });
    assert_eq!(responder.stats().readers, 3);
}

#[test]
fn readers_of_memory_know_of_each_other_and_of_those_by_datagrams() {
    let path = shm_path("counted");
    let memory = Arc::new(RegionMemory::create(&path).unwrap());
    let responder = serve(&memory, any_port());
    memory.publish(&record(1, 3), &[]);
    let read = |targets: Vec<Target>| {
        let table = Arc::new(LoadTable::new(targets.len(), 1));
        Reader::spawn(targets, table, options()).unwrap()
    };
    let by_memory = || vec![shm(0, path.clone()), shm(1, path.clone())];
    let readers = [
        read(by_memory()),
        read(by_memory()),
        read(vec![udp(0, responder.address())]),
    ];
    until("all three are counted, by all", || {
        readers.iter().all(|reader| reader.readers() == 3)
    });
}

#[test]
fn many_nodes_take_turns_and_none_is_left_out() {
    const NODES: u32 = 500;
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let responder = serve(&memory, any_port());
    memory.publish(&record(1, 3), &[]);
    let table = Arc::new(LoadTable::new(NODES as usize, 1));
    // One responder stands for all of them.
    let targets = (0..NODES)
        .map(|node| udp(node, responder.address()))
        .collect();
    let slow = ReaderOptions {
        interval: Duration::from_millis(20),
        timeout: Duration::from_millis(100),
        ..options()
    };
    let reader = Reader::spawn(targets, Arc::clone(&table), slow).unwrap();
    until("each was read", || {
        (0..NODES).all(|node| status(&reader, node).reads > 1)
    });
    until("statistics are told", || reader.stats().received > 0);
    let stats = reader.stats();
    assert!(stats.sent >= stats.received && stats.rounds > 0);
}

#[test]
fn what_cannot_be_read_is_refused() {
    let table = || Arc::new(LoadTable::new(2, 1));
    let refused = |targets, options| Reader::spawn(targets, table(), options).unwrap_err();
    let missing = refused(vec![shm(2, shm_path("x"))], options());
    assert!(matches!(missing, ReaderError::Node(2, 2)), "{missing}");
    let twice = refused(vec![shm(1, shm_path("x")), udp(1, any_port())], options());
    assert!(matches!(twice, ReaderError::Twice(1)), "{twice}");
    let hasty = ReaderOptions {
        interval: Duration::ZERO,
        ..options()
    };
    assert!(matches!(refused(vec![], hasty), ReaderError::Interval(_)));
    let empty = Reader::spawn(vec![], table(), options()).unwrap();
    assert_eq!(empty.status(NodeId(0)), None);
}

/// What is asked of a node's words.
fn asked(table: &LoadTable, node: u32, op: WordOp) -> WordReply {
    let ticket = table.ask_word(NodeId(node), op);
    let mut reply = None;
    until("an answer about a word", || {
        reply = table.answered_word(NodeId(node), ticket);
        reply.is_some()
    });
    reply.unwrap()
}

#[track_caller]
fn held(reply: WordReply) -> u64 {
    match reply {
        WordReply::Done { held, node_now } => {
            assert_ne!(node_now, Timestamp::ZERO);
            held
        }
        WordReply::Lost => panic!("lost"),
    }
}

#[test]
fn words_are_asked_over_every_transport_and_each_question_is_carried_out_once() {
    let table = Arc::new(LoadTable::new(2, 1));
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let responder = serve(&memory, any_port());
    let path = shm_path("words");
    let shared = RegionMemory::create(&path).unwrap();
    memory.publish(&record(1, 7), &[]);
    shared.publish(&record(1, 7), &[]);
    let targets = vec![udp(0, responder.address()), shm(1, path)];
    let _reader = Reader::spawn(targets, Arc::clone(&table), options()).unwrap();
    for (node, region) in [(0, &*memory), (1, &shared)] {
        for round in 0..100 {
            let op = WordOp::FetchAndAdd { word: 5, delta: 3 };
            assert_eq!(held(asked(&table, node, op)), round * 3);
        }
        let swap = |expected| WordOp::CompareAndSwap {
            word: 5,
            expected,
            new: 8,
        };
        assert_eq!(held(asked(&table, node, swap(1))), 300);
        assert_eq!(held(asked(&table, node, swap(300))), 300);
        assert_eq!(region.fetch_and_add(5, 0).unwrap(), 8);
        // One that is not there.
        let op = WordOp::FetchAndAdd {
            word: crate::WORDS as u32,
            delta: 1,
        };
        assert_eq!(asked(&table, node, op), WordReply::Lost);
    }
}

#[test]
fn words_that_begin_anew_are_told() {
    let table = Arc::new(LoadTable::new(1, 1));
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    memory.publish(&record(1, 7), &[]);
    let responder = serve(&memory, any_port());
    let address = responder.address();
    let reader = Reader::spawn(vec![udp(0, address)], Arc::clone(&table), options()).unwrap();
    let add = WordOp::FetchAndAdd { word: 5, delta: 3 };
    assert_eq!(held(asked(&table, 0, add)), 0);
    drop(responder);
    // No answer comes: it is given up.
    assert_eq!(asked(&table, 0, add), WordReply::Lost);
    let anew = Arc::new(RegionMemory::anonymous().unwrap());
    anew.publish(&record(2, 7), &[]);
    let _responder = serve(&anew, address);
    until("read again", || status(&reader, 0).consecutive_faults == 0);
    assert_eq!(asked(&table, 0, add), WordReply::Lost);
    assert_eq!(held(asked(&table, 0, add)), 0);
}

#[test]
fn an_agent_changes_over_to_a_new_key_without_the_reader() {
    let table = Arc::new(LoadTable::new(1, 1));
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    memory.publish(&record(1, 7), &[]);
    let (old, new) = (key(), Key::random("n1").unwrap());
    let serve = |listen, keys| {
        let options = ResponderOptions {
            realtime: false,
            ..ResponderOptions::new(listen, keys)
        };
        Responder::spawn(Arc::clone(&memory), options).unwrap()
    };
    let responder = serve(any_port(), vec![old]);
    let address = responder.address();
    let target = Target {
        node: NodeId(0),
        generation: 0,
        transport: Transport::Udp {
            address,
            keys: vec![new.clone(), key()],
            rdma: false,
        },
    };
    let reader = Reader::spawn(vec![target], Arc::clone(&table), options()).unwrap();
    until("read with the old key", || status(&reader, 0).reads > 0);
    let add = WordOp::FetchAndAdd { word: 5, delta: 3 };
    assert_eq!(held(asked(&table, 0, add)), 0);
    drop(responder);
    until("missed", || status(&reader, 0).consecutive_faults > 8);
    let _responder = serve(address, vec![new]);
    let before = status(&reader, 0).reads;
    until("read with the new key", || {
        status(&reader, 0).reads > before
    });
    // Its words are the same memory, but of another life of the responder.
    assert_eq!(asked(&table, 0, add), WordReply::Lost);
    assert_eq!(held(asked(&table, 0, add)), 3);
}

#[test]
fn every_read_tells_word_0_beside_the_load() {
    let table = Arc::new(LoadTable::new(3, 1));
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let silent = Arc::new(RegionMemory::anonymous().unwrap());
    let path = shm_path("word-0");
    let shared = RegionMemory::create(&path).unwrap();
    memory.publish(&record(1, 7), &[]);
    shared.publish(&record(1, 7), &[]);
    let responders = [serve(&memory, any_port()), serve(&silent, any_port())];
    let targets = vec![
        udp(0, responders[0].address()),
        shm(1, path),
        udp(2, responders[1].address()),
    ];
    assert_eq!(table.first_word(NodeId(0)), None);
    let _reader = Reader::spawn(targets, Arc::clone(&table), options()).unwrap();
    // One record stands still, one is not there at all: the word comes all the same.
    for held in [0, 5, 9] {
        let words = [(0, &*memory), (1, &shared), (2, &*silent)];
        for (node, region) in words {
            let before = region.word(0).unwrap();
            region.compare_and_swap(0, before, held).unwrap();
            let swapped_at = clock::now();
            until("the word comes", || {
                table
                    .first_word(NodeId(node))
                    .is_some_and(|(found, at)| found == held && at >= swapped_at)
            });
        }
    }
}

#[test]
fn without_a_device_a_node_is_read_by_datagrams_and_the_reason_is_known() {
    let table = Arc::new(LoadTable::new(1, 1));
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let responder = serve(&memory, any_port());
    let mut target = udp(0, responder.address());
    if let Transport::Udp { rdma, .. } = &mut target.transport {
        *rdma = true;
    }
    let reader = Reader::spawn(vec![target.clone()], table, options()).unwrap();
    memory.publish(&record(1, 7), &[]);
    let lacks = || match reader.one_sided(NodeId(0)) {
        Some(OneSided::Lacks(why) | OneSided::Impossible(why)) => why,
        other => panic!("{other:?}"),
    };
    until("a reason is known", || lacks().is_some());
    let why = lacks().unwrap();
    // A host that has a device finds that this node serves none.
    let expected = ["no RDMA device: ", "serves nothing over RDMA"];
    assert!(expected.iter().any(|it| why.contains(it)), "{why}");
    memory.publish(&record(2, 7), &[]);
    until("it is read", || {
        status(&reader, 0).rung == Rung::Agent && status(&reader, 0).last_error.is_none()
    });
    // Set anew without it, nothing is said of RDMA.
    let plain = udp(0, responder.address());
    reader
        .set_targets(vec![plain], Duration::from_millis(1), None, 1)
        .unwrap();
    until("it is followed", || reader.followed() == 1);
    assert_eq!(reader.one_sided(NodeId(0)), None);
}
