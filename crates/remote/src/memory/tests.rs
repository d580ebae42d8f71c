//! The record area under a writer that never rests, and the life of a region's file.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use tidegate_core::record::{AGGREGATE_LINES, CPU_LINES_MAX, LINES_MAX};

use super::*;

/// A record whose every field follows from one number.
fn record(number: u64) -> LoadRecord {
    LoadRecord {
        t_ns: number,
        services: number,
        busy_ns: number,
        psi_io_ns: number,
        accept_overflows: number,
        completions: number,
        ..LoadRecord::default()
    }
}

fn cpu(number: u64) -> CpuLine {
    CpuLine {
        busy_ns: number,
        softirq_ns: number,
        runnable_ns: number,
        ..CpuLine::default()
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(format!(
        "/dev/shm/tidegate-test-{name}-{:016x}",
        random().unwrap()
    ))
}

#[test]
fn sequences_grow_and_pass_over_zero() {
    assert_eq!(next_sequence(0), 1);
    assert_eq!(next_sequence(u32::MAX), 1);
    let memory = RegionMemory::anonymous().unwrap();
    *memory.sequence.lock().unwrap() = u32::MAX - 1;
    let mut bytes = [0; RECORD_BYTES_MAX];
    let mut seen = Vec::new();
    for number in 0..3 {
        memory.publish(&record(number), &[]);
        seen.push(memory.copy(&mut bytes).unwrap());
    }
    assert_eq!(seen, [u32::MAX, 1, 2]);
}

#[test]
fn a_record_that_became_shorter_leaves_no_lines_behind() {
    let memory = RegionMemory::anonymous().unwrap();
    let mut bytes = [0xff; RECORD_BYTES_MAX];
    memory.publish(&record(1), &[cpu(1); CPU_LINES_MAX]);
    memory.copy(&mut bytes).unwrap();
    let seen = LoadRecord::decode(&bytes).unwrap();
    assert_eq!(seen.cpus(&bytes).count(), CPU_LINES_MAX);
    memory.publish(&record(2), &[cpu(2)]);
    memory.copy(&mut bytes).unwrap();
    let seen = LoadRecord::decode(&bytes).unwrap();
    assert_eq!(seen.cpus(&bytes).collect::<Vec<_>>(), [cpu(2)]);
    let held = (AGGREGATE_LINES + 1) * tidegate_core::record::LINE_BYTES;
    assert!(bytes[held..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_generation_is_given_where_there_is_none() {
    let memory = RegionMemory::anonymous().unwrap();
    let mut bytes = [0; RECORD_BYTES_MAX];
    let mut published = |record: LoadRecord| {
        memory.publish(&record, &[]);
        memory.copy(&mut bytes).unwrap();
        LoadRecord::decode(&bytes).unwrap().generation
    };
    assert_eq!(published(record(1)), memory.generation());
    let own = LoadRecord {
        generation: 7,
        ..record(2)
    };
    assert_eq!(published(own), 7);
}

#[test]
fn readers_never_see_two_publications_mixed() {
    const PUBLICATIONS: u64 = 60_000;
    const READERS: usize = 3;
    let memory = RegionMemory::anonymous().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let mut bytes = [0; RECORD_BYTES_MAX];
                let mut last = 0;
                while !done.load(Ordering::Acquire) {
                    if memory.copy(&mut bytes).is_err() {
                        continue;
                    }
                    let seen = LoadRecord::decode(&bytes).unwrap();
                    let whole = LoadRecord {
                        sequence: seen.sequence,
                        magic: seen.magic,
                        version: seen.version,
                        lines: seen.lines,
                        cpu_lines: seen.cpu_lines,
                        generation: memory.generation(),
                        ..record(seen.t_ns)
                    };
                    assert_eq!(seen, whole);
                    assert!(seen.cpus(&bytes).all(|line| line == cpu(seen.t_ns)));
                    assert_eq!(seen.cpus(&bytes).count(), usize::from(seen.cpu_lines));
                    assert!(seen.t_ns >= last, "publications are seen in order");
                    last = seen.t_ns;
                }
            });
        }
        for number in 1..=PUBLICATIONS {
            let cpus = [cpu(number); LINES_MAX];
            memory.publish(&record(number), &cpus[..number as usize % CPU_LINES_MAX]);
        }
        done.store(true, Ordering::Release);
    });
}

/// Steps of a writer and a reader of one line, in the order of their source. The words are
/// sequentially consistent here: what the fences add on top is argued in `lines`.
#[test]
fn every_interleaving_of_a_read_with_two_writes_is_whole_or_torn() {
    const WORDS: usize = 4;
    // A write stores words 0 to 3, a read loads words 3 to 0, all of them one by one. A word
    // is (sequence, payload): its ends carry the sequence, its middle only the payload.
    fn explore(writes: usize, reads: usize, line: &mut [u32; WORDS], seen: &mut [u32; WORDS]) {
        if reads == WORDS {
            if seen[0] == seen[WORDS - 1] {
                assert!(
                    seen.iter().all(|word| *word == seen[0]),
                    "{seen:?} passes as whole"
                );
            }
            return;
        }
        if writes < 2 * WORDS {
            let at = writes % WORDS;
            let before = line[at];
            line[at] = 2 + (writes / WORDS) as u32;
            explore(writes + 1, reads, line, seen);
            line[at] = before;
        }
        let at = WORDS - 1 - reads;
        let before = seen[at];
        seen[at] = line[at];
        explore(writes, reads + 1, line, seen);
        seen[at] = before;
    }
    explore(0, 0, &mut [1; WORDS], &mut [0; WORDS]);
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o777
}

#[test]
fn a_name_has_one_owner_and_goes_with_it() {
    let path = path("owner");
    let memory = RegionMemory::create(&path).unwrap();
    assert_eq!(mode(&path), MODE_DEFAULT);
    assert!(matches!(
        RegionMemory::create(&path),
        Err(RegionError::Owned(_))
    ));
    drop(memory);
    assert!(!path.exists());
    let memory = RegionMemory::create_with_mode(&path, 0o660).unwrap();
    assert_eq!(mode(&path), 0o660);
    drop(memory);
}

/// What an owner leaves that was killed: a socket without a listener.
fn left_by_a_dead_owner(path: &Path) {
    drop(std::os::unix::net::UnixListener::bind(path).unwrap());
}

#[test]
fn a_name_left_by_a_dead_owner_is_taken_over_and_any_other_is_not() {
    let path = path("left");
    left_by_a_dead_owner(&path);
    let memory = RegionMemory::create(&path).unwrap();
    assert_eq!(memory.path(), Some(&*path));
    assert!(matches!(
        RegionMemory::create(&path),
        Err(RegionError::Owned(_))
    ));
    drop(memory);
}

#[test]
fn what_is_no_region_is_not_replaced_and_nothing_stays_beside_it() {
    let folder = path("letters");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("region");
    std::fs::write(&path, "somebody's letters").unwrap();
    let refused = RegionMemory::create(&path);
    assert!(matches!(refused, Err(RegionError::NotRegion(_))));
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's letters");
    std::fs::remove_file(&path).unwrap();
    left_by_a_dead_owner(&path);
    let memory = RegionMemory::create(&path).unwrap();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    drop(memory);
    // Fails if anything is left.
    std::fs::remove_dir(&folder).unwrap();
}

#[test]
fn an_owner_that_ends_leaves_a_name_that_another_has_by_now() {
    let path = path("another");
    let first = RegionMemory::create(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let next = RegionMemory::create(&path).unwrap();
    drop(first);
    assert!(path.exists());
    drop(next);
    assert!(!path.exists());
}

#[test]
fn a_name_may_lie_in_the_folder_that_one_is_in_and_must_be_one() {
    let name = path("here");
    let name = Path::new(name.file_name().unwrap());
    let memory = RegionMemory::create(name).unwrap();
    assert!(name.exists());
    drop(memory);
    assert!(!name.exists());
    for none in ["/", "", ".."] {
        let refused = RegionMemory::create(Path::new(none));
        assert!(matches!(refused, Err(RegionError::Io { .. })), "{none}");
    }
}

#[test]
fn of_many_that_come_at_once_one_takes_the_name_over() {
    let path = path("race");
    for _ in 0..20 {
        left_by_a_dead_owner(&path);
        let made = std::thread::scope(|scope| {
            let come = || scope.spawn(|| RegionMemory::create(&path));
            let all: Vec<_> = (0..4).map(|_| come()).collect();
            let join = |it: std::thread::ScopedJoinHandle<'_, _>| it.join().unwrap();
            all.into_iter().map(join).collect::<Vec<_>>()
        });
        let owners: Vec<_> = made.iter().filter_map(|it| it.as_ref().ok()).collect();
        assert_eq!(owners.len(), 1, "{made:?}");
        drop(made);
        assert!(!path.exists());
    }
}

#[test]
fn words_are_counted_and_bounded() {
    let memory = RegionMemory::anonymous().unwrap();
    assert_eq!(memory.fetch_and_add(511, u64::MAX).unwrap(), 0);
    assert_eq!(memory.fetch_and_add(511, 2).unwrap(), u64::MAX);
    assert_eq!(memory.compare_and_swap(511, 1, 9).unwrap(), 1);
    assert_eq!(memory.compare_and_swap(511, 1, 10).unwrap(), 9);
    assert_eq!(memory.word(511).unwrap(), 9);
    assert!(matches!(
        memory.word(512),
        Err(RegionError::Refused(Refusal::Word(512)))
    ));
}
