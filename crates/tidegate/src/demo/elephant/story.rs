//! What happens when: a quiet time, the heavy class, its name, the click, and calm.
//!
//! ```text
//! quiet ──> elephant ──named──> named ──throttled──> throttled ──> end
//!              └── no class is named for too long ──> end     └ no click: the demo does
//! ```
//!
//! It gets the time and what is to be seen, and says what is to be done; it does nothing itself.

use std::time::Duration;

/// Longest quiet time, and its part of all.
const QUIET: Duration = Duration::from_secs(15);
const QUIET_SHARE: f64 = 0.3;
/// Longest search for a name.
const NAMING: Duration = Duration::from_secs(30);
/// How long a click is waited for, at a terminal and elsewhere.
const CLICK: Duration = Duration::from_secs(10);
const NO_CLICK: Duration = Duration::from_secs(2);
/// How long the site is watched when it is calm again, and what of it is kept free in any case.
const CALM: Duration = Duration::from_secs(20);
const CALM_LEAST: Duration = Duration::from_secs(8);
const CALM_SHARE: f64 = 0.2;

/// How long each part may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Schedule {
    /// When the heavy class comes, since the start.
    pub(super) quiet: Duration,
    /// Longest time until it is named.
    pub(super) naming: Duration,
    click: Duration,
    calm_least: Duration,
    /// When all is over.
    pub(super) end: Duration,
}

impl Schedule {
    /// For so much time; `watched` at a terminal, by a person that can click.
    pub(super) fn of(left: Duration, watched: bool) -> Self {
        let quiet = left.mul_f64(QUIET_SHARE).min(QUIET);
        let calm_least = left.mul_f64(CALM_SHARE).min(CALM_LEAST);
        let naming = left.saturating_sub(quiet + calm_least + NO_CLICK);
        Self {
            quiet,
            naming: naming.min(NAMING),
            click: if watched { CLICK } else { NO_CLICK },
            calm_least,
            end: left,
        }
    }
}

/// Where the story is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StoryStage {
    Quiet,
    Elephant,
    /// Since when.
    Named(Duration),
    /// Until when.
    Throttled(Duration),
    End,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoryEvent {
    /// The heavy class has come.
    Elephant,
    /// The class is named for the first time.
    Named,
    /// There was no click: the class is to be throttled now.
    Click,
    /// The class was throttled.
    Throttled,
    /// No class was named in time.
    NotNamed,
    /// The story is over.
    End,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Story {
    schedule: Schedule,
    stage: StoryStage,
}

impl Story {
    pub(super) fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            stage: StoryStage::Quiet,
        }
    }

    pub(super) fn stage(&self) -> StoryStage {
        self.stage
    }

    /// It is so late since the start, a class is named, and it is throttled.
    pub(super) fn go_on(
        &mut self,
        now: Duration,
        named: bool,
        throttled: bool,
    ) -> Option<StoryEvent> {
        let Schedule {
            quiet,
            naming,
            click,
            calm_least,
            end,
        } = self.schedule;
        let (stage, turn) = match self.stage {
            StoryStage::Quiet if now >= quiet => (StoryStage::Elephant, StoryEvent::Elephant),
            StoryStage::Elephant if named => (StoryStage::Named(now), StoryEvent::Named),
            StoryStage::Elephant if now >= quiet + naming => {
                (StoryStage::End, StoryEvent::NotNamed)
            }
            StoryStage::Named(_) if throttled => (
                StoryStage::Throttled((now + CALM).min(end)),
                StoryEvent::Throttled,
            ),
            StoryStage::Named(since)
                if now >= (since + click).min(end.saturating_sub(calm_least)) =>
            {
                // Once: the throttle is seen to be in force the next time.
                return Some(StoryEvent::Click);
            }
            StoryStage::Throttled(until) if now >= until => (StoryStage::End, StoryEvent::End),
            StoryStage::Quiet
            | StoryStage::Elephant
            | StoryStage::Named(_)
            | StoryStage::Throttled(_)
            | StoryStage::End => {
                return None;
            }
        };
        self.stage = stage;
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_minute_has_room_for_all() {
        let minute = Schedule::of(s(58), true);
        assert_eq!((minute.quiet, minute.naming), (s(15), s(30)));
        let short = Schedule::of(s(40), false);
        assert_eq!((short.quiet, short.naming), (s(12), s(18)));
        assert_eq!(Schedule::of(Duration::ZERO, true).naming, Duration::ZERO);
    }

    /// Turns of a story in which a class is named and throttled at these seconds.
    fn told(schedule: Schedule, named: u64, throttled: u64) -> Vec<(u64, StoryEvent)> {
        let mut story = Story::new(schedule);
        let mut turns = Vec::new();
        let mut clicked = false;
        for now in 0..=100 {
            let turn = story.go_on(s(now), now >= named, clicked || now >= throttled);
            clicked |= turn == Some(StoryEvent::Click);
            turns.extend(turn.map(|turn| (now, turn)));
        }
        assert_eq!(story.stage(), StoryStage::End);
        turns
    }

    #[test]
    fn somebody_clicks() {
        let turns = told(Schedule::of(s(58), true), 25, 30);
        let expected = [
            (15, StoryEvent::Elephant),
            (25, StoryEvent::Named),
            (30, StoryEvent::Throttled),
            (50, StoryEvent::End),
        ];
        assert_eq!(turns, expected);
    }

    #[test]
    fn nobody_clicks_and_nobody_watches() {
        let turns = told(Schedule::of(s(58), true), 25, 1000);
        assert_eq!(
            turns[2..4],
            [(35, StoryEvent::Click), (36, StoryEvent::Throttled)]
        );
        let turns = told(Schedule::of(s(58), false), 25, 1000);
        assert_eq!(turns[2], (27, StoryEvent::Click));
        // A late name leaves less time to click, so that some is left for calm.
        let turns = told(Schedule::of(s(58), true), 45, 1000);
        assert_eq!(turns[2], (50, StoryEvent::Click));
        assert_eq!(turns[4], (58, StoryEvent::End));
    }

    #[test]
    fn nobody_is_named() {
        let turns = told(Schedule::of(s(58), true), 1000, 1000);
        assert_eq!(turns[1..], [(45, StoryEvent::NotNamed)]);
    }
}
