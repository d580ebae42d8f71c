//! What it costs a process that uses much memory to start a program: how long that takes, and for how long a thread that
//! writes to the memory meanwhile stands still at most; with a fork, and without one as [`Child`] does it.
//!
//! ```text
//! cargo bench -p tidegate-remote --bench child -- [MIB]
//! ```
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and fails by panicking"
)]

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_remote::child::{Child, Lifetime};
use tidegate_remote::clock;

/// Memory in use, unless given.
const MIB: usize = 1024;
const PAGE_BYTES: usize = 4096;
/// Programs that are started in each way.
const STARTS: usize = 41;
/// Between two of them.
const REST: Duration = Duration::from_millis(50);
const PROGRAM: &str = "/bin/true";

fn main() {
    // Cargo adds options of its own.
    let mib = std::env::args()
        .find_map(|it| it.parse().ok())
        .unwrap_or(MIB);
    let memory: Vec<_> = (0..mib << 20).map(|at| AtomicU8::new(at as u8)).collect();
    measure(&memory, "without a fork", without_fork);
    measure(&memory, "with a fork", with_fork);
}

fn without_fork() -> Duration {
    let (_reader, writer) = std::io::pipe().unwrap();
    let begun = clock::now();
    let mut child = Child::start(&[PROGRAM.into()], &[], writer, Lifetime::Parents).unwrap();
    let took = clock::now().since(begun);
    child.wait().unwrap();
    took
}

fn with_fork() -> Duration {
    let mut command = Command::new(PROGRAM);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: it does nothing.
    unsafe {
        command.pre_exec(|| Ok(()));
    }
    let begun = clock::now();
    let mut child = command.spawn().unwrap();
    let took = clock::now().since(begun);
    child.wait().unwrap();
    took
}

fn measure(memory: &[AtomicU8], how: &str, start: fn() -> Duration) {
    let (ends, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut each: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| write(memory, &ends, &longest));
        let each = (0..STARTS).map(|_| {
            std::thread::sleep(REST);
            longest.store(0, Ordering::Relaxed);
            let took = start();
            (took, Duration::from_nanos(longest.load(Ordering::Relaxed)))
        });
        let each = each.collect();
        ends.store(true, Ordering::Relaxed);
        each
    });
    each.sort_unstable();
    let took = each[STARTS / 2].0;
    each.sort_unstable_by_key(|it| it.1);
    let stood = each[STARTS / 2].1;
    println!(
        "{how}, {} MiB in use: {took:?} to start a program, another thread stood still for {stood:?} (medians of {STARTS})",
        memory.len() >> 20
    );
}

/// Writes to a page after the other, and notes the longest time that one took.
fn write(memory: &[AtomicU8], ends: &AtomicBool, longest: &AtomicU64) {
    let mut at = 0;
    while !ends.load(Ordering::Relaxed) {
        let begun = clock::now();
        memory[at].fetch_add(1, Ordering::Relaxed);
        let took = clock::now().since(begun).as_nanos() as u64;
        longest.fetch_max(took, Ordering::Relaxed);
        // A stride that comes to all pages.
        at = (at + 1021 * PAGE_BYTES) % memory.len();
    }
}
