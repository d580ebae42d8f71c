//! When requests of a site begin to be refused or to fail, and when that is over.
//!
//! ```text
//! a second is bad     if at least SHARE of the requests that ended in it were refused for want of room (or failed)
//! a spell begins      with the second bad second within CALM of the first
//! a spell ends        once CALM has passed without a bad second
//! ```
//!
//! Input: what was counted of a site in each second. Refusals for what their client did wrong are not in it.
//! Failure case: a site with one bad second in more than CALM has no spell; the history shows it all the same.

use std::collections::BTreeMap;

use tidegate_proxy::{Ending, Reason};

use super::SiteSample;
use crate::events::About;

/// A part of a second's requests.
const SHARE: f64 = 0.01;
/// Seconds without a bad one after which a spell is over.
const CALM: u64 = 10;
/// Most reasons that a sentence names.
const REASONS_MAX: usize = 3;

/// What goes wrong in a spell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Requests find no room.
    Refusals,
    /// They fail, or nodes answer with a server error.
    Errors,
}

impl Wrong {
    const ALL: [Self; 2] = [Self::Refusals, Self::Errors];

    /// The events' names: it begins, it is over.
    const fn events(self) -> [&'static str; 2] {
        match self {
            Self::Refusals => ["refusals", "refusals_over"],
            Self::Errors => ["errors", "errors_over"],
        }
    }

    /// Whether requests that ended for this reason are of it.
    fn has(self, reason: Reason) -> bool {
        match self {
            Self::Refusals => reason.ending() == Ending::Rejected && reason.status_code() >= 500,
            Self::Errors => reason.ending() == Ending::Failed,
        }
    }

    fn text(self, site: &str, spell: &Spell, last: u64) -> [String; 2] {
        let (wrong, ended) = (spell.wrong, spell.ended);
        let why = spell.why();
        let seconds = last - spell.since + 1;
        match self {
            Self::Refusals => [
                format!("{site} refuses requests, {wrong} of {ended} so far: {why}"),
                format!(
                    "{site} refuses none any more: it was {wrong} of {ended} in {seconds} s ({why})"
                ),
            ],
            Self::Errors => [
                format!("requests to {site} fail, {wrong} of {ended} so far: {why}"),
                format!(
                    "requests to {site} fail no more: it was {wrong} of {ended} in {seconds} s ({why})"
                ),
            ],
        }
    }
}

/// One that lasts, or may begin.
#[derive(Clone, Debug, Default)]
struct Spell {
    /// Its first bad second, and its last.
    since: u64,
    last: u64,
    has_begun: bool,
    /// Requests since then, and those of them that count.
    ended: u64,
    wrong: u64,
    reasons: BTreeMap<&'static str, u64>,
    /// At the last bad second.
    until: (u64, u64, BTreeMap<&'static str, u64>),
}

impl Spell {
    fn why(&self) -> String {
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(label, count)| (std::cmp::Reverse(**count), **label));
        let each = reasons.iter().take(REASONS_MAX);
        let each: Vec<_> = each
            .map(|(label, count)| format!("{count} {label}"))
            .collect();
        each.join(", ")
    }
}

/// The spells of all sites.
#[derive(Debug, Default)]
pub(crate) struct Spells(BTreeMap<String, [Option<Spell>; 2]>);

impl Spells {
    /// Takes a second of a site, and says what begins or is over.
    pub(crate) fn take(
        &mut self,
        second: u64,
        site: &str,
        sample: &SiteSample,
        mut event: impl FnMut(&'static str, About<'_>, &str),
    ) {
        if !self.0.contains_key(site) {
            self.0.insert(site.to_owned(), Default::default());
        }
        let Some(spells) = self.0.get_mut(site) else {
            return;
        };
        for (wrong, spell) in Wrong::ALL.into_iter().zip(spells) {
            let [begins, over] = wrong.events();
            let counted = Counted::of(wrong, sample);
            if let Some(known) = spell
                && second > known.last + CALM
            {
                if known.has_begun {
                    (known.wrong, known.ended, known.reasons) = std::mem::take(&mut known.until);
                    let [_, text] = wrong.text(site, known, known.last);
                    event(over, About::site(site), &text);
                }
                *spell = None;
            }
            if spell.is_none() && !counted.is_bad() {
                continue;
            }
            let is_first = spell.is_none();
            let known = spell.get_or_insert_with(|| Spell {
                since: second,
                last: second,
                ..Spell::default()
            });
            known.add(&counted);
            if !counted.is_bad() {
                continue;
            }
            known.last = second;
            known.until = (known.wrong, known.ended, known.reasons.clone());
            if !is_first && second > known.since && !std::mem::replace(&mut known.has_begun, true) {
                let [text, _] = wrong.text(site, known, second);
                event(begins, About::site(site), &text);
            }
        }
    }

    /// Sites that are not among these have no spell any more.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|site, _| is_there(site));
    }

    /// The first second of the spell that a site has now.
    pub(crate) fn since(&self, site: &str, wrong: Wrong) -> Option<u64> {
        let spells = self.0.get(site)?;
        let spell = spells[wrong as usize].as_ref()?;
        spell.has_begun.then_some(spell.since)
    }
}

impl Spell {
    fn add(&mut self, counted: &Counted) {
        self.ended += counted.ended;
        self.wrong += counted.wrong;
        for (label, count) in &counted.reasons {
            *self.reasons.entry(label).or_default() += count;
        }
    }
}

/// A second of a site.
struct Counted {
    ended: u64,
    wrong: u64,
    reasons: Vec<(&'static str, u64)>,
}

impl Counted {
    fn of(wrong: Wrong, sample: &SiteSample) -> Self {
        let is_of = |label: &str| {
            let reason = Reason::ALL.iter().find(|it| it.label() == label);
            // What has no reason of ours is an answer with a server error.
            reason.map_or(wrong == Wrong::Errors, |it| wrong.has(*it))
        };
        let reasons = sample.reasons().filter(|(label, _)| is_of(label));
        let reasons: Vec<_> = reasons
            .map(|(label, count)| (label, count.into()))
            .collect();
        Self {
            ended: sample.ended().into(),
            wrong: reasons.iter().map(|(_, count)| count).sum(),
            reasons,
        }
    }

    fn is_bad(&self) -> bool {
        self.wrong > 0 && self.wrong as f64 >= SHARE * self.ended as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes seconds of `(ended, refused for want of room, server errors)`, and returns what was said.
    fn said(spells: &mut Spells, from: u64, seconds: &[(u32, u32, u32)]) -> Vec<String> {
        let mut all = Vec::new();
        for (second, (ended, refused, errors)) in (from..).zip(seconds) {
            let sample = SiteSample::counted(*ended, &[(Reason::Overload, *refused)], *errors);
            spells.take(second, "shop", &sample, |event, about, text| {
                assert_eq!(about.site, Some("shop"));
                all.push(format!("{event}: {text}"));
            });
        }
        all
    }

    const GOOD: (u32, u32, u32) = (100, 0, 0);

    #[test]
    fn a_spell_begins_with_its_second_bad_second_and_ends_after_calm() {
        let mut spells = Spells::default();
        let begun = said(&mut spells, 1000, &[GOOD, (100, 20, 0), GOOD, (100, 40, 0)]);
        assert_eq!(
            begun,
            ["refusals: shop refuses requests, 60 of 300 so far: 60 overload"]
        );
        assert_eq!(spells.since("shop", Wrong::Refusals), Some(1001));
        assert_eq!(spells.since("shop", Wrong::Errors), None);
        assert_eq!(spells.since("blog", Wrong::Refusals), None);
        assert!(said(&mut spells, 1004, &[GOOD; 10]).is_empty());
        let over = said(&mut spells, 1014, &[GOOD]);
        let text =
            "refusals_over: shop refuses none any more: it was 60 of 300 in 3 s (60 overload)";
        assert_eq!(over, [text]);
        assert_eq!(spells.since("shop", Wrong::Refusals), None);
    }

    #[test]
    fn errors_have_spells_of_their_own() {
        let mut spells = Spells::default();
        let both = said(&mut spells, 1, &[(100, 50, 10), (100, 50, 10)]);
        assert_eq!(both.len(), 2);
        assert_eq!(
            both[1],
            "errors: requests to shop fail, 20 of 200 so far: 20 5xx"
        );
    }

    #[test]
    fn a_few_of_many_and_single_seconds_are_no_spell() {
        let mut spells = Spells::default();
        assert!(said(&mut spells, 1, &[(1000, 9, 0); 20]).is_empty());
        for at in [100, 111, 122] {
            assert!(said(&mut spells, at, &[(10, 5, 0)]).is_empty());
        }
        // A clock that was set back makes no second bad one of the first.
        assert!(said(&mut spells, 122, &[(10, 5, 0)]).is_empty());
    }

    #[test]
    fn a_site_that_is_gone_has_none() {
        let mut spells = Spells::default();
        said(&mut spells, 1, &[(10, 5, 0), (10, 5, 0)]);
        spells.retain(|site| site != "shop");
        assert_eq!(spells.since("shop", Wrong::Refusals), None);
    }

    #[test]
    fn refusals_for_what_a_client_did_are_none_of_the_sites() {
        let mut spells = Spells::default();
        for second in 1..9 {
            let sample = SiteSample::counted(100, &[(Reason::SourceRate, 50)], 0);
            spells.take(second, "shop", &sample, |event, _, _| panic!("{event}"));
        }
    }
}
