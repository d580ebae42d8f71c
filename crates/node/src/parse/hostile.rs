//! Every parser over bytes that no kernel would write: they must answer, whatever it is.

use std::path::Path;

use tidegate_core::prng::Prng;

use super::{cgroup, cpu, diag, keyed, mounts, network, process, single, system};

const ROUNDS: usize = 2_000;

/// All parsers over the same bytes; what they answer does not matter, only that they do.
fn feed(bytes: &[u8]) {
    let _ = cpu::stat(bytes, |number, _| assert!(number <= cpu::CPU_NUMBER_MAX));
    let _ = cpu::schedstat(bytes, |number, _| assert!(number <= cpu::CPU_NUMBER_MAX));
    let _ = cpu::loadavg(bytes);
    let _ = cpu::usage_percpu(bytes, |number, _| assert!(number <= cpu::CPU_NUMBER_MAX));
    let _ = cpu::cpu_list(bytes);
    let _ = system::meminfo(bytes);
    let _ = system::file_nr(bytes);
    let _ = system::diskstats(bytes, |_, _| ());
    let _ = system::pressure(bytes);
    let _ = network::time_wait(bytes);
    let _ = network::mib(bytes, b"Tcp: ", b"CurrEstab");
    let _ = network::dev(bytes, |_, _| ());
    let _ = process::state(bytes);
    let _ = process::run_and_wait(bytes);
    let _ = process::files_max(bytes);
    let _ = process::cpus_allowed(bytes);
    let _ = process::pid_file(bytes);
    let _ = cgroup::quota_v2(bytes);
    let _ = cgroup::quota_v1(bytes, bytes);
    let _ = cgroup::usage_v2(bytes);
    let _ = cgroup::throttled(bytes);
    let _ = cgroup::memory_limit(bytes);
    let _ = keyed(bytes, b"total_inactive_file");
    let _ = single(bytes);
    let _ = mounts::hierarchies(bytes);
    let _ = diag::answer(bytes);
    let _ = diag::connections(bytes, 80);
}

/// All files of the fixtures, and an answer of netlink.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![diag::tests::message(20, 10, 3)];
    let mut ahead = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")];
    while let Some(directory) = ahead.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                ahead.push(path);
            } else {
                seeds.push(std::fs::read(path).unwrap());
            }
        }
    }
    // The order of a directory is the file system's: a seed must replay anyway.
    seeds.sort();
    seeds
}

/// Cuts, doubles, overwrites and fills up with digits.
fn spoil(bytes: &mut Vec<u8>, prng: &mut Prng) {
    for _ in 0..=prng.below(4) {
        let at = prng.below(bytes.len() + 1);
        match prng.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_within(at..),
            2 => bytes.insert(at, prng.bits() as u8),
            3 => {
                let number = prng.bits().to_string();
                bytes.splice(at..at, number.into_bytes());
            }
            4 => bytes.splice(at..at, *b"\n").for_each(drop),
            _ => bytes.splice(at..at, [b'9'; 40]).for_each(drop),
        }
    }
}

#[test]
fn spoiled_files_are_answered() {
    // Fails if a parser panics, or gives a CPU beyond the limit: `feed` asserts that.
    let seeds = seeds();
    for seed in &seeds {
        feed(seed);
    }
    let mut prng = Prng::new(1);
    for _ in 0..ROUNDS {
        let mut bytes = seeds[prng.below(seeds.len())].clone();
        spoil(&mut bytes, &mut prng);
        feed(&bytes);
    }
}

#[test]
fn noise_is_answered() {
    // Fails if a parser panics, or gives a CPU beyond the limit: `feed` asserts that.
    let mut prng = Prng::new(2);
    for _ in 0..ROUNDS {
        let length = prng.below(300);
        let bytes: Vec<u8> = (0..length).map(|_| prng.bits() as u8).collect();
        feed(&bytes);
    }
    for byte in 0..=u8::MAX {
        feed(&vec![byte; 5_000]);
    }
}
