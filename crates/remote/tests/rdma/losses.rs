//! How long a reader is without news of a node whose queue pairs are gone while its agent answers, with the time that the
//! product gives a READ; and that it never goes back to an older record meanwhile. Times are printed, and nothing rests on
//! them: the emulated machine stands still at times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_core::load::{LoadTable, Rung};
use tidegate_core::record::{LoadRecord, Sources};
use tidegate_remote::reader::ReaderOptions;
use tidegate_remote::{RegionMemory, clock};

use super::any_port;
use super::reading::{Fickle, NODE, read_into, until, until_it_stands};
use crate::support::rdma::{RdmaServer, has_device};

/// How many losses, if not [`FEW`].
const LOSSES: &str = "TIDEGATE_TEST_LOSSES";
const FEW: usize = 2;
/// Records that come over RDMA before a loss.
const RECORDS: u32 = 10;

/// Publishes a record each millisecond or so, each with the number behind that of the last as its run queue.
fn publish_numbers(memory: &RegionMemory, stop: &AtomicBool) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let now = clock::now();
        number += 1;
        let record = LoadRecord {
            t_ns: now.nanos(),
            rung: Rung::Agent as u8,
            sources: Sources::RUNNABLE,
            runnable: number,
            ..LoadRecord::default()
        };
        memory.publish(&record, &[]);
        clock::sleep_until(now + Duration::from_millis(1));
    }
}

/// Ends the publisher, however the test ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What decisions see: rung and number of the last record; nothing while the load is unknown. Fails if it is an older
/// one than before.
struct Sight {
    table: Arc<LoadTable>,
    number: f32,
}

impl Sight {
    fn look(&mut self) -> Option<Rung> {
        let load = self.table.last(NODE);
        if load.runnable.is_nan() {
            return None;
        }
        assert!(
            load.runnable >= self.number,
            "record {} after record {}",
            load.runnable,
            self.number
        );
        self.number = load.runnable;
        Some(load.rung)
    }

    /// The time from the loss to the first record that came by datagram.
    fn time_of_a_loss(memory: &RegionMemory, fickle: &Fickle, node: &RdmaServer) -> Duration {
        fickle.begin(memory, false);
        let table = Arc::new(LoadTable::new(1, 1));
        let wait = ReaderOptions::default().one_sided_timeout;
        let reader = read_into(Arc::clone(&table), node.address(), wait);
        let mut sight = Self { table, number: 0.0 };
        until_it_stands(&reader);
        let mut seen = 0;
        until(|| {
            let before = sight.number;
            let by_rdma = sight.look() == Some(Rung::Rdma);
            seen += u32::from(by_rdma && sight.number > before);
            seen >= RECORDS
        });
        let gone_at = clock::now();
        std::thread::scope(|scope| {
            // Queue pairs take a while to be destroyed.
            scope.spawn(|| fickle.end());
            until(|| sight.look() == Some(Rung::Agent));
        });
        reader.status(NODE).unwrap().progress_at.since(gone_at)
    }
}

#[test]
fn a_node_whose_queue_pairs_are_gone_is_read_by_datagram_and_no_record_comes_twice() {
    if !has_device() {
        return;
    }
    let losses = std::env::var(LOSSES).map_or(FEW, |it| it.parse().unwrap());
    let memory = Arc::new(RegionMemory::anonymous().unwrap());
    let fickle = Fickle::default();
    let node = RdmaServer::with(Arc::clone(&memory), any_port(), fickle.clone());
    let stop = AtomicBool::new(false);
    let mut times: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| publish_numbers(&memory, &stop));
        let _stop = Stop(&stop);
        let times = (0..losses).map(|_| Sight::time_of_a_loss(&memory, &fickle, &node));
        times.collect()
    });
    times.sort_unstable();
    println!(
        "from the loss of the queue pairs to the first record by datagram, of {} losses: median {:.1?}, most {:.1?} (emulated)",
        times.len(),
        times[times.len() / 2],
        times[times.len() - 1],
    );
}
