//! Sites of quick pages among which many requests are held open or wait for a service of others, while the
//! servers have time. Nothing is to be refused.
//!
//! Four servers of four CPUs, pages of 5 ms, 400 a second of the 3200 that they can serve.

use std::time::Duration;

use tidegate_core::admission::{AdmissionConfig, WithoutRecords};
use tidegate_sim::model::{Arrivals, Demand};
use tidegate_sim::scenario::{Held, HeldBy, Scenario};

use super::admission::Row;

/// Pages per second, and what each wants of a CPU.
const PAGES: f64 = 400.0;
const PAGE: Duration = Duration::from_millis(5);
/// Length of a run, seconds, and when something happens in it.
const SECONDS: f64 = 10.0;
const ONSET: Duration = Duration::from_secs(3);
/// Longer than a run.
const EVER: Duration = Duration::from_secs(100);

fn base(front_ends: u32) -> Scenario {
    let scenario = Scenario::new(4, front_ends, 1.0).mean_demand(PAGE);
    let load = PAGES / scenario.rate(0);
    let scenario = scenario.demand(Demand::LogNormal { cv: 0.5 });
    let mut scenario = scenario.sites(|site| site.load = load);
    scenario.warm_up = 0.0;
    // As real records.
    scenario.records(|records| records.in_flight = false)
}

/// Requests that are held open beside the pages.
#[derive(Clone, Copy)]
struct Beside {
    name: &'static str,
    /// So many of them for each page.
    for_each: f64,
    held: Held,
    /// From the onset on, for so long; none: all the time.
    onset: Option<Duration>,
}

impl Beside {
    fn among(&self, scenario: Scenario) -> Scenario {
        let share = self.for_each / (1.0 + self.for_each);
        let held = Held { share, ..self.held };
        scenario.sites(|site| match self.onset {
            None => {
                site.load *= 1.0 + self.for_each;
                site.held = Some(held);
            }
            Some(lasts) => {
                site.arrivals = Arrivals::Surge {
                    at: ONSET,
                    lasts,
                    times: 1.0 + self.for_each,
                };
                site.held = Some(Held {
                    from: ONSET,
                    until: ONSET + lasts,
                    ..held
                });
            }
        })
    }

    /// Whether it is there from the start, and so much of it that limits bind from the start.
    fn gathers(&self) -> bool {
        self.onset.is_none() && self.for_each >= 0.3 && self.held.lasts >= AdmissionConfig::SLO
    }

    fn row(&self, name: String, scenario: Scenario) -> Row {
        let scenario = self.among(scenario);
        let rate = scenario.rate(0);
        let more = match self.onset {
            None => 0.0,
            Some(lasts) => {
                let lasts = lasts.as_secs_f64().min(SECONDS - ONSET.as_secs_f64());
                rate * self.for_each * lasts
            }
        };
        Row {
            name: name.into(),
            scenario: scenario.requests((rate * SECONDS + more) as u32),
            capacity: rate,
            slo: AdmissionConfig::SLO,
            without_records: WithoutRecords::Admit,
        }
    }
}

fn all() -> Vec<Beside> {
    const MS: fn(u64) -> Duration = Duration::from_millis;
    let of = |name, for_each, onset, held| Beside {
        name,
        for_each,
        held,
        onset,
    };
    let like = |by| move |lasts: u64| Held::new(0.0, MS(lasts), by);
    let varied = |held| Held {
        shape: Demand::Exponential,
        ..held
    };
    let poll = like(HeldBy::Poll);
    let events = like(HeldBy::Download(MS(20)));
    let tunnel = like(HeldBy::Tunnel(MS(5)));
    let (always, ever) = (None, Some(EVER));
    vec![
        of("few polls", 0.1, always, poll(5000)),
        of("as many polls", 1.0, always, poll(5000)),
        of("mostly polls", 3.0, always, poll(2000)),
        of("varied polls", 0.5, always, varied(poll(3000))),
        of("few polls set in", 0.1, ever, poll(5000)),
        of("polls set in", 1.0, ever, poll(5000)),
        of("polls come together", 5.0, Some(MS(200)), poll(5000)),
        of("polls end together", 5.0, Some(MS(200)), poll(2000)),
        of("events set in", 1.0, ever, events(10_000)),
        of("events come together", 5.0, Some(MS(500)), events(10_000)),
        of("slow uploads set in", 0.3, ever, varied(poll(3000))),
        of("0.4 s service", 0.3, always, varied(poll(400))),
        of("1 s service", 0.3, always, varied(poll(1000))),
        of("0.4 s service sets in", 0.3, ever, varied(poll(400))),
        of("1 s service sets in", 0.3, ever, varied(poll(1000))),
        of("2 s service sets in", 0.3, ever, varied(poll(2000))),
        of("tunnels come together", 5.0, Some(MS(500)), tunnel(60_000)),
        of("tunnels come at once", 20.0, Some(MS(100)), tunnel(60_000)),
    ]
}

/// Each with a front-end and with four that read records, and some of them without any; without those of
/// [`gathering_rows`].
pub(crate) fn held_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for beside in all() {
        rows.push(beside.row(format!("{} fe=1", beside.name), base(1)));
        if !beside.gathers() {
            rows.push(beside.row(beside.name.into(), base(4)));
        }
    }
    for beside in all().into_iter().take(2) {
        let name = format!("{} no records", beside.name);
        rows.push(beside.row(name, base(4).missing(1.0)));
    }
    rows
}

/// Four front-ends that begin among many slow requests: these gather before any front-end knows how long which
/// kind takes. And the same where no path tells what is held open from the pages.
pub(crate) fn gathering_rows() -> Vec<Row> {
    let gather = || all().into_iter().filter(Beside::gathers);
    let mut rows: Vec<_> = gather()
        .map(|beside| beside.row(beside.name.into(), base(4)))
        .collect();
    rows.extend(gather().take(1).map(|beside| {
        let held = beside.held.alike();
        let name = format!("{} alike", beside.name);
        Beside { held, ..beside }.row(name, base(4))
    }));
    rows
}
