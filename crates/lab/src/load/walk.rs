//! Sessions: clients of a site that go from page to page by a table of probabilities.
//!
//! ```text
//! P(i, j)        after page i comes page j; with 1 - sum over j of P(i, j) the session ends, and the
//!                client begins another one at page 0
//! pi = pi P*     share of each page in all requests, P* being P with the end leading to page 0
//! ```
//!
//! Clients begin as if they had been there for ever: at a page drawn from pi. Otherwise all would
//! come in by page 0 at once, and pages deep in the site would be asked for only after a while.
//!
//! Inputs: the table, and what the holes of its paths are filled with. Failure case: a table from which
//! page 0 leads nowhere else repeats page 0. Source: Elephants-2005's clients, "transition matrix driven".

use serde::{Deserialize, Serialize};
use tidegate_core::prng::Prng;

/// Pages of a site at most.
const PAGES_MAX: usize = 64;
/// Kinds of draws for the holes of paths at most.
const DRAWS_MAX: usize = 16;
/// Things of one kind that are drawn from at most.
const THINGS_MAX: u32 = 10_000_000;
/// Rounds of the power iteration: shares no longer change by then in any table of this size that forgets
/// where it began.
const ROUNDS: u32 = 500;
/// Sums of probabilities are exact to about this.
const ROUNDING: f64 = 1e-9;

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Walk {
    /// Where sessions begin is the first of them.
    pub pages: Vec<Page>,
    /// What stands in paths for `{NAME}`.
    pub draws: Vec<Draw>,
}

/// A page and where one goes from there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// Its name in results.
    pub name: String,
    /// Whether it is asked for with POST; else with GET.
    pub post: bool,
    /// Template, with `{NAME}` for a draw.
    pub path: String,
    /// Which pages come next, by their places, each with its probability.
    pub next: Vec<(usize, f64)>,
}

/// A number from 1, the k-th in proportion to k^-alpha.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Draw {
    /// The hole's name.
    pub name: String,
    /// How many there are.
    pub count: u32,
    /// Skew, 0 (all alike) and up.
    pub alpha: f64,
}

impl Walk {
    /// What is wrong with it, as a sentence.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.pages.is_empty() || self.pages.len() > PAGES_MAX {
            return Err(format!("a site has 1 to {PAGES_MAX} pages"));
        }
        if self.draws.len() > DRAWS_MAX {
            return Err(format!("there are at most {DRAWS_MAX} kinds of draws"));
        }
        for draw in &self.draws {
            let skewed = draw.alpha.is_finite() && draw.alpha >= 0.0;
            if !(1..=THINGS_MAX).contains(&draw.count) || !skewed {
                return Err(format!(
                    "{{{}}}: there are 1 to {THINGS_MAX} things, and their skew is a number from zero up",
                    draw.name
                ));
            }
        }
        self.pages.iter().try_for_each(|page| self.check_page(page))
    }

    fn check_page(&self, page: &Page) -> Result<(), String> {
        let name = &page.name;
        if page.next.iter().any(|(next, _)| *next >= self.pages.len()) {
            return Err(format!("{name} leads to a page that is not there"));
        }
        let shares = page.next.iter().map(|(_, share)| *share);
        let sum: f64 = shares.clone().sum();
        if !shares.clone().all(|share| share >= 0.0) || sum > 1.0 + ROUNDING {
            return Err(format!(
                "{name}: probabilities are from zero up and add up to one at most, not to {sum}"
            ));
        }
        Ok(())
    }

    /// Share of each page in all requests.
    #[must_use]
    pub fn shares(&self) -> Vec<f64> {
        let mut shares = vec![1.0 / self.pages.len().max(1) as f64; self.pages.len()];
        for _ in 0..ROUNDS {
            let mut next = vec![0.0; shares.len()];
            for (page, share) in self.pages.iter().zip(&shares) {
                let mut left = *share;
                for (to, probability) in &page.next {
                    next[*to] += share * probability;
                    left -= share * probability;
                }
                next[0] += left;
            }
            // Halfway, so that tables whose pages take turns settle too.
            shares = shares
                .iter()
                .zip(next)
                .map(|(one, other)| (one + other) / 2.0)
                .collect();
        }
        shares
    }
}

/// Where a client is in its session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Session {
    /// The page that it asks for next; none: it has not been anywhere.
    next: Option<usize>,
}

/// A step of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) page: usize,
    /// Whether the session is over with it.
    pub(super) ends: bool,
}

/// Draws the steps of sessions.
#[derive(Debug)]
pub(super) struct Chain {
    next: Vec<Vec<(usize, f64)>>,
    shares: Vec<f64>,
}

impl Chain {
    pub(super) fn new(walk: &Walk) -> Self {
        Self {
            next: walk.pages.iter().map(|page| page.next.clone()).collect(),
            shares: walk.shares(),
        }
    }

    /// The page that a client asks for now, and whether it leaves after that.
    pub(super) fn step(&self, session: &mut Session, prng: &mut Prng) -> Step {
        let page = session.next.unwrap_or_else(|| {
            let shares = self.shares.iter().copied();
            chosen(shares.enumerate(), prng).unwrap_or(0)
        });
        let next = self.next.get(page).map_or(&[][..], Vec::as_slice);
        let next = chosen(next.iter().copied(), prng);
        session.next = Some(next.unwrap_or(0));
        Step {
            page,
            ends: next.is_none(),
        }
    }
}

/// One of these by its probability, or none with what they leave to one.
fn chosen(mut among: impl Iterator<Item = (usize, f64)>, prng: &mut Prng) -> Option<usize> {
    let mut wanted = prng.unit();
    let found = among.find(|(_, share)| {
        wanted -= share;
        wanted < 0.0
    });
    found.map(|(page, _)| page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str, next: &[(usize, f64)]) -> Page {
        Page {
            name: name.into(),
            post: false,
            path: format!("/{name}"),
            next: next.into(),
        }
    }

    /// From home to a search, from there to half searches and half ends.
    fn walk() -> Walk {
        Walk {
            pages: vec![page("home", &[(1, 1.0)]), page("search", &[(1, 0.5)])],
            draws: Vec::new(),
        }
    }

    #[test]
    fn shares_are_those_that_clients_draw() {
        // A session is one home and two searches on the average.
        let shares = walk().shares();
        assert!((shares[0] - 1.0 / 3.0).abs() < 1e-6, "{shares:?}");
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let chain = Chain::new(&walk());
        let mut prng = Prng::new(3);
        let mut session = Session::default();
        let steps: Vec<_> = (0..30_000)
            .map(|_| chain.step(&mut session, &mut prng))
            .collect();
        let homes = steps.iter().filter(|step| step.page == 0).count();
        assert!((9_700..10_300).contains(&homes), "{homes}");
        for pair in steps.windows(2) {
            assert_eq!(pair[0].ends, pair[1].page == 0, "an end leads home");
        }
    }

    #[test]
    fn clients_begin_in_the_midst_of_sessions() {
        let chain = Chain::new(&walk());
        let mut prng = Prng::new(4);
        let begin = |prng: &mut Prng| chain.step(&mut Session::default(), prng).page;
        let homes = (0..3000).filter(|_| begin(&mut prng) == 0).count();
        assert!((900..1100).contains(&homes), "{homes}");
    }

    #[test]
    fn tables_that_cannot_be_are_refused() {
        type Spoil = fn(&mut Walk);
        let cases: [(Spoil, &str); 5] = [
            (|it| it.pages.clear(), "pages"),
            (|it| it.pages[0].next[0].0 = 2, "not there"),
            (|it| it.pages[1].next.push((0, 0.6)), "add up"),
            (|it| it.pages[1].next[0].1 = -0.5, "from zero up"),
            (
                |it| {
                    it.draws.push(Draw {
                        name: "item".into(),
                        count: 0,
                        alpha: 0.0,
                    });
                },
                "{item}",
            ),
        ];
        assert_eq!(walk().check(), Ok(()));
        for (spoil, word) in cases {
            let mut walk = walk();
            spoil(&mut walk);
            let sentence = walk.check().unwrap_err();
            assert!(sentence.contains(word), "{sentence}");
        }
    }
}
