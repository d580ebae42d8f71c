//! Floods at a server without its thread: it is asked over loopback, and judges each datagram at a moment that is given.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use tidegate_core::record::{AGGREGATE_LINES, LINE_BYTES, LINES_MAX, LoadRecord};

use super::server::{BATCH, Unanswered};
use super::*;
use crate::clock;
use crate::memory::words::{ChangeWords, NotChanged, WordChange};
use crate::udp::batch::Batch;
use crate::udp::flood::RATE_WINDOW;
use crate::udp::wire::{MESSAGE_BYTES_MAX, Reply, Verb, message_bytes};
use crate::udp::{UdpOptions, UdpRegion};

/// A front-end that has asked before.
const HONEST: u64 = 11;
/// One that begins.
const BEGINS: u64 = 12;

struct Bench {
    server: Server,
    socket: Arc<UdpSocket>,
    batch: Batch,
    key: Key,
    client: UdpSocket,
    counters: Arc<ResponderCounters>,
    /// Nanoseconds by which the next new request is later than the last.
    later: u64,
}

fn memory() -> Arc<RegionMemory> {
    let memory = RegionMemory::anonymous().unwrap();
    memory.publish(&LoadRecord::default(), &[]);
    Arc::new(memory)
}

impl Bench {
    fn new() -> Self {
        Self::of(memory())
    }

    fn of(memory: Arc<RegionMemory>) -> Self {
        let key = Key::new("n1", [7; 16]);
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let options = ResponderOptions::new(listen, vec![key.clone()]);
        let socket = Arc::new(socket::listen(listen, STOP_CHECK).unwrap());
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client.connect(socket.local_addr().unwrap()).unwrap();
        let counters = Arc::new(ResponderCounters::default());
        Self {
            server: Server::new(Arc::clone(&socket), Arc::clone(&counters), memory, options)
                .unwrap(),
            socket,
            batch: Batch::new(BATCH, MESSAGE_BYTES_MAX).with_control(true),
            key,
            client,
            counters,
            later: 0,
        }
    }

    /// A read in this name by this clock of the node.
    fn read(&self, initiator: u64, clock: Timestamp) -> Vec<u8> {
        let read = Request {
            sequence: clock.nanos(),
            ..Request::read(1, initiator, 12)
        };
        let mut message = vec![0; message_bytes(1)];
        read.encode(&self.key, message.first_chunk_mut().unwrap());
        message
    }

    /// The same without the key.
    fn forged(&self, initiator: u64, clock: Timestamp) -> Vec<u8> {
        let mut message = self.read(initiator, clock);
        // A byte under the MAC, of the nonce.
        message[24] ^= 1;
        message
    }

    /// Another read in this name, which is new.
    fn next(&mut self, initiator: u64, now: Timestamp) -> Vec<u8> {
        self.later += 1;
        self.read(initiator, now + Duration::from_nanos(self.later))
    }

    /// The same without the key.
    fn next_forged(&mut self, initiator: u64, now: Timestamp) -> Vec<u8> {
        self.later += 1;
        self.forged(initiator, now + Duration::from_nanos(self.later))
    }

    /// Whether a new read is answered.
    fn answers(&mut self, initiator: u64, now: Timestamp) -> bool {
        let next = self.next(initiator, now);
        self.is_answered(&next, now)
    }

    /// Sends it so often; gives what gets into the socket, each judged at this moment.
    fn ask(&mut self, message: &[u8], times: usize, now: Timestamp) -> Vec<Result<(), Unanswered>> {
        let mut judged = Vec::new();
        for _ in 0..times {
            self.client.send(message).unwrap();
            // Over loopback a datagram has come, or not, when it is sent.
            let received = self.batch.receive(&*self.socket, false);
            for slot in 0..received.unwrap_or(0) {
                judged.push(self.server.answer(&mut self.batch, slot, now));
            }
        }
        judged
    }

    fn is_answered(&mut self, message: &[u8], now: Timestamp) -> bool {
        matches!(self.ask(message, 1, now)[..], [Ok(())])
    }

    /// How many of so many that are not answered have cost a MAC.
    fn examined(&mut self, forged: &[u8], times: usize, now: Timestamp) -> usize {
        let judged = self.ask(forged, times, now);
        let examined = judged.iter().filter(|it| match it {
            Err(Unanswered::Dropped(reason)) => *reason == DropReason::Mac,
            Err(Unanswered::Unexamined) => false,
            Ok(()) | Err(Unanswered::Fault | Unanswered::NotYet) => {
                panic!("a forged request is answered")
            }
        });
        examined.count()
    }

    fn closed(&self) -> u64 {
        self.counters.closed.load(Ordering::Relaxed)
    }
}

#[test]
fn forged_requests_are_mostly_not_examined_and_proven_front_ends_are_answered() {
    let mut bench = Bench::new();
    let now = clock::now();
    let forged = bench.forged(99, now);
    assert!(bench.answers(HONEST, now));
    // 5000 a second. All come from the honest front-end's address.
    assert_eq!(bench.examined(&forged, 1000, now), 50);
    for _ in 0..100 {
        assert!(bench.answers(HONEST, now));
    }
    // A front-end that begins meanwhile gets its turn in the next window.
    assert!(!bench.answers(BEGINS, now));
    assert!(bench.answers(BEGINS, now + RATE_WINDOW));
}

#[test]
fn requests_forged_in_its_own_name_take_nothing_from_a_front_end() {
    let mut bench = Bench::new();
    let now = clock::now();
    assert!(bench.answers(HONEST, now));
    for _ in 0..20 {
        let forged = bench.next_forged(HONEST, now);
        assert_eq!(bench.examined(&forged, 100, now), 100);
        assert!(bench.answers(HONEST, now));
    }
}

#[test]
fn copies_of_its_requests_are_mostly_not_examined_and_take_nothing_from_a_front_end() {
    let mut bench = Bench::new();
    let now = clock::now();
    let recorded = bench.next(HONEST, now);
    assert!(bench.is_answered(&recorded, now));
    let judged = bench.ask(&recorded, 1000, now);
    // 5000 a second are answered, in vain.
    assert_eq!(judged.iter().filter(|it| it.is_ok()).count(), 50);
    assert!(bench.answers(HONEST, now));
    // With another nonce.
    let mut forged = recorded;
    forged[24] ^= 1;
    assert_eq!(bench.examined(&forged, 1000, now), 0);
    assert!(bench.answers(HONEST, now));
}

#[test]
fn what_is_no_request_by_its_header_uses_up_nothing() {
    let mut bench = Bench::new();
    let now = clock::now();
    let good = bench.read(BEGINS, now);
    // Magic, version, verb, the key's number.
    for at in [0, 4, 5, 34] {
        let mut bad = good.clone();
        bad[at] ^= 0x80;
        assert_eq!(bench.examined(&bad, 100, now), 0);
    }
    assert_eq!(bench.examined(&good[1..], 100, now), 0);
    assert!(bench.is_answered(&good, now));
}

#[test]
fn a_flood_closes_the_socket_to_all_but_those_that_are_proven() {
    let mut bench = Bench::new();
    let now = clock::now();
    let forged = bench.forged(99, now);
    assert!(bench.answers(HONEST, now));
    bench.server.guard.after_batch(1, now);
    bench.server.guard.after_batch(8000, now);
    assert_eq!(bench.closed(), 0);
    bench.server.guard.after_batch(1, now);
    assert_eq!(bench.closed(), 1);
    // 20 of 1280 by lot; 200 is beyond all chance.
    let come = bench.ask(&forged, 1280, now).len();
    assert!(come < 200, "{come} came");
    for _ in 0..100 {
        assert!(bench.answers(HONEST, now));
    }
    bench
        .server
        .guard
        .after_batch(0, now + Duration::from_secs(1));
    assert_eq!(bench.ask(&forged, 100, now).len(), 100);
    assert_eq!(bench.counters.faults.load(Ordering::Relaxed), 0);
}

#[test]
fn of_a_front_end_that_is_imitated_a_part_gets_in_and_of_others_all() {
    let mut bench = Bench::new();
    let now = clock::now();
    let other = bench.next(BEGINS, now);
    assert!(bench.answers(HONEST, now) && bench.is_answered(&other, now));
    bench.server.guard.after_batch(2, now);
    let forged = bench.next_forged(HONEST, now);
    assert_eq!(bench.examined(&forged, 100, now), 100);
    bench.server.guard.after_batch(9000, now);
    assert_eq!(bench.closed(), 1);
    let imitated = bench.next(HONEST, now);
    assert_eq!(bench.ask(&imitated, 1000, now).len(), 1000);
    bench.server.guard.after_batch(1000, now);
    // It is more than can be looked at all the same.
    let later = now + Duration::from_millis(100);
    bench.server.guard.after_batch(18_001, later);
    assert_eq!(bench.closed(), 2);
    // A half; 20 standard deviations on each side.
    let come = bench.ask(&imitated, 4000, later).len();
    assert!((1400..2600).contains(&come), "{come} came");
    assert_eq!(bench.ask(&other, 1000, later).len(), 1000);
}

#[test]
fn a_flood_of_requests_that_were_recorded_closes_the_socket_further_too() {
    let mut bench = Bench::new();
    let now = clock::now();
    let recorded = bench.next(HONEST, now);
    assert!(bench.is_answered(&recorded, now));
    assert_eq!(bench.ask(&recorded, 200, now).len(), 200);
    bench.server.guard.after_batch(9000, now);
    assert_eq!(bench.closed(), 1);
    let later = now + Duration::from_millis(100);
    bench.server.guard.after_batch(18_001, later);
    let come = bench.ask(&recorded, 4000, later).len();
    assert!((1400..2600).contains(&come), "{come} came");
}

#[test]
fn a_flood_is_taken_in_by_batches_and_what_has_come_already_at_once() {
    let mut bench = Bench::new();
    let (now, guard) = (clock::now(), &mut bench.server.guard);
    assert_eq!(guard.after_batch(1, now), None);
    assert_eq!(guard.after_batch(200, now), None);
    assert!(guard.after_batch(1, now).is_some_and(|until| until > now));
    assert_eq!(guard.after_batch(BATCH as u32, now), None);
}

#[test]
fn a_thread_without_a_share_is_lowered_and_answers_all_the_same() {
    let key = Key::new("n1", [7; 16]);
    let options = ResponderOptions {
        realtime_share: 0.0,
        ..ResponderOptions::new((Ipv4Addr::LOCALHOST, 0).into(), vec![key.clone()])
    };
    let responder = Responder::spawn(memory(), options).unwrap();
    if let Err(why) = responder.realtime() {
        println!("SKIPPED: {why}");
        return;
    }
    let patient = UdpOptions {
        wait: Duration::from_secs(5),
        tries: 3,
    };
    let mut region = UdpRegion::connect(responder.address(), key, patient).unwrap();
    while responder.stats().lowered == 0 {
        crate::Region::read(&mut region, AGGREGATE_LINES).unwrap();
    }
    crate::Region::read(&mut region, AGGREGATE_LINES).unwrap();
    assert_eq!(responder.stats().faults, 0);
}

#[test]
fn a_thread_that_shall_not_have_priority_has_none() {
    let options = ResponderOptions {
        realtime: false,
        ..ResponderOptions::new(
            (Ipv4Addr::LOCALHOST, 0).into(),
            vec![Key::new("n1", [7; 16])],
        )
    };
    let responder = Responder::spawn(memory(), options).unwrap();
    assert!(matches!(
        responder.realtime(),
        Err(RealtimeRefused::Unwanted)
    ));
}

#[test]
fn a_batch_beyond_the_rate_is_followed_by_a_rest_and_counted() {
    let mut bench = Bench::new();
    let (now, guard) = (clock::now(), &mut bench.server.guard);
    assert_eq!(guard.after_batch(20_000, now), None);
    assert_eq!(guard.after_batch(64, now), Some(now + RATE_WINDOW));
    assert_eq!(guard.after_batch(2000, now + RATE_WINDOW), None);
    assert_eq!(bench.counters.limited.load(Ordering::Relaxed), 1);
}

#[test]
fn of_what_the_system_says_in_place_of_a_datagram_only_what_is_odd_is_a_fault() {
    use std::io::ErrorKind;
    let bench = Bench::new();
    let faults = |kind: ErrorKind| {
        let before = bench.counters.faults.load(Ordering::Relaxed);
        bench.server.rest_after(&kind.into());
        bench.counters.faults.load(Ordering::Relaxed) - before
    };
    for harmless in [
        ErrorKind::WouldBlock,
        ErrorKind::Interrupted,
        ErrorKind::ConnectionRefused,
    ] {
        assert_eq!(faults(harmless), 0, "{harmless}");
    }
    assert_eq!(faults(ErrorKind::OutOfMemory), 1);
}

/// A server of this memory, without its thread.
fn serving(memory: &Arc<RegionMemory>, before_read: Option<BeforeRead>) -> Server {
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let options = ResponderOptions {
        before_read,
        ..ResponderOptions::new(listen, vec![Key::new("n1", [7; 16])])
    };
    let socket = Arc::new(socket::listen(listen, STOP_CHECK).unwrap());
    Server::new(socket, Arc::default(), Arc::clone(memory), options).unwrap()
}

#[test]
fn a_record_that_is_half_written_is_answered_with_the_last_whole_one_if_that_has_the_lines() {
    let memory = memory();
    let mut server = serving(&memory, None);
    let (few, all) = (AGGREGATE_LINES * LINE_BYTES, LINES_MAX * LINE_BYTES);
    let mut read = |bytes: usize| {
        let mut lines = vec![0xff; bytes];
        let (status, _) = server.read(&mut lines, clock::now());
        (status, lines)
    };
    let whole = read(few);
    assert_eq!(whole.0, Status::Done);
    // The sequence at the first line's end, as a writer that lost its CPU leaves it.
    let file = std::fs::File::from(memory.as_fd().try_clone_to_owned().unwrap());
    file.write_all_at(&[0xff], LINE_BYTES as u64 - 4).unwrap();
    assert_eq!(read(few), whole);
    assert_eq!(read(all), (Status::Torn, vec![0; all]));
}

#[test]
fn what_is_to_be_done_before_a_read_is_done_once_in_its_time() {
    let hour = Duration::from_secs(3600);
    for (every, runs) in [(hour, [1, 1, 2]), (Duration::MAX, [1, 1, 1])] {
        let ran = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&ran);
        let before = BeforeRead {
            every,
            hook: Box::new(move |_| {
                counter.fetch_add(1, Ordering::Relaxed);
            }),
        };
        let mut server = serving(&memory(), Some(before));
        let now = clock::now();
        let times = [now, now + hour - Duration::from_nanos(1), now + hour];
        for (now, runs) in times.into_iter().zip(runs) {
            server.read(&mut [0; LINE_BYTES], now);
            assert_eq!(ran.load(Ordering::Relaxed), runs);
        }
    }
}

#[test]
fn one_to_eight_keys_are_taken() {
    for (keys, taken) in [(0, false), (1, true), (8, true), (9, false)] {
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let keys = vec![Key::new("n1", [7; 16]); keys];
        let options = ResponderOptions::new(listen, keys);
        let socket = Arc::new(socket::listen(listen, STOP_CHECK).unwrap());
        match Server::new(socket, Arc::default(), memory(), options) {
            Ok(_) => assert!(taken),
            Err(why) => assert!(
                !taken && why.to_string().contains("a responder takes 1 to 8"),
                "{why}"
            ),
        }
    }
}

#[derive(Debug)]
struct Elsewhere;

impl CarryOut for Elsewhere {
    fn carry_out(&mut self, request: &Request) -> io::Result<(Status, u64)> {
        Ok((Status::Done, request.operand))
    }
}

#[test]
fn the_thread_keeps_the_right_to_priority_and_that_to_programs_if_they_do_its_atomics() {
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let mut options = ResponderOptions::new(listen, vec![Key::new("n1", [7; 16])]);
    assert_eq!(options.capabilities(), CapabilitySet::SYS_NICE);
    options.atomics = Some(Box::new(Elsewhere));
    let both = CapabilitySet::SYS_NICE.union(CapabilitySet::BPF);
    assert_eq!(options.capabilities(), both);
}

/// A card with one word, which fails where a test wants it to; an atomic of unknown fate it has carried out.
#[derive(Clone, Debug, Default)]
struct Card(Arc<Mutex<CardState>>);

#[derive(Debug, Default)]
struct CardState {
    fails: Option<NotChanged>,
    word: u64,
    asked: u32,
}

impl ChangeWords for Card {
    fn change(&self, _: u32, change: WordChange, _: Timestamp) -> Result<u64, NotChanged> {
        let mut state = self.0.lock().unwrap();
        state.asked += 1;
        let held = state.word;
        match (state.fails, change) {
            (Some(NotChanged::NotNow), _) => return Err(NotChanged::NotNow),
            (_, WordChange::FetchAndAdd { delta }) => state.word += delta,
            (_, WordChange::CompareAndSwap { .. }) => {}
        }
        state.fails.map_or(Ok(held), Err)
    }
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }
    fn device(&self) -> &str {
        "card0"
    }
}

impl Card {
    /// From now on it fails like this.
    fn fails(&self, how: Option<NotChanged>) {
        self.0.lock().unwrap().fails = how;
    }

    /// What the word holds, and how often it was asked.
    fn seen(&self) -> (u64, u32) {
        let state = self.0.lock().unwrap();
        (state.word, state.asked)
    }
}

impl Bench {
    /// A memory whose words this card changes, served.
    fn beside(card: &Card) -> Self {
        let memory = memory();
        memory.give_words(Box::new(card.clone())).unwrap();
        Self::of(memory)
    }

    /// An addition, the first or a later one in this name.
    fn add(&self, epoch: u32, now: Timestamp) -> Vec<u8> {
        let add = Request {
            verb: Verb::FetchAndAdd,
            sequence: now.nanos(),
            word: 5,
            operand: 3,
            epoch,
            ..Request::read(0, HONEST, 12)
        };
        let mut message = vec![0; message_bytes(0)];
        add.encode(&self.key, message.first_chunk_mut().unwrap());
        message
    }

    /// What is answered to a message that is.
    fn reply(&mut self, message: &[u8], now: Timestamp) -> Reply {
        assert!(self.is_answered(message, now));
        self.batch
            .send(&*self.socket, &[0], |_, _| panic!("unsent"));
        let mut answer = [0; MESSAGE_BYTES_MAX];
        let length = self.client.recv(&mut answer).unwrap();
        let reply = Reply::parse(&answer[..length]).unwrap();
        let (reply, _) = reply.verify(&self.key).ok().unwrap();
        reply
    }
}

#[test]
fn an_atomic_that_a_card_may_have_carried_out_is_not_answered_and_not_begun_again() {
    let card = Card::default();
    let mut bench = Bench::beside(&card);
    let now = clock::now();
    let first = bench.read(HONEST, now);
    let epoch = bench.reply(&first, now).epoch;
    let (_, before) = card.seen();
    let add = bench.add(epoch, now);
    card.fails(Some(NotChanged::NotNow));
    assert!(!bench.is_answered(&add, now));
    assert_eq!(card.seen(), (0, before + 1));
    // It was not begun: a copy is.
    card.fails(None);
    let reply = bench.reply(&add, now);
    assert_eq!((reply.status, reply.value), (Status::Done, 0));
    assert_eq!(bench.reply(&add, now).value, 0, "the answer that was kept");
    assert_eq!(card.seen(), (3, before + 2));
    card.fails(Some(NotChanged::Unknown));
    let next = bench.add(epoch, now + Duration::from_nanos(1));
    assert!(!bench.is_answered(&next, now));
    card.fails(None);
    assert!(!bench.is_answered(&next, now));
    assert_eq!(card.seen(), (6, before + 3));
}

#[test]
fn a_read_beside_a_silent_card_has_its_record_and_says_nothing_of_word_0() {
    let card = Card::default();
    let mut bench = Bench::beside(&card);
    let now = clock::now();
    card.fails(Some(NotChanged::NotNow));
    let read = bench.next(HONEST, now);
    let reply = bench.reply(&read, now);
    assert_eq!((reply.status, reply.first_word()), (Status::Done, None));
    card.fails(None);
    // Once a batch, unless it has changed words.
    let asked = card.seen().1;
    for _ in 0..3 {
        let read = bench.next(HONEST, now);
        assert_eq!(bench.reply(&read, now).first_word(), Some(0));
        assert_eq!(card.seen().1, asked + 1);
    }
    let read = bench.next(HONEST, now);
    let epoch = bench.reply(&read, now).epoch;
    let add = bench.add(epoch, now);
    assert!(bench.is_answered(&add, now));
    let read = bench.next(HONEST, now);
    assert_eq!(bench.reply(&read, now).first_word(), Some(3));
}
