//! How many nodes each site had, over time: what was seen, and a picture of it in text.
//!
//! ```text
//! shop 5555555678888888888888888888888888765555   a digit per site and moment
//! blog 5555555432222222222222222222222222345555
//!      quiet  crowd                     back
//! ```

use std::time::Duration;

use super::crowd::{NODES_EACH, PHASES, SITES, Schedule};

/// Digits of a line of the picture: with the names it fits in 80 columns.
const DIGITS: usize = 72;
const NAME: usize = 5;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// Since when it was like that; the first is of the beginning.
    changes: Vec<(Duration, [usize; 2])>,
}

impl Timeline {
    /// Nodes by site were seen.
    pub(super) fn see(&mut self, now: Duration, nodes: [usize; 2]) {
        if self.changes.last().is_none_or(|(_, last)| *last != nodes) {
            self.changes.push((now, nodes));
        }
    }

    /// What was seen, and since when.
    pub(super) fn changes(&self) -> &[(Duration, [usize; 2])] {
        &self.changes
    }

    /// Nodes by site at a moment.
    pub(super) fn at(&self, now: Duration) -> [usize; 2] {
        let seen = self.changes.iter().rev().find(|(since, _)| *since <= now);
        seen.map_or([NODES_EACH; 2], |(_, nodes)| *nodes)
    }

    /// When a site had another number of nodes for the first time after a moment, since then.
    pub(super) fn first_change(&self, from: Duration, to: Duration) -> Option<Duration> {
        let mut between = self.changes.iter().skip(1);
        let change = between.find(|(since, _)| (from..to).contains(since));
        change.map(|(since, _)| *since - from)
    }

    /// The picture, up to a moment.
    pub(super) fn picture(&self, schedule: &Schedule, until: Duration) -> String {
        let step = schedule.end().max(until).div_f64(DIGITS as f64);
        let times = (1..=DIGITS as u32).map(|place| step * place);
        let times: Vec<_> = times.take_while(|time| *time <= until).collect();
        let mut text = String::new();
        for (site, name) in SITES.iter().enumerate() {
            let digits = times.iter().map(|time| digit(self.at(*time)[site]));
            text.push_str(&format!("{name:<NAME$}{}\n", digits.collect::<String>()));
        }
        let mut marks = " ".repeat(NAME);
        for (phase, name) in PHASES.iter().enumerate() {
            let (from, _) = schedule.phase(phase);
            let place = (from.as_secs_f64() / step.as_secs_f64()).round() as usize;
            marks = format!("{marks:<width$}{name}", width = NAME + place);
        }
        text + &marks
    }
}

fn digit(nodes: usize) -> char {
    u32::try_from(nodes)
        .ok()
        .and_then(|nodes| char::from_digit(nodes, 36))
        .unwrap_or('+')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_has_a_digit_per_site_and_moment_and_fits() {
        let schedule = Schedule::of(Duration::from_secs(27));
        let mut timeline = Timeline::default();
        let at = Duration::from_millis;
        timeline.see(at(0), [5, 5]);
        timeline.see(at(50), [5, 5]);
        timeline.see(at(4500), [6, 4]);
        timeline.see(at(20_000), [3, 7]);
        assert_eq!(timeline.changes().len(), 3);
        assert_eq!(timeline.at(at(4499)), [5, 5]);
        assert_eq!(timeline.first_change(at(4000), at(9000)), Some(at(500)));
        assert_eq!(timeline.first_change(at(5000), at(9000)), None);
        let picture = timeline.picture(&schedule, at(27_000));
        let lines: Vec<_> = picture.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.len() < 80), "{picture}");
        assert_eq!(lines[0].len(), NAME + DIGITS);
        assert!(lines[0].starts_with("shop 55555555555666"), "{picture}");
        assert!(lines[1].ends_with("4447777777777777777777"), "{picture}");
        assert_eq!(lines[2].find("crowd"), Some(NAME + 11));
        let part = timeline.picture(&schedule, at(3000));
        assert_eq!(part.lines().next(), Some("shop 55555555"));
    }
}
