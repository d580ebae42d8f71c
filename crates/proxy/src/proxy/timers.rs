//! A worker's timers: once per tick all deadlines are looked at, and less often what can wait. Without a connection nothing has a
//! deadline that is near, and the clock rests until one comes.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::base::TICK;
use crate::forward::rescue;
use crate::listen::{Clients, Rested};

/// Ticks between two sweeps of the pool.
const SWEEP_TICKS: u64 = 50;
/// Ticks between two looks for requests that wait for nodes that answer nothing.
const RESCUE_TICKS: u64 = 5;
/// Ticks between two flushes of the access log.
const FLUSH_TICKS: u64 = 5;

/// A worker without a connection looks this often, for what it keeps of nodes' connections.
const REST: Duration = Duration::from_secs(1);

/// Ticks in a row without a connection after which the clock rests: one that was accepted just now is not counted before its task
/// has begun.
const REST_AFTER: u32 = 5;

/// Keeps a worker's time; for ever.
pub(super) async fn keep_time(clients: Rc<Clients>) {
    let worker = &clients.worker;
    let base = &worker.base;
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut swept_at = 0;
    let mut rescued_at = 0;
    let mut flushed_at = 0;
    let mut served_at = base.now();
    let mut idle_ticks = 0;
    loop {
        idle_ticks = match clients.are_at_rest() {
            true => idle_ticks + 1,
            false => 0,
        };
        let due = if idle_ticks > REST_AFTER {
            base.record.flush();
            let rested = clients.rest(REST).await;
            interval.reset();
            idle_ticks = match rested {
                Rested::Called => 0,
                Rested::Until(_) | Rested::News => REST_AFTER,
            };
            rested.due()
        } else {
            Some(interval.tick().await)
        };
        let now = base.now();
        let lag = due.map_or(Duration::ZERO, |due| due.elapsed());
        clients.watch_lag(lag, now.since(served_at), now);
        served_at = now;
        let tick = base.clock.on_tick();
        clients.follow();
        let room = clients.on_tick(tick);
        if tick >= rescued_at + RESCUE_TICKS {
            rescued_at = tick;
            rescue(worker, |each| clients.for_each(each));
        }
        if worker.leavers.any_due(tick) {
            clients.for_each(|client| {
                client
                    .connection
                    .cut_off_at(|node| worker.leavers.is_due(node, tick))
            });
        }
        if room {
            worker.queue.serve_waiters();
        }
        clients.cut_removed(tick);
        clients.linger(tick);
        if tick >= swept_at + SWEEP_TICKS {
            swept_at = tick;
            let oldest = tick.saturating_sub(base.settings.ticks().upstream_idle);
            worker.pool.borrow_mut().sweep(oldest);
            clients.give_back();
        }
        if tick >= flushed_at + FLUSH_TICKS {
            flushed_at = tick;
            base.record.flush();
        }
    }
}
