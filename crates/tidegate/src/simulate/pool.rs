//! Runs on all CPUs: each thread takes the costliest job that is not taken yet, so that the
//! last ones to end are short.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Does every job and gives the results in the order of the jobs; `done` hears of each as it
/// ends. The first error ends it: jobs that have not begun are left out.
pub(super) fn run_all<J: Sync, R: Send, E: Send>(
    jobs: &[J],
    threads: usize,
    cost: impl Fn(&J) -> f64,
    run: impl Fn(&J) -> Result<R, E> + Sync,
    mut done: impl FnMut(&J, &R),
) -> Result<Vec<R>, E> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by(|one, other| cost(&jobs[*other]).total_cmp(&cost(&jobs[*one])));
    let queue = Queue {
        order,
        next: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
    };
    let (sender, results) = channel();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            let (sender, queue, run) = (sender.clone(), &queue, &run);
            scope.spawn(move || work(jobs, queue, run, &sender));
        }
        drop(sender);
        collect(jobs, &results, &mut done)
    })
}

struct Queue {
    order: Vec<usize>,
    next: AtomicUsize,
    failed: AtomicBool,
}

fn work<J, R, E>(
    jobs: &[J],
    queue: &Queue,
    run: &impl Fn(&J) -> Result<R, E>,
    results: &Sender<(usize, Result<R, E>)>,
) {
    while !queue.failed.load(Ordering::Relaxed) {
        let next = queue.next.fetch_add(1, Ordering::Relaxed);
        let Some(index) = queue.order.get(next) else {
            return;
        };
        let result = run(&jobs[*index]);
        if result.is_err() {
            queue.failed.store(true, Ordering::Relaxed);
        }
        if results.send((*index, result)).is_err() {
            return;
        }
    }
}

fn collect<J, R, E>(
    jobs: &[J],
    results: &Receiver<(usize, Result<R, E>)>,
    done: &mut impl FnMut(&J, &R),
) -> Result<Vec<R>, E> {
    let mut found: Vec<Option<R>> = jobs.iter().map(|_| None).collect();
    let mut failure = None;
    for (index, result) in results {
        match result {
            Ok(result) => {
                done(&jobs[index], &result);
                found[index] = Some(result);
            }
            Err(error) => {
                failure.get_or_insert(error);
            }
        }
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(found.into_iter().flatten().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn results_come_in_the_order_of_the_jobs_and_costly_jobs_first() {
        let jobs = [1u32, 5, 3];
        let mut heard = Vec::new();
        let run = |job: &u32| Ok::<_, ()>(job * 10);
        let results = run_all(
            &jobs,
            1,
            |job| f64::from(*job),
            run,
            |job, _| heard.push(*job),
        );
        assert_eq!(results, Ok(vec![10, 50, 30]));
        assert_eq!(heard, [5, 3, 1]);
    }

    #[test]
    fn the_first_error_ends_it() {
        let jobs: Vec<u32> = (0..1000).collect();
        let ran = AtomicUsize::new(0);
        let run = |job: &u32| {
            ran.fetch_add(1, Ordering::Relaxed);
            if *job == 999 { Err("broken") } else { Ok(()) }
        };
        let results = run_all(&jobs, 1, |job| f64::from(*job), run, |_, ()| {});
        assert_eq!(results, Err("broken"));
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn many_threads_do_each_job_once() {
        let jobs: Vec<u64> = (0..500).collect();
        let heard = Mutex::new(0);
        let run = |job: &u64| Ok::<_, ()>(*job);
        let results = run_all(&jobs, 8, |_| 1.0, run, |_, _| *heard.lock().unwrap() += 1);
        assert_eq!(results, Ok(jobs));
        assert_eq!(heard.into_inner().unwrap(), 500);
    }
}
