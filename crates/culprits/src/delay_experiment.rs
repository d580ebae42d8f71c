//! The delay experiment of one class against one resource, from its first assignment to what is said of it.
//!
//! ```text
//! workers' assignments ──> on_assignment ─┐
//! the resource's use ──────────┴─> settle, each second or so ──> report
//! the site's latency ──────────────┘  above the SLO: stopped
//! ```
//!
//! Plain values throughout: its owner asks the proxy for assignments, and ends the experiment there when
//! this one is over.

use serde::{Deserialize, Serialize};
use tidegate_core::culprits::ClassId;
use tidegate_core::culprits::delay_experiment::{
    Assignment, DelayExperiment, DelayRefusal, ExperimentOutcome, may_delay,
};
use tidegate_core::time::Timestamp;

/// More requests than this are as good as never.
const NEVER: u64 = 1_000_000_000;

/// See the module.
#[derive(Clone, Debug)]
pub struct ExperimentRun {
    class: String,
    resource: String,
    began: Timestamp,
    experiment: DelayExperiment,
    /// Of those that were not delayed, and of those that were.
    assigned: [u64; 2],
    last: ExperimentOutcome,
    /// Why it was stopped, if it was.
    stopped: Option<DelayRefusal>,
    /// When it was over, once it is.
    ended: Option<Timestamp>,
}

/// How far an experiment has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExperimentState {
    /// It goes on.
    Running,
    /// The class uses the resource.
    Confirmed,
    /// After as many requests as should have shown it, it did not show.
    NotConfirmed,
    /// It would take more than a minute of the class's traffic.
    CannotBeConfirmed,
    /// It was stopped: it must not go on.
    Stopped,
}

/// What is reported of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentReport {
    /// Whose requests.
    pub class: String,
    /// Against which resource.
    pub resource: String,
    /// How far it has come.
    pub state: ExperimentState,
    /// Requests that were assigned.
    pub assigned: u64,
    /// Those of them that were delayed.
    pub delayed: u64,
    /// Requests that it takes, as far as is known; null if that is not known, or endless.
    pub needed: Option<u64>,
    /// t of the difference between the halves; null while it runs or where it is not known.
    pub t: Option<f64>,
    /// What a request costs the resource at least, milliseconds; null if it is not confirmed.
    pub cost_ms: Option<f64>,
    /// Half width of the cost's 95 % interval as a part of it.
    pub cost_error: Option<f64>,
    /// How long it has run, or ran.
    pub seconds: f64,
    /// All of it as a sentence.
    pub text: String,
}

impl ExperimentRun {
    /// Begins an experiment on a class whose requests are thought to cost so many seconds of the resource.
    pub fn new(
        id: ClassId,
        class: &str,
        resource: &str,
        cost_seconds: f64,
        now: Timestamp,
    ) -> Self {
        Self {
            class: class.into(),
            resource: resource.into(),
            began: now,
            // The workers draw the halves: its own generator is not used.
            experiment: DelayExperiment::new(id, cost_seconds, 0, now),
            assigned: [0; 2],
            last: ExperimentOutcome::Running {
                requests: 0,
                needed: NEVER,
            },
            stopped: None,
            ended: None,
        }
    }

    /// A request of the class was assigned.
    pub fn on_assignment(&mut self, assignment: Assignment) {
        if self.ended.is_none() && self.experiment.on_assignment(assignment) {
            self.assigned[usize::from(assignment.delayed)] += 1;
        }
    }

    /// Counts the requests whose use is known by now; whether the experiment is over. `used` gives the
    /// resource's use between two moments, seconds; none where it is not known.
    pub fn settle(
        &mut self,
        now: Timestamp,
        site_above_slo: bool,
        used: impl Fn(Timestamp, Timestamp) -> Option<f64>,
    ) -> bool {
        if self.ended.is_some() {
            return true;
        }
        self.last = self.experiment.settle(now, used);
        let goes_on = match self.last {
            ExperimentOutcome::Running { .. } => true,
            ExperimentOutcome::Confirmed { .. }
            | ExperimentOutcome::NotConfirmed { .. }
            | ExperimentOutcome::CannotBeConfirmed { .. } => false,
        };
        if goes_on {
            self.stopped = may_delay(true, site_above_slo).err();
        }
        if !goes_on || self.stopped.is_some() {
            self.ended = Some(now);
        }
        self.ended.is_some()
    }

    /// Its class or its resource has left.
    pub fn stop(&mut self, now: Timestamp) {
        if self.ended.is_none() {
            (self.stopped, self.ended) = (Some(DelayRefusal::Gone), Some(now));
        }
    }

    /// Whether it has shown that the class uses the resource.
    pub fn is_confirmed(&self) -> bool {
        matches!(self.last, ExperimentOutcome::Confirmed { .. })
    }

    /// What is to be said of it.
    pub fn report(&self, now: Timestamp) -> ExperimentReport {
        let [not_delayed, delayed] = self.assigned;
        let assigned = not_delayed + delayed;
        let (state, needed, t, cost) = match self.last {
            ExperimentOutcome::Running { needed, .. } => {
                let state = match self.stopped {
                    Some(_) => ExperimentState::Stopped,
                    None => ExperimentState::Running,
                };
                (state, Some(needed), None, None)
            }
            ExperimentOutcome::Confirmed { t, cost_seconds } => (
                ExperimentState::Confirmed,
                None,
                Some(t),
                Some(cost_seconds),
            ),
            ExperimentOutcome::NotConfirmed { t } => {
                (ExperimentState::NotConfirmed, None, Some(t), None)
            }
            ExperimentOutcome::CannotBeConfirmed { needed } => {
                (ExperimentState::CannotBeConfirmed, Some(needed), None, None)
            }
        };
        let mut report = ExperimentReport {
            class: self.class.clone(),
            resource: self.resource.clone(),
            state,
            assigned,
            delayed,
            needed: needed.filter(|needed| *needed < NEVER),
            t,
            cost_ms: cost.map(|seconds| seconds * 1e3),
            cost_error: cost.and(t).map(|t| 2.0 / t),
            seconds: self.ended.unwrap_or(now).since(self.began).as_secs_f64(),
            text: String::new(),
        };
        report.text = self.sentence(&report);
        report
    }

    fn sentence(&self, report: &ExperimentReport) -> String {
        let (class, resource) = (&report.class, &report.resource);
        let seen = format!(
            "{} requests in {:.1} s, {} of them delayed",
            report.assigned, report.seconds, report.delayed
        );
        let takes = match report.needed {
            Some(needed) => format!("about {needed} requests"),
            None => "more requests than will come".into(),
        };
        match (self.last, self.stopped) {
            (ExperimentOutcome::Running { .. }, Some(why)) => {
                format!(
                    "the experiment on {class} against {resource} was stopped after {seen}: {why}"
                )
            }
            (ExperimentOutcome::Running { requests: 0, .. }, None) => {
                format!("{class} is tested against {resource}: {seen}")
            }
            (ExperimentOutcome::Running { requests, .. }, None) => format!(
                "{class} is tested against {resource}: {seen}; {requests} are counted, it takes {takes}"
            ),
            (ExperimentOutcome::Confirmed { t, cost_seconds }, _) => format!(
                "{class} uses {resource}, at least {:.1} ms per request: t = {t:.1}, {seen}",
                cost_seconds * 1e3
            ),
            (ExperimentOutcome::NotConfirmed { t }, _) => {
                format!("{class} was not seen to use {resource}: t = {t:.1}, {seen}")
            }
            (ExperimentOutcome::CannotBeConfirmed { .. }, _) => format!(
                "whether {class} uses {resource} cannot be told here: that takes {takes}, more than a \
                 minute brings; {seen}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tidegate_core::culprits::delay_experiment::{DELAY, is_delayed};
    use tidegate_core::prng::Prng;

    use super::*;

    const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

    fn at(ms: u64) -> Timestamp {
        START + Duration::from_millis(ms)
    }

    fn begun(cost_seconds: f64) -> ExperimentRun {
        ExperimentRun::new(ClassId(7), "GET /search/*", "db cpu", cost_seconds, START)
    }

    /// A request each 100 ms, each of which works for 50 ms from when it goes on, or does not; what
    /// else runs on the resource comes and goes each second. Until the experiment is over, which is evaluated
    /// at each second.
    fn run(works: bool, thought: f64, above_slo_at: u64) -> (ExperimentRun, u64) {
        let mut run = begun(thought);
        let mut prng = Prng::new(11);
        let mut busy: Vec<u32> = (0..70_000).map(|ms| ms / 500 % 2).collect();
        for ms in (0..65_000).step_by(100) {
            let delayed = is_delayed(&mut prng);
            run.on_assignment(Assignment {
                at: at(ms),
                delayed,
            });
            let goes = ms + if delayed { DELAY.as_millis() as u64 } else { 0 };
            if works {
                let goes = goes as usize;
                busy[goes..goes + 50].iter_mut().for_each(|it| *it += 1);
            }
            let used = |from: Timestamp, to: Timestamp| {
                let place = |at: Timestamp| at.since(START).as_millis() as usize;
                let used: u32 = busy[place(from)..place(to)].iter().sum();
                (place(to) <= ms as usize).then(|| f64::from(used) * 1e-3)
            };
            if ms % 1000 == 0 && run.settle(at(ms), ms >= above_slo_at, used) {
                return (run, ms);
            }
        }
        (run, 65_000)
    }

    #[test]
    fn a_class_that_works_is_confirmed_with_size_and_time() {
        let (test, ended) = run(true, 0.05, u64::MAX);
        assert!(test.is_confirmed());
        let report = test.report(at(ended + 5000));
        assert_eq!(report.state, ExperimentState::Confirmed);
        assert_eq!(report.seconds, ended as f64 * 1e-3, "it does not run on");
        assert_eq!(report.assigned, ended / 100 + 1);
        let t = report.t.unwrap();
        assert!(t > 3.0 && report.cost_error == Some(2.0 / t), "{report:?}");
        let cost = report.cost_ms.unwrap();
        assert!((10.0..100.0).contains(&cost), "{cost}");
        let text = report.text;
        assert!(
            text.starts_with("GET /search/* uses db cpu, at least "),
            "{text}"
        );
        let size = format!("{} requests in {:.1} s, ", report.assigned, report.seconds);
        assert!(text.contains(&size), "{text}");
    }

    #[test]
    fn a_class_that_does_not_work_is_not_confirmed() {
        let (test, ended) = run(false, 0.2, u64::MAX);
        let report = test.report(at(ended));
        assert_eq!(report.state, ExperimentState::NotConfirmed);
        assert!(report.t.is_some_and(|t| t <= 3.0));
        assert_eq!((report.cost_ms, report.cost_error), (None, None));
        assert!(
            report
                .text
                .starts_with("GET /search/* was not seen to use db cpu: t = ")
        );
    }

    #[test]
    fn too_long_an_experiment_is_reported_as_such() {
        let (test, ended) = run(false, 0.001, u64::MAX);
        let report = test.report(at(ended));
        assert_eq!(
            (report.state, report.t),
            (ExperimentState::CannotBeConfirmed, None)
        );
        assert!(report.needed.is_some_and(|it| it > 1000), "{report:?}");
        // Nothing is thought of its cost: no number of requests would do.
        let (test, ended) = run(false, 0.0, u64::MAX);
        let report = test.report(at(ended));
        assert_eq!(
            (report.state, report.needed),
            (ExperimentState::CannotBeConfirmed, None)
        );
        assert!(report.text.contains("more requests than will come"));
    }

    #[test]
    fn above_the_slo_it_is_stopped_and_counts_no_more() {
        let (mut test, ended) = run(true, 0.01, 1000);
        assert_eq!(ended, 1000);
        let report = test.report(at(ended));
        assert_eq!(report.state, ExperimentState::Stopped);
        assert!(
            report.text.ends_with("the site is above its SLO"),
            "{}",
            report.text
        );
        let assignment = Assignment {
            at: at(1100),
            delayed: true,
        };
        test.on_assignment(assignment);
        assert!(test.settle(at(9000), false, |_, _| Some(0.0)));
        assert_eq!(test.report(at(9000)), report);
    }

    #[test]
    fn a_running_experiment_reports_its_progress() {
        let mut run = begun(0.05);
        for ms in [100, 200, 300] {
            run.on_assignment(Assignment {
                at: at(ms),
                delayed: ms == 200,
            });
        }
        assert!(!run.settle(at(1500), false, |_, _| None));
        let found = serde_json::to_value(run.report(at(1500))).unwrap();
        let mut wanted = json!({
            "class": "GET /search/*", "resource": "db cpu", "state": "running", "assigned": 3,
            "delayed": 1, "needed": 16, "t": null, "cost_ms": null, "cost_error": null, "seconds": 1.5,
            "text": "GET /search/* is tested against db cpu: 3 requests in 1.5 s, 1 of them delayed",
        });
        assert_eq!(found, wanted);
        assert!(!run.settle(at(2000), false, |_, _| Some(0.1)));
        let found = serde_json::to_value(run.report(at(2000))).unwrap();
        wanted["seconds"] = json!(2.0);
        wanted["text"] = json!(
            "GET /search/* is tested against db cpu: 3 requests in 2.0 s, 1 of them delayed; 3 are counted, \
             it takes about 16 requests"
        );
        assert_eq!(found, wanted);
    }
}
