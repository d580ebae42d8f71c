//! The history as text, for the next process: the steps of ten seconds of the last six hours.
//!
//! ```text
//! {"version": 1, "sites": [{name, newest, steps: [[ended, refused, failed, 5xx, queued, p50, p99, [[reason, count]]] | null]}],
//!                "nodes": [{name, site, newest, load: "letters"}]}
//! ```
//!
//! `newest` is the step of the last one, 10 s each since 1970. What is read goes before what was recorded since, so that it may
//! be read late: by a successor, once the process before it has written for the last time.
//! Failure case: a text that is not understood, or that is of the future, is not used. Of a node only what its letters say is kept.

use serde::{Deserialize, Serialize};
use tidegate_proxy::Reason;

use super::sample::{NodeSample, SiteSample};
use super::{History, Kept, NODES_MAX, SITES_MAX, Step};

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    sites: Vec<SiteWritten>,
    nodes: Vec<NodeWritten>,
}

#[derive(Serialize, Deserialize)]
struct SiteWritten {
    name: String,
    newest: u64,
    steps: Vec<Option<StepWritten>>,
}

/// Requests that ended, were refused and failed, answers with a server error, requests that waited, p50, p99, and reasons.
#[derive(Serialize, Deserialize)]
struct StepWritten(
    u32,
    u32,
    u32,
    u32,
    u32,
    Option<f32>,
    Option<f32>,
    Vec<(String, u32)>,
);

#[derive(Serialize, Deserialize)]
struct NodeWritten {
    name: String,
    site: String,
    newest: u64,
    load: String,
}

impl History {
    /// As text.
    pub(crate) fn written(&self) -> Result<Vec<u8>, String> {
        let step = Step::TenSeconds;
        let sites = self.sites.iter().map(|(name, series)| {
            let ring = series.ring(step);
            SiteWritten {
                name: name.clone(),
                newest: ring.newest(),
                steps: ring
                    .samples()
                    .map(|it| it.as_ref().map(step_written))
                    .collect(),
            }
        });
        let nodes = self.nodes.iter().map(|(name, kept)| {
            let ring = kept.series.ring(step);
            let letter = |sample: &Option<NodeSample>| sample.map_or(' ', NodeSample::letter);
            NodeWritten {
                name: name.clone(),
                site: kept.site.clone(),
                newest: ring.newest(),
                load: ring.samples().map(letter).collect(),
            }
        });
        let written = Written {
            version: VERSION,
            sites: sites.collect(),
            nodes: nodes.collect(),
        };
        serde_json::to_vec(&written).map_err(|error| error.to_string())
    }

    /// Puts what such a text says before what is known; `now` in seconds since 1970.
    pub(crate) fn recall(&mut self, text: &[u8], now: u64) -> Result<(), String> {
        let written: Written = serde_json::from_slice(text)
            .map_err(|error| format!("it is not understood: {error}"))?;
        if written.version != VERSION {
            return Err(format!(
                "it is of version {}, not {VERSION}",
                written.version
            ));
        }
        let latest = now / Step::TenSeconds.seconds();
        let newest = (written.sites.iter().map(|it| it.newest))
            .chain(written.nodes.iter().map(|it| it.newest));
        if newest.max().is_some_and(|it| it > latest) {
            return Err("it is of the future".into());
        }
        for site in written.sites {
            if self.sites.len() < SITES_MAX || self.sites.contains_key(&site.name) {
                let series = self.sites.entry(site.name).or_default();
                let samples = site.steps.into_iter().map(|it| it.map(site_sample));
                series.recall(site.newest, samples.collect());
            }
        }
        for node in written.nodes {
            if self.nodes.len() < NODES_MAX || self.nodes.contains_key(&node.name) {
                let kept = self.nodes.entry(node.name).or_insert_with(|| Kept {
                    site: node.site,
                    ..Kept::default()
                });
                let samples = node.load.chars().map(NodeSample::of_letter);
                kept.series.recall(node.newest, samples.collect());
            }
        }
        Ok(())
    }
}

fn step_written(sample: &SiteSample) -> StepWritten {
    let finite = |number: f32| number.is_finite().then_some(number);
    let reasons = sample.named_reasons();
    StepWritten(
        sample.ended,
        sample.refused,
        sample.failed,
        sample.answered_errors,
        sample.queued,
        finite(sample.p50),
        finite(sample.p99),
        reasons
            .map(|(label, count)| (label.to_owned(), count))
            .collect(),
    )
}

fn site_sample(step: StepWritten) -> SiteSample {
    let StepWritten(ended, refused, failed, answered_errors, queued, p50, p99, reasons) = step;
    let mut sample = SiteSample {
        ended,
        refused,
        failed,
        answered_errors,
        queued,
        p50: p50.unwrap_or(f32::NAN),
        p99: p99.unwrap_or(f32::NAN),
        ..SiteSample::default()
    };
    // A reason of another version is counted with the rest.
    let known = reasons.into_iter().filter_map(|(label, count)| {
        let place = Reason::ALL.iter().position(|it| it.label() == label)?;
        Some((place as u8 + 1, count))
    });
    for (place, reason) in sample.reasons.iter_mut().zip(known) {
        *place = reason;
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Place;

    fn site(ended: u32) -> SiteSample {
        SiteSample {
            p50: 0.25,
            ..SiteSample::counted(ended, &[(Reason::Overload, 3)], 1)
        }
    }

    fn node(load: u8, place: Place) -> NodeSample {
        NodeSample { load, place }
    }

    fn history(seconds: &[(u64, u32)]) -> History {
        let mut history = History::default();
        for (second, ended) in seconds {
            let nodes = [
                ("n1", "shop", node(35, Place::In)),
                ("n2", "shop", node(200, Place::Out)),
            ];
            history.record(*second, [("shop", site(*ended))], nodes);
        }
        history
    }

    fn rates(history: &History, last: usize) -> Vec<Option<f64>> {
        let shown = history.show(Step::TenSeconds, last, None);
        shown.sites[0].requests_per_second.clone()
    }

    #[test]
    fn what_is_written_is_shown_again_before_what_came_since() {
        let text = history(&[(1000, 10), (1010, 20), (1030, 40)])
            .written()
            .unwrap();
        let mut next = history(&[(1060, 60), (1070, 70)]);
        next.recall(&text, 1075).unwrap();
        let some = Some;
        let wanted = [some(1.0), some(2.0), None, some(4.0), None, None, some(6.0)];
        // The step that has not ended is not shown.
        assert_eq!(rates(&next, 7), wanted);
        let shown = next.show(Step::TenSeconds, 7, None);
        let steps = &shown.sites[0].reasons["overload"];
        let known: Vec<_> = steps.iter().map(Option::is_some).collect();
        assert_eq!(known, wanted.map(|it| it.is_some()));
        assert_eq!(steps.iter().flatten().sum::<u32>(), 12);
        assert_eq!(shown.sites[0].p50_seconds[0], Some(0.25));
        assert_eq!(shown.nodes[0].load, "33 3  3");
        assert_eq!(shown.nodes[1].load, "xx x  x");
    }

    #[test]
    fn a_process_without_a_past_of_its_own_shows_all_of_it() {
        let text = history(&[(1000, 10), (1010, 20)]).written().unwrap();
        let mut next = History::default();
        next.recall(&text, 2000).unwrap();
        next.record(
            1045,
            [("shop", site(50))],
            [("n1", "blog", node(95, Place::In))],
        );
        assert_eq!(rates(&next, 4), [Some(1.0), Some(2.0), None, None]);
        let shown = next.show(Step::TenSeconds, 4, None);
        // A node is shown with the site that it serves now.
        assert_eq!(
            (&*shown.nodes[0].site, &*shown.nodes[0].load),
            ("blog", "33  ")
        );
    }

    #[test]
    fn the_same_steps_count_once() {
        let text = history(&[(1000, 10), (1010, 20)]).written().unwrap();
        let mut same = history(&[(1010, 90), (1020, 30)]);
        same.recall(&text, 1020).unwrap();
        assert_eq!(rates(&same, 2), [Some(1.0), Some(9.0)]);
    }

    #[test]
    fn what_makes_no_sense_is_not_used() {
        let good = history(&[(1000, 10)]).written().unwrap();
        let good = String::from_utf8(good).unwrap();
        for (text, now, why) in [
            ("{".to_owned(), 1000, "it is not understood"),
            (
                good.replace("\"version\":1", "\"version\":2"),
                1000,
                "it is of version 2, not 1",
            ),
            (good.clone(), 989, "it is of the future"),
            (good.replace("[10,", "[-10,"), 1000, "it is not understood"),
        ] {
            let mut history = History::default();
            let refused = history.recall(text.as_bytes(), now).unwrap_err();
            assert!(refused.starts_with(why), "{refused}");
            assert!(history.sites.is_empty());
        }
        let unknown = good.replace("overload", "forgotten");
        let mut history = History::default();
        history.recall(unknown.as_bytes(), 1000).unwrap();
        history.record(1010, [("shop", site(1))], []);
        assert_eq!(rates(&history, 1), [Some(1.0)]);
    }

    #[test]
    fn letters_are_read_as_they_are_written() {
        for letter in "0123456789+.xdm".chars() {
            assert_eq!(
                NodeSample::of_letter(letter).map(NodeSample::letter),
                Some(letter)
            );
        }
        assert_eq!(NodeSample::of_letter(' '), None);
        assert_eq!(NodeSample::of_letter('?'), None);
    }
}
