//! The programs run by the kernel on made-up packets: what goes in, what they decide, and what
//! comes out. Needs the right to load them; says SKIPPED where that is missing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libbpf_rs::ProgramInput;

use super::*;
use crate::memory::WORDS;
use crate::region::AGE_MAX;
use crate::udp::wire::{
    DropReason, HEADER_BYTES, MESSAGE_BYTES_MAX, Reply, Request, Status, VERSION, Verb,
    message_bytes,
};
use tidegate_core::record::{AGGREGATE_LINES, LINES_MAX, LoadRecord};

mod bounds;
mod floods;
mod held;

const PORT: u16 = 9901;
const FROM: u16 = 40_000;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const TC_ON: u32 = u32::MAX;
const TC_SHOT: u32 = 2;
const TC_REDIRECT: u32 = 7;
const MAC_HERE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MAC_THERE: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn key() -> Key {
    Key::new("n1", 0x000102030405060708090a0b0c0d0e0f_u128.to_be_bytes())
}

/// How a datagram is wrapped.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Wrap {
    v6: bool,
    tags: usize,
    port: u16,
}

const PLAIN: Wrap = Wrap {
    v6: false,
    tags: 0,
    port: PORT,
};

impl Wrap {
    /// Here, which is this host's however it forwards, and there.
    fn addresses(self) -> (IpAddr, IpAddr) {
        match self.v6 {
            false => (
                Ipv4Addr::LOCALHOST.into(),
                Ipv4Addr::new(192, 0, 2, 2).into(),
            ),
            true => (
                Ipv6Addr::LOCALHOST.into(),
                Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into(),
            ),
        }
    }

    fn header_bytes(self) -> usize {
        14 + 4 * self.tags + if self.v6 { 40 } else { 20 } + 8
    }

    fn frame(self, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend(MAC_HERE);
        frame.extend(MAC_THERE);
        for _ in 0..self.tags {
            frame.extend([0x81, 0x00, 0x00, 0x07]);
        }
        let udp = (payload.len() + 8) as u16;
        match self.addresses() {
            (IpAddr::V4(here), IpAddr::V4(there)) => {
                frame.extend([0x08, 0x00, 0x45, 0]);
                frame.extend((udp + 20).to_be_bytes());
                frame.extend([0, 1, 0x40, 0, 3, 17, 0, 0]);
                frame.extend(there.octets());
                frame.extend(here.octets());
                let at = frame.len() - 20;
                let sum = checksum(0, &frame[at..]);
                frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(here), IpAddr::V6(there)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(udp.to_be_bytes());
                frame.extend([17, 3]);
                frame.extend(there.octets());
                frame.extend(here.octets());
            }
            _ => unreachable!("both of one family"),
        }
        frame.extend(FROM.to_be_bytes());
        frame.extend(self.port.to_be_bytes());
        frame.extend(udp.to_be_bytes());
        frame.extend([0xab, 0xcd]);
        frame.extend(payload);
        frame
    }
}

/// The Internet checksum (RFC 1071).
fn checksum(start: u32, bytes: &[u8]) -> u16 {
    let pairs = bytes.chunks(2);
    let mut sum = pairs.fold(start, |sum, pair| {
        sum + u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]))
    });
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn message(request: &Request, key: &Key) -> Vec<u8> {
    let mut header = [0; HEADER_BYTES];
    request.encode(key, &mut header);
    let mut message = header.to_vec();
    message.resize(message_bytes(request.lines), 0);
    message
}

fn read(lines: usize) -> Request {
    Request::read(lines as u8, 7, 1)
}

/// Programs, and what counts task switches for as long as this is there.
struct Bench(
    Programs,
    #[expect(dead_code, reason = "kept is all that it has to be")] Link,
);

impl Bench {
    /// Nothing where programs may not be loaded.
    fn new(change: impl FnOnce(&mut KernelOptions)) -> Option<Self> {
        Self::with(change, &[])
    }

    fn with(change: impl FnOnce(&mut KernelOptions), more: &[Setting]) -> Option<Self> {
        let listen = SocketAddr::from(([0, 0, 0, 0], PORT));
        let mut options = KernelOptions::new(listen, vec![key()]);
        change(&mut options);
        match prepare(&options, &["xdp_respond", "tc_respond", CARRY_OUT], more) {
            Ok((programs, switches)) => {
                programs.set("xdp_rung", 1).expect("a variable");
                for v6 in [false, true] {
                    let (here, _) = Wrap { v6, ..PLAIN }.addresses();
                    LocalAddresses::write(&programs, here).expect("an address");
                }
                Some(Self(programs, switches))
            }
            Err(
                error @ KernelError::Refused {
                    permission: true, ..
                },
            ) => {
                skip(&error.to_string());
                None
            }
            Err(error) if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() => {
                skip(&format!("the kernel does not describe itself: {error}"));
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// What a program makes of a frame.
    fn run(&self, name: &str, frame: &[u8]) -> (u32, Vec<u8>) {
        let mut out = vec![0; frame.len().max(64)];
        let input = ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ..ProgramInput::default()
        };
        let output = self.0.program(name).expect("a program").test_run(input);
        let output = output.unwrap_or_else(|error| panic!("{name}: {error}"));
        let verdict = output.return_value;
        let length = output.data.map_or(0, |data| data.len());
        out.truncate(length);
        (verdict, out)
    }

    /// The answer to a request that is answered.
    fn ask(&self, wrap: Wrap, request: &Request) -> (Reply, Vec<u8>) {
        let frame = wrap.frame(&message(request, &key()));
        let (verdict, out) = self.run("xdp_respond", &frame);
        assert_eq!(verdict, XDP_TX, "{wrap:?} {request:?}");
        let parsed = Reply::parse(&out[wrap.header_bytes()..]).expect("an answer");
        let (reply, lines) = parsed.verify(&key()).expect("our key");
        (reply, lines.to_vec())
    }

    fn counted(&self) -> ResponderStats {
        map::stats(&self.0.map("counts").expect("counters")).expect("counters")
    }
}

fn skip(why: &str) {
    println!("SKIPPED: {why}");
}

#[test]
fn a_read_is_answered_with_the_record_of_this_moment() {
    let Some(bench) = Bench::new(|_| {}) else {
        return;
    };
    for lines in [1, AGGREGATE_LINES, LINES_MAX] {
        let (reply, bytes) = bench.ask(PLAIN, &read(lines));
        assert_eq!(reply.status, Status::Done);
        assert_eq!((reply.initiator, reply.nonce), (7, 1));
        if lines < AGGREGATE_LINES {
            continue;
        }
        let record = LoadRecord::decode(&bytes).expect("a record");
        assert_eq!(record.rung, Rung::XdpNative as u8);
        assert_eq!(record.interval_ns, 0);
        assert!(record.runnable >= 1, "this test runs");
        assert!(record.sources.has(Sources::BUSY_SWITCH));
        assert!(record.t_ns <= crate::clock::now().nanos());
        let online = std::thread::available_parallelism().expect("CPUs").get();
        assert!(record.cores_milli as usize >= online * 1000, "{record:?}");
        let cpus = libbpf_rs::num_possible_cpus().expect("CPUs");
        let shown = record.cpus(&bytes).count();
        assert_eq!(shown, if lines == LINES_MAX { cpus.min(16) } else { 0 });
    }
    let counted = bench.counted();
    assert_eq!((counted.reads, counted.atomics), (3, 0));
}

#[test]
fn every_shape_of_frame_is_turned_round() {
    let Some(bench) = Bench::new(|_| {}) else {
        return;
    };
    for v6 in [false, true] {
        for tags in 0..=2 {
            let wrap = Wrap { v6, tags, ..PLAIN };
            for (program, answered) in [("xdp_respond", XDP_TX), ("tc_respond", TC_REDIRECT)] {
                let frame = wrap.frame(&message(&read(LINES_MAX), &key()));
                let (verdict, out) = bench.run(program, &frame);
                assert_eq!(verdict, answered, "{program} {wrap:?}");
                turned_round(wrap, &frame, &out);
            }
        }
    }
}

fn turned_round(wrap: Wrap, frame: &[u8], out: &[u8]) {
    assert_eq!(out.len(), frame.len(), "{wrap:?}");
    assert_eq!(out[..6], MAC_THERE);
    assert_eq!(out[6..12], MAC_HERE);
    let ip = 14 + 4 * wrap.tags;
    assert_eq!(out[12..ip], frame[12..ip], "tags and type");
    let (source, length) = if wrap.v6 { (8, 16) } else { (12, 4) };
    let address = |bytes: &[u8], at: usize| bytes[ip + at..ip + at + length].to_vec();
    assert_eq!(address(out, source), address(frame, source + length));
    assert_eq!(address(out, source + length), address(frame, source));
    let udp = wrap.header_bytes() - 8;
    assert_eq!(out[udp..udp + 2], PORT.to_be_bytes());
    assert_eq!(out[udp + 2..udp + 4], FROM.to_be_bytes());
    if wrap.v6 {
        // The pseudo header: addresses, length, protocol. A right sum leaves nothing.
        let bytes = (out.len() - udp) as u32;
        let pseudo = checksum(bytes + 17, &out[ip + 8..ip + 40]);
        assert_eq!(checksum(u32::from(!pseudo), &out[udp..]), 0, "{wrap:?}");
        assert_eq!(out[ip + 7], 64, "hop limit");
    } else {
        assert_eq!(checksum(0, &out[ip..ip + 20]), 0, "{wrap:?}");
        assert_eq!(out[udp + 6..udp + 8], [0, 0], "no checksum");
        assert_eq!(out[ip + 8], 64, "time to live");
    }
    let parsed = Reply::parse(&out[wrap.header_bytes()..]).expect("an answer");
    parsed.verify(&key()).expect("our key");
}

#[test]
fn what_is_not_ours_goes_on_as_it_came() {
    let Some(bench) = Bench::new(|_| {}) else {
        return;
    };
    let good = message(&read(AGGREGATE_LINES), &key());
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        PLAIN.frame(&bytes)
    };
    let framed = |at: usize, byte: u8| {
        let mut frame = PLAIN.frame(&good);
        frame[at] = byte;
        frame
    };
    let stranger = Key::new("n1", 0xff0102030405060708090a0b0c0d0e0f_u128.to_be_bytes());
    let whole = PLAIN.frame(&good);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("short", PLAIN.frame(&good[..63])),
        ("magic", changed(0, b'X')),
        ("version", changed(4, VERSION + 1)),
        ("version", changed(4, VERSION - 1)),
        ("version", changed(7, 1)),
        ("verb", changed(5, 9)),
        ("lines", changed(6, 0)),
        ("lines", changed(6, 22)),
        ("length", PLAIN.frame(&good[..good.len() - 64])),
        ("length", PLAIN.frame(&[good.clone(), vec![0; 64]].concat())),
        (
            "key",
            PLAIN.frame(&message(&read(AGGREGATE_LINES), &stranger)),
        ),
        ("mac", changed(24, 99)),
        ("mac", changed(56, good[56] ^ 1)),
        ("", Wrap { port: 80, ..PLAIN }.frame(&good)),
        ("", framed(12, 0x09)),
        ("", framed(14, 0x46)),
        ("", framed(14, 0x65)),
        ("", framed(20, 0x20)),
        ("", framed(23, 6)),
        ("", framed(30, 224)),
        ("", whole[..30].to_vec()),
        ("", whole[..41].to_vec()),
        ("", Wrap { tags: 3, ..PLAIN }.frame(&good)),
    ];
    let mut expected = vec![0_u64; DropReason::ALL.len()];
    for (reason, frame) in &cases {
        for (program, passed) in [("xdp_respond", XDP_PASS), ("tc_respond", TC_ON)] {
            if program == "tc_respond" && frame.len() < 60 {
                // The kernel does not run it on what no driver would deliver.
                continue;
            }
            let (verdict, out) = bench.run(program, frame);
            assert_eq!(verdict, passed, "{program} {reason} {frame:02x?}");
            assert_eq!(&out, frame, "{program} {reason}: untouched");
            let index = DropReason::ALL
                .iter()
                .position(|(_, label)| label == reason);
            if let Some(index) = index {
                expected[index] += 1;
            }
        }
    }
    let counted = bench.counted().dropped;
    let counted: Vec<_> = counted.into_iter().map(|(_, count)| count).collect();
    assert_eq!(counted, expected);
    // A frame that is cut short of what its headers claim.
    let cut = &whole[..whole.len() - 100];
    assert_eq!(bench.run("xdp_respond", cut).0, XDP_PASS);
}

#[test]
fn what_is_for_another_host_is_not_looked_at_however_much_of_it_comes() {
    let Some(bench) = Bench::new(|options| options.rate_max = 100) else {
        return;
    };
    // The same bytes, but for the last one of the address that they are for.
    for (v6, last) in [(false, 33), (true, 53)] {
        let wrap = Wrap { v6, ..PLAIN };
        let mut frame = wrap.frame(&message(&read(1), &key()));
        frame[last] ^= 3;
        for (program, passed) in [("xdp_respond", XDP_PASS), ("tc_respond", TC_ON)] {
            for _ in 0..20 {
                let (verdict, out) = bench.run(program, &frame);
                assert_eq!((verdict, &out), (passed, &frame), "{program} {wrap:?}");
            }
        }
    }
    let counted = bench.counted();
    let counts = (counted.reads, counted.limited, counted.elsewhere);
    assert_eq!(counts, (0, 0, 80));
}

fn atomic(verb: Verb, word: u16, sequence: u64, epoch: u32) -> Request {
    Request {
        verb,
        lines: 0,
        sequence,
        word,
        epoch,
        operand: 5,
        expected: 0,
        ..read(1)
    }
}

#[test]
fn atomics_happen_once() {
    let Some(bench) = Bench::new(|_| {}) else {
        return;
    };
    let (first, _) = bench.ask(PLAIN, &read(1));
    let epoch = first.epoch;
    assert_ne!(epoch, 0);
    let add = |sequence| atomic(Verb::FetchAndAdd, 3, first.node_now_ns + sequence, epoch);
    let swap = |sequence| Request {
        word: 4,
        verb: Verb::CompareAndSwap,
        ..add(sequence)
    };
    let elsewhere = Request {
        word: WORDS as u16,
        ..add(60)
    };
    let other_life = Request {
        epoch: epoch ^ 1,
        ..add(70)
    };
    let other_operand = Request {
        operand: 6,
        ..add(20)
    };
    let steps = [
        ("first", add(10), Status::Done, 0),
        ("again", add(10), Status::Done, 0),
        ("next", add(20), Status::Done, 5),
        ("past", add(10), Status::Stale, 0),
        (
            "another one with its number",
            other_operand,
            Status::Stale,
            0,
        ),
        ("swaps", swap(30), Status::Done, 0),
        ("swaps not", swap(40), Status::Done, 5),
        ("no such word", elsewhere, Status::NoWord, 0),
        ("of another life", other_life, Status::Epoch, 0),
        ("goes on", add(80), Status::Done, 10),
    ];
    for (what, request, status, value) in steps {
        let (reply, _) = bench.ask(PLAIN, &request);
        assert_eq!((reply.status, reply.value), (status, value), "{what}");
        assert_eq!(reply.sequence, request.sequence);
    }
    let counted = bench.counted();
    assert_eq!(
        (counted.atomics, counted.repeated, counted.refused),
        (6, 1, 3)
    );
}

#[test]
fn a_full_table_of_initiators_forgets_the_oldest_and_none_that_is_alive() {
    let Some(bench) = Bench::new(|options| options.rate_max = u32::MAX) else {
        return;
    };
    let ask = |request: &Request| bench.ask(PLAIN, request);
    let epoch = ask(&read(1)).0.epoch;
    let add = |initiator, sequence| Request {
        initiator,
        ..atomic(Verb::FetchAndAdd, 1, sequence, epoch)
    };
    // However slow the machine is: each is numbered when it is made, and anew when it came too late.
    let numbers: Vec<_> = (0..1024)
        .map(|initiator| {
            loop {
                let number = crate::clock::now().nanos();
                let (reply, _) = ask(&add(initiator, number));
                if reply.status == Status::Done {
                    break number;
                }
                assert_eq!(reply.status, Status::TooOld);
            }
        })
        .collect();
    // However long that takes: it does come.
    let evicted_at = loop {
        let (reply, _) = ask(&add(5000, crate::clock::now().nanos()));
        if reply.status == Status::Done {
            break reply.node_now_ns;
        }
        let waits = [Status::Full, Status::TooOld].contains(&reply.status);
        assert!(waits, "{:?}", reply.status);
        let alive = reply.node_now_ns <= numbers[0] + 5 * nanos(AGE_MAX);
        assert!(
            alive || reply.status == Status::TooOld,
            "nothing is forgotten"
        );
    };
    assert!(evicted_at > numbers[0] + nanos(AGE_MAX), "it was alive");
    let (gone, _) = ask(&add(0, numbers[0]));
    assert_eq!(gone.status, Status::TooOld, "and is not carried out again");
    for kept in [1, 1023] {
        let (again, _) = ask(&add(kept, numbers[kept as usize]));
        assert_eq!((again.status, again.value), (Status::Done, kept * 5));
    }
}

#[test]
fn only_networks_on_the_list_are_listened_to() {
    let allowed = |network: &str| {
        let network = network.parse().expect("a network");
        Bench::new(|options| options.allow = vec![network])
    };
    for (network, v4, v6) in [
        ("192.0.2.0/24", true, false),
        ("192.0.2.1", false, false),
        ("198.51.100.0/24", false, false),
        ("fd00::/8", false, true),
        ("0.0.0.0/0", true, false),
        ("::/0", true, true),
    ] {
        let Some(bench) = allowed(network) else {
            return;
        };
        for (wrap, answered) in [(PLAIN, v4), (Wrap { v6: true, ..PLAIN }, v6)] {
            let frame = wrap.frame(&message(&read(1), &key()));
            let wanted = if answered { XDP_TX } else { XDP_PASS };
            assert_eq!(
                bench.run("xdp_respond", &frame).0,
                wanted,
                "{network} {wrap:?}"
            );
        }
    }
}

#[test]
fn a_flood_is_dropped() {
    let Some(bench) = Bench::new(|options| options.rate_max = 100) else {
        return;
    };
    let frame = PLAIN.frame(&message(&read(1), &key()));
    let verdicts: Vec<_> = (0..50)
        .map(|_| bench.run("xdp_respond", &frame).0)
        .collect();
    // One in ten milliseconds.
    assert!(verdicts.contains(&XDP_DROP), "{verdicts:?}");
    assert_eq!(verdicts[0], XDP_TX);
    assert!(bench.counted().limited > 0);
}

#[test]
fn a_flood_of_strangers_keeps_nobody_out_who_is_listened_to() {
    let bench = Bench::new(|options| {
        options.rate_max = 100;
        options.allow = vec!["192.0.2.0/24".parse().expect("a network")];
    });
    let Some(bench) = bench else { return };
    let request = message(&read(1), &key());
    let stranger = Wrap { v6: true, ..PLAIN }.frame(&request);
    for program in ["xdp_respond", "tc_respond"] {
        for _ in 0..50 {
            bench.run(program, &stranger);
        }
    }
    assert!(bench.counted().limited > 0, "strangers have a rate, too");
    assert_eq!(bench.run("xdp_respond", &PLAIN.frame(&request)).0, XDP_TX);
}

#[test]
fn what_is_no_request_uses_up_nothing_of_the_rate() {
    let Some(bench) = Bench::new(|options| options.rate_max = 100) else {
        return;
    };
    // Version, verb, lines, flags.
    for at in [4, 5, 6, 7] {
        let mut bytes = message(&read(1), &key());
        bytes[at] ^= 0x80;
        let frame = PLAIN.frame(&bytes);
        for _ in 0..20 {
            assert_eq!(bench.run("xdp_respond", &frame).0, XDP_PASS, "byte {at}");
        }
    }
    let frame = PLAIN.frame(&message(&read(1), &key()));
    assert_eq!(bench.run("xdp_respond", &frame).0, XDP_TX);
    assert_eq!(bench.counted().limited, 0);
}

#[test]
fn what_a_process_tells_lies_under_what_the_kernel_sees() {
    let Some(bench) = Bench::new(|_| {}) else {
        return;
    };
    let mut slow = SlowHalf::map(&bench.0.map("slow").expect("a map")).expect("mapped");
    let told = LoadRecord {
        sources: Sources::FILES.with(Sources::BUSY_TICK),
        t_ns: crate::clock::now().nanos(),
        files_open: 123,
        busy_ns: 1,
        ..LoadRecord::default()
    };
    for files_open in 1..4 {
        slow.publish(&LoadRecord { files_open, ..told });
        let (_, bytes) = bench.ask(PLAIN, &read(AGGREGATE_LINES));
        let record = LoadRecord::decode(&bytes).expect("a record");
        assert_eq!(record.files_open, files_open);
        assert!(record.sources.has(Sources::FILES));
        assert!(
            !record.sources.has(Sources::BUSY_TICK),
            "not how it was counted"
        );
    }
    slow.publish(&LoadRecord { t_ns: 1, ..told });
    let (_, bytes) = bench.ask(PLAIN, &read(AGGREGATE_LINES));
    let record = LoadRecord::decode(&bytes).expect("a record");
    assert!(!record.sources.has(Sources::FILES), "too old");
    assert_eq!(record.files_open, 0);
}

#[test]
fn memory_and_sockets_are_those_of_proc() {
    let Some(bench) = Bench::new(|_| {}) else {
        return;
    };
    let (_, bytes) = bench.ask(PLAIN, &read(AGGREGATE_LINES));
    let record = LoadRecord::decode(&bytes).expect("a record");
    assert!(record.sources.has(Sources::MEMORY));
    // Not /proc/meminfo: what a machine was promised may be more than what its zones hold.
    let text = std::fs::read_to_string("/proc/zoneinfo").expect("zones");
    let managed = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("managed"));
    let pages: u64 = managed.filter_map(|it| it.trim().parse::<u64>().ok()).sum();
    assert_eq!(
        record.memory_total,
        pages * rustix::param::page_size() as u64
    );
    let available = record.memory_available as f64 / record.memory_total as f64;
    assert!((0.02..1.0).contains(&available), "{record:?}");
    assert!(record.sources.has(Sources::SOCKETS));
    let connections = Connections::open(5);
    // Looked at each few milliseconds.
    let deadline = crate::clock::now() + Duration::from_secs(5);
    loop {
        let (_, bytes) = bench.ask(PLAIN, &read(AGGREGATE_LINES));
        let after = LoadRecord::decode(&bytes).expect("a record");
        // Five connections have two ends each; others of this machine may have ended.
        if after.tcp_established.saturating_sub(record.tcp_established) >= 8 {
            break;
        }
        assert!(crate::clock::now() < deadline, "{after:?}");
    }
    drop(connections);
}

/// Kept open.
struct Connections {
    _ends: Vec<std::net::TcpStream>,
}

impl Connections {
    fn open(count: usize) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("its address");
        let mut ends = Vec::new();
        for _ in 0..count {
            ends.push(std::net::TcpStream::connect(address).expect("a connection"));
            ends.push(listener.accept().expect("its other end").0);
        }
        Self { _ends: ends }
    }
}

/// Run queue and its tasks of the normal class: where each CPU's are.
fn queues(programs: &Programs) -> Vec<[u8; 16]> {
    let map = programs.map("cpus").expect("the CPUs");
    let cpus = libbpf_rs::num_possible_cpus().expect("CPUs") as u32;
    let look = |cpu: u32| {
        let found = map.lookup(&cpu.to_ne_bytes(), MapFlags::ANY);
        let bytes = found.expect("a CPU").expect("a CPU");
        bytes[..16].try_into().expect("two addresses")
    };
    (0..cpus).map(look).collect()
}

#[test]
fn both_ways_lead_to_the_same_run_queues() {
    let Some(bench) = Bench::new(|_| {}) else {
        return;
    };
    let Some(symbols) = Symbols::find() else {
        skip("this kernel does not tell where its data are (KALLSYMS_ALL)");
        return;
    };
    let by_group = queues(&bench.0);
    assert_ne!(by_group[0], [0; 16]);
    scope::call_with(&bench.0, symbols).expect("run queues");
    assert_eq!(queues(&bench.0), by_group);
}

#[test]
fn symbols_are_where_the_kernel_tells_them() {
    let list = |lines: &[&str]| Symbols::of(lines.iter().map(|it| (*it).to_owned()));
    let all = [
        "ffffffff81000000 T _text",
        "0000000000020040 A runqueues",
        "ffffffff82a0b0c0 D __per_cpu_offset",
    ];
    let found = Symbols {
        runqueues: 0x20040,
        per_cpu_offset: 0xffff_ffff_82a0_b0c0,
    };
    assert_eq!(list(&all), Some(found));
    assert_eq!(list(&all[..2]), None);
    assert_eq!(
        list(&["0000000000000000 A runqueues", all[2]]),
        None,
        "not told"
    );
}

#[test]
fn a_whole_message_fits_a_frame() {
    const { assert!(MESSAGE_BYTES_MAX + 8 + 40 <= 1500) };
}

#[test]
fn counters_are_in_the_order_of_the_programs() {
    let source = include_str!("../../bpf/state.h");
    let list = source.split_once("enum count {").map(|(_, rest)| rest);
    let list = list.and_then(|rest| rest.split_once("COUNTS,"));
    let names: Vec<_> = list
        .map_or("", |(list, _)| list)
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    let drops = DropReason::ALL
        .iter()
        .map(|(_, label)| format!("DROP_{label}"));
    let counts = COUNTS.iter().map(|name| format!("COUNT_{name}"));
    let ours: Vec<_> = drops.chain(counts).map(|it| it.to_uppercase()).collect();
    assert_eq!(names, ours);
}

#[test]
fn interfaces_are_chosen_by_the_address_or_by_having_one() {
    let interface = |name: &str, addresses: &[&str]| Interface {
        name: name.into(),
        index: 1,
        addresses: addresses
            .iter()
            .map(|it| it.parse().expect("an address"))
            .collect(),
    };
    let all = || {
        vec![
            interface("eth0", &["10.0.0.1", "fe80::1"]),
            interface("eth1", &["fd00::1", "fe80::2"]),
            interface("veth7", &["fe80::3"]),
            interface("port", &[]),
            interface("auto", &["169.254.1.1"]),
        ]
    };
    for (listen, chosen) in [
        ("0.0.0.0", vec!["eth0", "eth1"]),
        ("::", vec!["eth0", "eth1"]),
        ("10.0.0.1", vec!["eth0"]),
        ("::ffff:10.0.0.1", vec!["eth0"]),
        ("fe80::3", vec!["veth7"]),
        ("10.0.0.2", vec![]),
    ] {
        let served = serving(all(), listen.parse().expect("an address"));
        let names: Vec<_> = served.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, chosen, "{listen}");
    }
}
