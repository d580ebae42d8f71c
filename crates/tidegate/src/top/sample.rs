//! What a front-end says at one moment: its status, the last requests of its first sites, its culprits.

use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use crate::client::Client;
use crate::models::{Decision, Status, Why};

/// Most sites whose last requests are asked for: each is a question of its own.
const SITES_MAX: usize = 4;
/// Most last requests that are kept.
const DECISIONS_MAX: usize = 40;
/// Most pairs of a class and a resource that are kept.
const ACCUSED_MAX: usize = 20;
/// Shortest time between two questions for culprits: that answer is large, and changes each 2.5 s.
const CULPRITS_INTERVAL: Duration = Duration::from_millis(2500);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// When it was taken.
    pub(super) at: Timestamp,
    /// The status.
    pub(super) status: Status,
    /// The last requests of its first sites, newest first.
    pub(super) decisions: Vec<SiteDecision>,
    /// Classes that are named as culprits.
    pub(super) culprits: Culprits,
}

/// A request, and its site.
#[derive(Clone, Debug)]
pub(super) struct SiteDecision {
    /// The site.
    pub(super) site: String,
    /// The request.
    pub(super) decision: Decision,
}

/// Which classes are named as culprits.
#[derive(Clone, Debug, Default)]
pub(super) struct Culprits {
    /// When that was asked for; none before the first time.
    pub(super) asked: Option<Timestamp>,
    /// The weightiest first; empty as well where discovery is off.
    pub(super) accused: Vec<Accused>,
}

/// A class that is named as a culprit, and the resource that it loads.
#[derive(Clone, Debug)]
pub(super) struct Accused {
    /// The class.
    pub(super) class: String,
    /// What slows it, if anything does.
    pub(super) throttle: Option<String>,
    /// What it does to the resource.
    pub(super) pair: AccusedPair,
}

/// The part of the report of culprits that is shown here.
#[derive(Debug, Deserialize)]
struct Report {
    classes: Vec<ReportedClass>,
}

#[derive(Debug, Deserialize)]
struct ReportedClass {
    name: String,
    throttle: Option<ReportedThrottle>,
    pairs: Vec<AccusedPair>,
}

#[derive(Debug, Deserialize)]
struct ReportedThrottle {
    limits: String,
}

/// A class's part in a resource's load.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct AccusedPair {
    /// The resource.
    pub(super) resource: String,
    /// The part of its capacity.
    pub(super) share: Option<f64>,
    /// Of the resource, per request.
    pub(super) cost_ms: Option<f64>,
    /// How sure that is; none: it is not accused.
    pub(super) confidence: Option<String>,
}

impl Sample {
    /// Asks the front-end. Without a status there is no sample; all else may be missing.
    pub(super) async fn take(client: &Client, before: Culprits) -> Result<Self, String> {
        let status: Status = client.get_soon("/api/status").await?;
        let mut decisions = Vec::new();
        for site in status.sites.iter().take(SITES_MAX) {
            let name = utf8_percent_encode(&site.name, NON_ALPHANUMERIC);
            // A site that went away in between has none.
            let why = client.get_soon::<Why>(&format!("/api/why/{name}")).await;
            let of_site = why.map(last_requests).unwrap_or_default().into_iter();
            decisions.extend(of_site.map(|decision| SiteDecision {
                site: site.name.clone(),
                decision,
            }));
        }
        let age = |it: &SiteDecision| it.decision.seconds_ago;
        decisions.sort_by(|one, other| age(one).total_cmp(&age(other)));
        decisions.truncate(DECISIONS_MAX);
        let now = clock::now();
        let is_due = (before.asked).is_none_or(|asked| now.since(asked) >= CULPRITS_INTERVAL);
        let culprits = match is_due {
            true => Culprits::take(client, now).await,
            false => before,
        };
        Ok(Self {
            at: clock::now(),
            status,
            decisions,
            culprits,
        })
    }
}

impl Culprits {
    /// Asks for them. A front-end that looks for none, or has none yet, refuses: then there are none to show.
    async fn take(client: &Client, now: Timestamp) -> Self {
        let report = client.get_soon::<Report>("/api/culprits").await;
        Self {
            asked: Some(now),
            accused: report.map(accused).unwrap_or_default(),
        }
    }
}

fn accused(report: Report) -> Vec<Accused> {
    let of_class = |class: ReportedClass| {
        let throttle = class.throttle.map(|throttle| throttle.limits);
        let named = |pair: &AccusedPair| pair.confidence.is_some();
        let pairs = class.pairs.into_iter().filter(named);
        let pairs = pairs.map(move |pair| Accused {
            class: class.name.clone(),
            throttle: throttle.clone(),
            pair,
        });
        pairs.collect::<Vec<_>>()
    };
    let all = report.classes.into_iter().flat_map(of_class);
    all.take(ACCUSED_MAX).collect()
}

fn last_requests(why: Why) -> Vec<Decision> {
    match why {
        Why::Node(why) => why.decisions,
        Why::Site(why) => why.decisions,
        Why::Class(why) => why.decisions,
        Why::Request(why) => vec![*why],
    }
}
