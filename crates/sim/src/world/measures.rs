//! What a run measures, window by window and in all.

use std::time::Duration;

use tidegate_core::admission::Priority;
use tidegate_core::time::{Timestamp, nanos};

use super::{Choosers, START, World};
use crate::checks::{Shares, Totals, Violation};
use crate::counters::Scope;
use crate::queue::Event;
use crate::report::{Digest, Latencies, PriorityReport, Report, SiteReport};
use crate::requests::{TryOutcome, Wanted};
use crate::scenario::{Expect, Scenario, Series};

/// Window of [`Report::herding`].
pub(super) const WINDOW: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(super) struct Measures {
    pub(super) events: u64,
    /// Tries that nodes refused for want of descriptors.
    pub(super) out_of_files: u64,
    pub(super) load_ages: Vec<u64>,
    /// Nodes that decisions compared, warm-up left out.
    pub(super) compared: u64,
    /// Decisions, likewise.
    pub(super) decisions: u64,
    pub(super) digest: Digest,
    requests: u64,
    warm_from: u64,
    totals: Vec<Totals>,
    latencies: Vec<Vec<u64>>,
    pub(super) priorities: [PriorityReport; Priority::COUNT],
    /// By site, its nodes.
    members: Vec<Vec<u32>>,
    /// Those of them without faults and overrides.
    reliable: Vec<Vec<u32>>,
    sent: Vec<u64>,
    shares: Shares,
    warm_at: Option<Timestamp>,
    in_flight_ns: Vec<u64>,
    herding: Vec<f64>,
    wants_series: Option<Series>,
    series: Vec<u64>,
    sent_by_second: Vec<Vec<u32>>,
}

impl Measures {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let count = scenario.nodes.len();
        let sites = scenario.sites.len();
        let of_site = |site: usize| -> Vec<u32> {
            let nodes = 0..count as u32;
            nodes
                .filter(|node| scenario.nodes[*node as usize].site.index() == site)
                .collect()
        };
        let trouble = |node: &u32| {
            scenario.faults.iter().any(|fault| fault.node.0 == *node)
                || scenario.leaves.iter().any(|leave| leave.node.0 == *node)
                || scenario
                    .overrides
                    .iter()
                    .any(|change| change.node.0 == *node)
        };
        let members: Vec<_> = (0..sites).map(of_site).collect();
        let mut reliable = members.clone();
        for nodes in &mut reliable {
            nodes.retain(|node| !trouble(node));
        }
        let requests = scenario.requests as usize;
        Self {
            events: 0,
            out_of_files: 0,
            load_ages: Vec::with_capacity(requests),
            compared: 0,
            decisions: 0,
            digest: Digest::new(),
            requests: requests as u64,
            warm_from: (f64::from(scenario.requests) * scenario.warm_up).ceil() as u64,
            totals: vec![Totals::default(); sites],
            latencies: vec![Vec::with_capacity(requests / sites.max(1)); sites],
            priorities: Default::default(),
            members,
            reliable,
            sent: vec![0; count],
            shares: Shares::new(count, Expect::SHARE_WINDOW),
            warm_at: None,
            in_flight_ns: vec![0; count],
            herding: Vec::new(),
            wants_series: scenario.series,
            series: Vec::new(),
            sent_by_second: Vec::new(),
        }
    }

    /// Requests of all sites so far.
    pub(super) fn offered(&self) -> u64 {
        self.totals.iter().map(|totals| totals.offered).sum()
    }

    pub(super) fn waiting(&self) -> u64 {
        self.totals.iter().map(|totals| totals.waiting).sum()
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.totals.iter().map(|totals| totals.in_flight).sum()
    }

    /// Whether a request that comes now is measured.
    pub(super) fn is_warm(&self) -> bool {
        self.offered() >= self.warm_from
    }

    pub(super) fn totals(&mut self, site: u32) -> &mut Totals {
        &mut self.totals[site as usize]
    }

    pub(super) fn sent(&mut self, node: u32, measured: bool, now: Timestamp) {
        self.digest.add(now.nanos());
        self.digest.add(node.into());
        let second = now.since(START).as_secs() as usize;
        if self.sent_by_second.len() <= second {
            let nodes = self.sent.len();
            self.sent_by_second
                .resize_with(second + 1, || vec![0; nodes]);
        }
        self.sent_by_second[second][node as usize] += 1;
        if measured {
            self.warm_at.get_or_insert(now);
            self.sent[node as usize] += 1;
            self.shares.count(node);
        }
    }

    pub(super) fn ended(&mut self, wanted: &Wanted, ended: TryOutcome, now: Timestamp) {
        let totals = &mut self.totals[wanted.site as usize];
        totals.in_flight -= 1;
        match ended {
            TryOutcome::Served => {
                totals.completed += 1;
                self.count_window(now, now.since(wanted.arrived));
                if wanted.measured {
                    self.priorities[wanted.priority.index()].completed += 1;
                    let latency = nanos(now.since(wanted.arrived));
                    self.latencies[wanted.site as usize].push(latency);
                }
            }
            TryOutcome::Refused => {
                totals.failed += 1;
                totals.refused += 1;
            }
            TryOutcome::Failed
            | TryOutcome::Broken
            | TryOutcome::Unreachable
            | TryOutcome::Lost => {
                totals.failed += 1;
            }
        }
    }

    fn count_window(&mut self, now: Timestamp, latency: Duration) {
        let Some(Series { window, slo }) = self.wants_series else {
            return;
        };
        if latency <= slo {
            let index = (nanos(now.since(START)) / nanos(window).max(1)) as usize;
            if self.series.len() <= index {
                self.series.resize(index + 1, 0);
            }
            self.series[index] += 1;
        }
    }

    /// A node begins to count anew.
    pub(super) fn restarted(&mut self, node: u32) {
        self.in_flight_ns[node as usize] = 0;
    }
}

impl World<'_> {
    pub(super) fn on_window(&mut self) -> Result<(), Violation> {
        let now = self.now;
        let measures = &mut self.measures;
        let measured = measures.is_warm() && measures.offered() < measures.requests;
        for site in 0..measures.members.len() {
            let (mut sum, mut most) = (0.0, 0.0f64);
            for node in &measures.members[site] {
                let counters = self.nodes[*node as usize].processor.counters();
                let integral = counters.point_at(now, Scope::Host).in_flight_ns;
                let before = &mut measures.in_flight_ns[*node as usize];
                let grown = integral.saturating_sub(*before) as f64;
                *before = integral;
                sum += grown;
                most = most.max(grown);
            }
            if measured && sum > 0.0 {
                let mean = sum / measures.members[site].len() as f64;
                measures.herding.push(most / mean);
            }
        }
        if let Some(warm_at) = measures.warm_at {
            let since = now.since(warm_at);
            measures.shares.end(since, false, &measures.reliable);
        }
        self.queue.schedule(now + WINDOW, Event::Window);
        self.check_pickers()
    }

    /// What was measured.
    pub(super) fn finish(mut self) -> Result<Report, Violation> {
        self.check_pickers()?;
        let measures = &mut self.measures;
        let lasted = self.now.since(measures.warm_at.unwrap_or(START));
        measures.shares.end(lasted, true, &measures.reliable);
        Ok(self.report())
    }

    fn report(&mut self) -> Report {
        let measures = &mut self.measures;
        let totals = measures
            .totals
            .iter()
            .fold(Totals::default(), |sum, one| sum.with(one));
        let latencies = std::mem::take(&mut measures.latencies);
        let sites: Vec<_> = measures
            .totals
            .iter()
            .zip(latencies)
            .map(|(totals, latencies)| SiteReport {
                totals: *totals,
                latencies: Latencies::of(latencies),
            })
            .collect();
        let windows = measures.herding.len().max(1) as f64;
        Report {
            offered: totals.offered,
            completed: totals.completed,
            failed: totals.failed,
            refused: totals.refused,
            out_of_files: measures.out_of_files,
            rejected: totals.rejected,
            latencies: Latencies::merged(sites.iter().map(|site| &site.latencies)),
            compared: measures.compared as f64 / measures.decisions.max(1) as f64,
            load_ages: Latencies::of(std::mem::take(&mut measures.load_ages)),
            sent: measures.sent.clone(),
            herding: measures.herding.iter().sum::<f64>() / windows,
            least_share: measures.shares.least,
            lasted: self.now.since(START),
            events: measures.events,
            sites,
            priorities: measures.priorities,
            series: std::mem::take(&mut measures.series),
            sent_by_second: std::mem::take(&mut measures.sent_by_second),
            digest: measures.digest.value(),
        }
    }

    pub(super) fn check_totals(&self) -> Result<(), Violation> {
        for (site, totals) in self.measures.totals.iter().enumerate() {
            if !totals.are_conserved() {
                let what = format!("requests of site {site} are not conserved: {totals:?}");
                return Err(self.violation(what));
            }
        }
        Ok(())
    }

    /// The pickers count in flight what we do.
    fn check_pickers(&self) -> Result<(), Violation> {
        let Choosers::FrontEnds(front_ends) = &self.choosers else {
            return Ok(());
        };
        let counted: u64 = front_ends
            .iter()
            .map(|front_end| front_end.in_flight())
            .sum();
        let in_flight = self.measures.in_flight();
        if counted == in_flight {
            return Ok(());
        }
        let what = format!("pickers count {counted} requests in flight, there are {in_flight}");
        Err(self.violation(what))
    }
}
