//! When a site's load is reason enough for a move: the window of its evidence, the history T, the sensitivity S.
//!
//! ```text
//! each S  p_x >= high, or the window begins anew.  It also does where S[x] or U[x] changed, a node is on its way to x,
//!         a node of x began to serve less than `settle` ago, the home is silent or another constitution is in force
//! fixed T act when the window is T old: the paper's
//! auto T  waited += (p_x - 1) C_x dt                tasks that wait, times seconds, since the load became high
//!         act when waited >= (C_x + C_n) price          price = switch + ramp / 2, 0.45 s at least
//!         not before S, and after 10 s of the window in any case
//! turn    each S a front-end that may act does so with probability 1 / front-ends, to spare swaps that fail
//! budget  U[x] grew by less than `flap_budget` within a minute
//! dwell   a node stays where it came for max(T, 1 s)      in `choice.rs`
//! ```
//!
//! For a burst of unknown length the cheapest rule that knows nothing is to buy once renting has cost the price (ski rental): at
//! most twice what one that knew the length would pay, per burst. With a node of C_n more, C_n / (C_x + C_n) of what waits would
//! not have waited, and the move costs C_n price: divided by C_n / (C_x + C_n), both give the rule above. So the
//! same account says when the second node is worth its price, and the third: a move ends the window and not the account.
//! Where demand is far off, nodes follow each other as fast as the words, `settle` and the load that is seen after each
//! allow. The switch time is a mean of what was measured from TAKE to SERVING, so T follows the cluster; before that
//! it is what the site's nodes have to do.
//!
//! Inputs: pressure, the best move so far, the site's words, random numbers, `now`. Failure case: bursts that end just after T, every
//! time, cost a move each: the budget bounds that. Pressure that no CPU relieves (a full database) asks for moves.
//! Source: Reconfiguration-2004, sections 3.1.2 to 3.1.4 (counters, T, S); SkiRental-1988 for `auto`.

use std::collections::VecDeque;
use std::time::Duration;

use super::plan::{EventWindow, SiteReading};
use crate::time::Timestamp;

/// S: how often evidence is looked at.
pub const SENSITIVITY: Duration = Duration::from_millis(10);
/// `auto` acts after this at the latest.
const AUTO_MAX: Duration = Duration::from_secs(10);
/// Between two looks that lie further apart the load is not known.
const UNSEEN_MAX: Duration = Duration::from_millis(100);
/// Dwell is this at least.
const DWELL_MIN: Duration = Duration::from_secs(1);
/// `settle` is this at least, and so many service times.
const SETTLE_MIN: Duration = Duration::from_millis(50);
const SETTLE_SERVICE_TIMES: u32 = 2;
/// The window of the budget.
const BUDGET_WINDOW: Duration = Duration::from_secs(60);
/// Most moves per minute that a budget can allow: it remembers each.
pub const FLAP_BUDGET_MAX: usize = 1000;
/// How much a new switch time counts for in the mean.
const SWITCH_GAIN: f64 = 0.2;
/// A node counts as missed for this at least: what chance queues up at sites of few nodes must not pay for a move.
const PRICE_MIN: f64 = 0.45;
/// The switch time before any was measured: of nodes that drain, and of those that run a hook.
const SWITCH_DRAIN: Duration = Duration::from_secs(1);
const SWITCH_HOOK: Duration = Duration::from_secs(2);

/// T: how long a site's load must have been high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// So long.
    Fixed(Duration),
    /// Until waiting has cost as much as a move.
    Auto,
}

impl History {
    /// How long a node stays where it has come.
    pub fn dwell(self) -> Duration {
        match self {
            Self::Fixed(history) => history.max(DWELL_MIN),
            Self::Auto => DWELL_MIN,
        }
    }
}

/// How long after a node of a site began to serve its load says nothing yet.
pub fn settle(service_time: Duration) -> Duration {
    SETTLE_MIN.max(SETTLE_SERVICE_TIMES * service_time)
}

/// What a front-end sees of a site each S.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvidenceTick {
    /// S and U; `None` if the home is silent or another constitution is in force.
    pub reading: Option<SiteReading>,
    /// A node is on its way to the site.
    pub awaited: bool,
    /// When a node of the site last began to serve.
    pub began_to_serve: Timestamp,
    /// How long that says nothing.
    pub settle: Duration,
    /// p, and from which value it is high.
    pub pressure: f64,
    /// From which value it is high.
    pub high: f64,
    /// CPUs of the node that is best moved.
    pub best: Option<f64>,
    /// CPUs of the site.
    pub cpus: f64,
}

/// Why a window began anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowEnd {
    /// The load is not high.
    NotHigh,
    /// A move of the site began or ended.
    Moved,
    /// A node is on its way to the site.
    Awaited,
    /// A node has just begun to serve the site.
    Settling,
    /// The home is silent, or front-ends disagree.
    NoWords,
    /// It is the first one.
    First,
}

/// What evidence comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judgement {
    /// It begins anew, and why.
    Anew(WindowEnd),
    /// The load is high, and has not been for long enough. How much of T or of the move's cost is there.
    Gathers(f64),
    /// A move may be made, on the evidence of this window.
    Acts(EventWindow),
}

/// The evidence of one site, at one front-end.
#[derive(Clone, Debug)]
pub struct Evidence {
    history: History,
    window: Option<EventWindow>,
    ticked_at: Option<Timestamp>,
    /// Task seconds since the load became high, while a move would have helped.
    waited: f64,
    switch: SwitchTime,
}

/// What nodes do between their sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchKind {
    /// Nothing: they serve the new one at once.
    AtOnce,
    /// They end the requests of the old one.
    Drain,
    /// That, and a hook sets them up.
    Hook,
}

/// How long moves take, from TAKE to SERVING, and half of the ramp on top.
#[derive(Clone, Copy, Debug)]
pub struct SwitchTime {
    mean_s: f64,
    ramp_s: f64,
}

impl SwitchTime {
    /// Before any was measured; a node has its full share after `ramp`.
    pub fn new(kind: SwitchKind, ramp: Duration) -> Self {
        let first = match kind {
            SwitchKind::AtOnce => Duration::ZERO,
            SwitchKind::Drain => SWITCH_DRAIN,
            SwitchKind::Hook => SWITCH_HOOK,
        };
        Self {
            mean_s: first.as_secs_f64(),
            ramp_s: ramp.as_secs_f64(),
        }
    }

    /// One was measured.
    pub fn on_move(&mut self, took: Duration) {
        self.mean_s += SWITCH_GAIN * (took.as_secs_f64() - self.mean_s);
    }

    /// Seconds for which a node that moves is missed, all in all.
    pub fn price(&self) -> f64 {
        (self.mean_s + self.ramp_s / 2.0).max(PRICE_MIN)
    }
}

impl Evidence {
    /// None yet.
    pub fn new(history: History, switch: SwitchTime) -> Self {
        Self {
            history,
            window: None,
            ticked_at: None,
            waited: 0.0,
            switch,
        }
    }

    /// A move of the site took so long.
    pub fn on_move(&mut self, took: Duration) {
        self.switch.on_move(took);
    }

    /// The window that is open.
    pub fn window(&self) -> Option<EventWindow> {
        self.window
    }

    /// Takes what is seen.
    pub fn on_tick(&mut self, tick: &EvidenceTick, now: Timestamp) -> Judgement {
        self.account(tick, now);
        if let Some(end) = self.ends(tick, now) {
            self.window = tick.reading.map(|reading| EventWindow {
                lock: reading.lock,
                updates: reading.updates,
                began_at: now,
            });
            return Judgement::Anew(end);
        }
        let Some(window) = self.window else {
            return Judgement::Anew(WindowEnd::First);
        };
        let part = self.part(tick, now.since(window.began_at));
        match part >= 1.0 && tick.best.is_some() {
            true => Judgement::Acts(window),
            false => Judgement::Gathers(part.min(1.0)),
        }
    }

    /// What has waited so far. What a front-end that was paused did not see does not count.
    fn account(&mut self, tick: &EvidenceTick, now: Timestamp) {
        let before = self.ticked_at.replace(now).unwrap_or(now);
        let dt = now.since(before).min(UNSEEN_MAX).as_secs_f64();
        // NaN is not high.
        let is_high = tick.pressure >= tick.high;
        match (is_high && tick.reading.is_some(), tick.best.is_some()) {
            (true, true) => self.waited += (tick.pressure - 1.0).max(0.0) * tick.cpus * dt,
            (true, false) => {}
            (false, _) => self.waited = 0.0,
        }
    }

    fn ends(&self, tick: &EvidenceTick, now: Timestamp) -> Option<WindowEnd> {
        let Some(reading) = tick.reading else {
            return Some(WindowEnd::NoWords);
        };
        let Some(window) = self.window else {
            return Some(WindowEnd::First);
        };
        if reading.lock != window.lock || reading.updates != window.updates {
            return Some(WindowEnd::Moved);
        }
        if tick.awaited {
            return Some(WindowEnd::Awaited);
        }
        let is_new = tick.began_to_serve != Timestamp::ZERO;
        if is_new && now.since(tick.began_to_serve) < tick.settle {
            return Some(WindowEnd::Settling);
        }
        // NaN is not high.
        let is_high = tick.pressure >= tick.high;
        (!is_high).then_some(WindowEnd::NotHigh)
    }

    /// How much of what is asked for is there: of the time, or of what must have waited.
    fn part(&self, tick: &EvidenceTick, age: Duration) -> f64 {
        let of = |time: Duration| age.as_secs_f64() / time.as_secs_f64().max(f64::MIN_POSITIVE);
        match (self.history, tick.best) {
            (History::Fixed(history), _) => of(history),
            (History::Auto, None) => 0.0,
            (History::Auto, Some(best)) => {
                let asked = (tick.cpus + best) * self.switch.price();
                let part = self.waited / asked.max(f64::MIN_POSITIVE);
                part.min(of(SENSITIVITY)).max(of(AUTO_MAX))
            }
        }
    }
}

/// Whether a front-end that may act does so at this S.
pub fn has_its_turn(random: f64, front_ends: u32) -> bool {
    random * f64::from(front_ends.max(1)) < 1.0
}

/// How many moves of a site there were within a minute, by its update counter.
#[derive(Clone, Debug)]
pub struct FlapBudget {
    moves_max: usize,
    seen: Option<u64>,
    moves: VecDeque<Timestamp>,
}

impl FlapBudget {
    /// So many moves per minute, [`FLAP_BUDGET_MAX`] at most.
    pub fn new(moves_max: usize) -> Self {
        Self {
            moves_max: moves_max.min(FLAP_BUDGET_MAX),
            seen: None,
            moves: VecDeque::new(),
        }
    }

    /// U was read.
    pub fn on_read(&mut self, updates: u64, now: Timestamp) {
        // A counter that fell has begun anew.
        let before = self.seen.filter(|it| *it <= updates).unwrap_or(updates);
        self.seen = Some(updates);
        let new = usize::try_from(updates - before).unwrap_or(usize::MAX);
        self.moves.extend((0..new.min(self.moves_max)).map(|_| now));
        let over = self.moves.len().saturating_sub(self.moves_max);
        self.moves.drain(..over);
    }

    /// Whether one more is within the budget.
    pub fn allows(&mut self, now: Timestamp) -> bool {
        while let Some(first) = self.moves.front() {
            if now.since(*first) < BUDGET_WINDOW {
                break;
            }
            self.moves.pop_front();
        }
        self.moves.len() < self.moves_max
    }
}

#[cfg(test)]
#[path = "evidence_tests.rs"]
mod tests;
