//! What came of a walk, page by page and session by session.
//!
//! ```text
//! session time = clients x measured length / sessions that ended in it       (Little's law)
//! ```
//!
//! Clients are in a session all the time. The mean over sessions that began and ended while it was measured
//! would leave out the long ones, of which there are more, the slower the site is.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::client::ExchangeOutcome;
use super::plan::{Pacing, Requests, Stream};
use super::result::{encode, latencies};
use super::tally::EndedRequest;

/// What came of one page. As with streams, requests due in the warm-up are in none of the counts, and
/// times are those of completed requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PageResult {
    /// Its name in the plan.
    pub name: String,
    /// Requests for it.
    pub offered: u64,
    /// Answered as wanted.
    pub completed: u64,
    /// No answer, or a wrong one.
    pub failed: u64,
    /// Answered with 503 or 429.
    pub refused: u64,
    /// Mean time.
    pub mean_ms: f64,
    /// Median time.
    pub p50_ms: f64,
    /// 99 of 100 took no longer.
    pub p99_ms: f64,
    /// The slowest.
    pub max_ms: f64,
    /// Sum of the numbers in the header of the plan's `sum_by`.
    pub amount: f64,
    /// Answers that had such a number.
    pub amounts: u64,
    /// All times, see [`super::decode`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub histogram: String,
}

/// What came of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    /// Ended in the measured length.
    pub ended: u64,
    /// Mean time of one, seconds; see the module. Nothing if none ended.
    pub mean_s: Option<f64>,
}

/// Counts while a load runs.
#[derive(Debug)]
pub(super) struct Visits {
    clients: u32,
    ended: u64,
    pages: Vec<(PageResult, Histogram<u64>)>,
}

impl Visits {
    /// Of a stream whose clients walk; none of others.
    pub(super) fn of(stream: &Stream) -> Option<Self> {
        let (Requests::Walk(walk), Pacing::Closed { clients, .. }) =
            (&stream.requests, &stream.pacing)
        else {
            return None;
        };
        let page = |name: &String| PageResult {
            name: name.clone(),
            ..PageResult::default()
        };
        let pages = walk.pages.iter();
        Some(Self {
            clients: *clients,
            ended: 0,
            pages: pages.map(|it| (page(&it.name), latencies())).collect(),
        })
    }

    pub(super) fn session_ended(&mut self) {
        self.ended += 1;
    }

    /// A request that counts took so long.
    pub(super) fn request(&mut self, ended: &EndedRequest, micros: u64) {
        let page = ended.page.and_then(|page| self.pages.get_mut(page));
        let Some((result, latencies)) = page else {
            return;
        };
        result.offered += 1;
        match &ended.outcome {
            ExchangeOutcome::Completed(headers) => {
                result.completed += 1;
                latencies.saturating_record(micros);
                result.amount += headers.amount.unwrap_or_default();
                result.amounts += u64::from(headers.amount.is_some());
            }
            ExchangeOutcome::Refused => result.refused += 1,
            ExchangeOutcome::Failed(_) => result.failed += 1,
        }
    }

    /// All pages, and the sessions of a measured length.
    pub(super) fn finish(self, length: Duration) -> (Vec<PageResult>, Option<Sessions>) {
        let spent = f64::from(self.clients) * length.as_secs_f64();
        let sessions = Sessions {
            ended: self.ended,
            mean_s: (self.ended > 0).then(|| spent / self.ended as f64),
        };
        let page = |(mut result, latencies): (PageResult, Histogram<u64>)| {
            result.mean_ms = latencies.mean() * 1e-3;
            result.p50_ms = latencies.value_at_quantile(0.5) as f64 * 1e-3;
            result.p99_ms = latencies.value_at_quantile(0.99) as f64 * 1e-3;
            result.max_ms = latencies.max() as f64 * 1e-3;
            result.histogram = encode(&latencies);
            result
        };
        (self.pages.into_iter().map(page).collect(), Some(sessions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::client::AnswerHeaders;
    use crate::load::walk::{Page, Walk};

    fn stream() -> Stream {
        let page = |name: &str| Page {
            name: name.to_owned(),
            post: false,
            path: "/".to_owned(),
            next: Vec::new(),
        };
        Stream {
            site: "shop".to_owned(),
            pacing: Pacing::Closed {
                clients: 10,
                think: Duration::from_secs(7),
            },
            requests: Requests::Walk(Walk {
                pages: vec![page("home"), page("search")],
                draws: Vec::new(),
            }),
            header: None,
        }
    }

    fn ended(page: usize, outcome: ExchangeOutcome) -> EndedRequest {
        EndedRequest {
            due: Duration::ZERO,
            begun: Duration::ZERO,
            ended: Duration::from_millis(5),
            page: Some(page),
            ends: false,
            outcome,
        }
    }

    #[test]
    fn pages_are_counted_apart_and_amounts_add_up() {
        let mut visits = Visits::of(&stream()).unwrap();
        let headers = |amount| {
            ExchangeOutcome::Completed(AnswerHeaders {
                counted: None,
                amount,
            })
        };
        visits.request(&ended(1, headers(Some(30.0))), 4000);
        visits.request(&ended(1, headers(Some(12.0))), 8000);
        visits.request(&ended(1, headers(None)), 6000);
        visits.request(&ended(1, ExchangeOutcome::Refused), 1);
        visits.request(
            &ended(0, ExchangeOutcome::Failed("status 500".to_owned())),
            1,
        );
        visits.request(&ended(7, headers(None)), 1);
        let (pages, _) = visits.finish(Duration::from_secs(1));
        assert_eq!((pages[0].offered, pages[0].failed), (1, 1));
        let search = &pages[1];
        assert_eq!(
            (search.offered, search.completed, search.refused),
            (4, 3, 1)
        );
        assert!((search.amount - 42.0).abs() < 1e-9 && search.amounts == 2);
        assert!((search.mean_ms - 6.0).abs() < 0.01 && (search.max_ms - 8.0).abs() < 0.01);
    }

    #[test]
    fn sessions_last_as_long_as_littles_law_says() {
        let mut visits = Visits::of(&stream()).unwrap();
        for _ in 0..4 {
            visits.session_ended();
        }
        let (_, sessions) = visits.finish(Duration::from_secs(60));
        let sessions = sessions.unwrap();
        assert_eq!(sessions.ended, 4);
        assert!((sessions.mean_s.unwrap() - 150.0).abs() < 1e-9);
        let none = Visits::of(&stream())
            .unwrap()
            .finish(Duration::from_secs(60));
        assert_eq!(none.1.unwrap().mean_s, None);
    }

    #[test]
    fn who_does_not_walk_has_no_visits() {
        let stream = Stream {
            requests: Requests::Single {
                path: "/".to_owned(),
            },
            ..stream()
        };
        assert!(Visits::of(&stream).is_none());
    }
}
