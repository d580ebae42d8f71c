//! When an antagonist is on: one spell after the other, without end.
//!
//! Plain data and the same from every seed, so that the real process and the emulation, and
//! all arms of an experiment, meet the same neighbour.

use std::time::Duration;

use tidegate_core::prng::Prng;
use tidegate_sim::model;

use super::Antagonist;

/// A spell that outlasts every experiment.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// A time in which it is on, or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spell {
    /// Which of both.
    pub on: bool,
    /// How long.
    pub length: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct Spells {
    on: bool,
    lengths: Lengths,
}

#[derive(Debug)]
enum Lengths {
    Always,
    Regular {
        on: Duration,
        off: Duration,
    },
    Drawn {
        model: model::Antagonist,
        prng: Prng,
    },
}

impl Spells {
    pub(super) fn of(antagonist: &Antagonist) -> Self {
        let (on, lengths) = match *antagonist {
            Antagonist::Hogs { .. } | Antagonist::PingPong { .. } => (true, Lengths::Always),
            Antagonist::Memory { period, duty, .. } | Antagonist::Files { period, duty, .. } => {
                let on = period.mul_f64(duty.clamp(0.0, 1.0));
                let off = period.saturating_sub(on);
                (true, Lengths::Regular { on, off })
            }
            Antagonist::Alternators { period, .. } => {
                let half = period / 2;
                (
                    true,
                    Lengths::Regular {
                        on: half,
                        off: half,
                    },
                )
            }
            Antagonist::Bursty {
                threads,
                duty,
                shortest,
                longest,
                seed,
            } => {
                let model = model::Antagonist {
                    tasks: threads,
                    duty,
                    shortest,
                    longest,
                };
                let mut prng = model::Stream::Antagonist(0).prng(seed);
                // On from the start with the chance that it is on at any time.
                let on = prng.unit() < duty;
                (on, Lengths::Drawn { model, prng })
            }
        };
        Self { on, lengths }
    }
}

impl Iterator for Spells {
    type Item = Spell;

    fn next(&mut self) -> Option<Spell> {
        let on = self.on;
        self.on = !on;
        let length = match &mut self.lengths {
            Lengths::Always => FOR_EVER,
            Lengths::Regular { on: length, .. } if on => *length,
            Lengths::Regular { off, .. } => *off,
            Lengths::Drawn { model, prng } if on => model.draw_on(prng),
            Lengths::Drawn { model, prng } => model.draw_off(prng),
        };
        Some(Spell { on, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_hog_never_rests() {
        let hog = Antagonist::Hogs { threads: 2 };
        let first = hog.spells().next().unwrap();
        assert_eq!(
            first,
            Spell {
                on: true,
                length: FOR_EVER
            }
        );
    }

    #[test]
    fn a_toggle_is_regular() {
        let toggle = Antagonist::Memory {
            bytes: 1,
            period: 100 * MS,
            duty: 0.3,
        };
        let spells: Vec<_> = toggle.spells().take(3).collect();
        let spell = |on, length| Spell { on, length };
        assert_eq!(
            spells,
            [
                spell(true, 30 * MS),
                spell(false, 70 * MS),
                spell(true, 30 * MS)
            ]
        );
    }

    #[test]
    fn alternators_load_and_sleep_alike() {
        let alternators = Antagonist::Alternators {
            threads: 16,
            period: 400 * MS,
        };
        let spells: Vec<_> = alternators.spells().take(3).collect();
        assert!(spells.iter().all(|it| it.length == 200 * MS));
        assert_eq!(
            spells.iter().map(|it| it.on).collect::<Vec<_>>(),
            [true, false, true]
        );
    }

    #[test]
    fn a_bursty_neighbour_keeps_its_duty_and_its_seed() {
        let neighbour = |seed| Antagonist::Bursty {
            threads: 2,
            duty: 0.3,
            shortest: 100 * MS,
            longest: 2000 * MS,
            seed,
        };
        let spells: Vec<_> = neighbour(1).spells().take(20_000).collect();
        let total = |on: bool| -> Duration {
            spells
                .iter()
                .filter(|it| it.on == on)
                .map(|it| it.length)
                .sum()
        };
        let duty = total(true).as_secs_f64() / (total(true) + total(false)).as_secs_f64();
        assert!((duty - 0.3).abs() < 0.02, "{duty}");
        assert!(
            neighbour(1)
                .spells()
                .take(10)
                .eq(spells[..10].iter().copied())
        );
        assert!(
            !neighbour(2)
                .spells()
                .take(10)
                .eq(spells[..10].iter().copied())
        );
    }
}
