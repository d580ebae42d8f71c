//! Service checks: the agent asks services of its own host whether they are well, and its load records say what came of it.
//!
//! ```text
//! a task per check:  asks ──> rise and fall in a row (core) ──┐
//!                                                             ├──> in each record: those that there are, those that pass
//! a task per check:  asks ──> …                             ──┘
//! ```
//!
//! Each check asks at its own interval, one question at a time, from when the agent starts. Nothing is in the record before
//! each check has had a first result, so that an agent which restarts does not say of a service that it is well before
//! it has asked.
//!
//! Failure case: a check that this machine can never make (no port, no file left) keeps all of them out of the record.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::director::{CheckTurn, NodeCheck};
use tidegate_core::load::Services;
use tidegate_core::prng::Prng;
use tidegate_core::topology::{CheckId, CheckResult, CheckSet};
use tidegate_node::ServicesBoard;
use tidegate_remote::clock;
use tokio::time::sleep;

use crate::check::{Target, check};
use crate::config::ServiceCheck;
use crate::driver::wrong;
use crate::output::Output;

/// What is known of each check, for all that report it.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceStates(Arc<Mutex<Vec<ServiceState>>>);

/// A check, and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct ServiceState {
    /// What it is called.
    pub(super) label: String,
    /// Whether it passes; nothing before its first result.
    pub(super) passes: Option<bool>,
}

impl ServiceStates {
    fn new(checks: &[ServiceCheck]) -> Self {
        let unknown = |check: &ServiceCheck| ServiceState {
            label: check.config.label.clone(),
            passes: None,
        };
        let all = checks.iter().map(unknown).collect();
        Self(Arc::new(Mutex::new(all)))
    }

    /// All of them, in the order of the file.
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<ServiceState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which fail, in a few words; nothing if none does, as far as is known.
    pub(super) fn failing(&self) -> Option<String> {
        let states = self.lock();
        let failing = states.iter().filter(|it| it.passes == Some(false));
        let labels: Vec<_> = failing.map(|it| it.label.as_str()).collect();
        match labels.as_slice() {
            [] => None,
            [label] => Some(format!("service check {label} fails")),
            _ => Some(format!("service checks {} fail", labels.join(" and "))),
        }
    }

    /// Notes a result; what the record says from then on, if all are known.
    fn note(&self, check: CheckId, passes: Option<bool>) -> Option<Services> {
        let mut states = self.lock();
        if let Some(state) = states.get_mut(check.index()) {
            state.passes = passes;
        }
        let places = (0..).map(CheckId);
        let known = places.zip(states.iter()).map(|(check, state)| {
            let checked = CheckSet::default().with(check);
            let failing = if state.passes? {
                CheckSet::default()
            } else {
                checked
            };
            Some(Services { checked, failing })
        });
        let all: Option<Vec<_>> = known.collect();
        let none = Services::default();
        Some(all?.into_iter().fold(none, |all, it| Services {
            checked: all.checked.union(it.checked),
            failing: all.failing.union(it.failing),
        }))
    }
}

/// Begins to ask, until the runtime ends. Needs a runtime around it.
pub(super) fn start(
    checks: &[ServiceCheck],
    node: &str,
    board: &ServicesBoard,
    output: Output,
) -> ServiceStates {
    let states = ServiceStates::new(checks);
    for (place, check) in (0..).map(CheckId).zip(checks) {
        let task = Task {
            place,
            check: check.clone(),
            node: node.to_owned(),
            states: states.clone(),
            board: board.clone(),
            output,
        };
        tokio::spawn(task.run());
    }
    if !checks.is_empty() {
        let labels = checks.iter().map(|it| format!("`{}`", it.config.label));
        let labels = labels.collect::<Vec<_>>().join(", ");
        output.event("check", &format!("Services are checked: {labels}."));
    }
    states
}

/// One check.
struct Task {
    place: CheckId,
    check: ServiceCheck,
    node: String,
    states: ServiceStates,
    board: ServicesBoard,
    output: Output,
}

impl Task {
    async fn run(self) {
        let seed = clock::now().nanos() ^ u64::from(self.place.0);
        let (mut state, mut prng) = (NodeCheck::default(), Prng::new(seed));
        let config = &self.check.config;
        let target = Target {
            address: self.check.address,
            node: &self.node,
            site: None,
            tls: None,
            http2: false,
            proxy: None,
        };
        loop {
            let result = check(&target, config).await;
            let now = clock::now();
            if let Some(result) = result {
                let passed = result == CheckResult::Passed;
                let turn = state.on_result(passed, config, now, &mut prng);
                if let Some(services) = self.states.note(self.place, state.passes()) {
                    self.board.set(services);
                }
                self.say(turn, result);
            } else {
                state.on_unsent(config, now, &mut prng);
            }
            let due = state.due().unwrap_or(now + config.interval);
            sleep(due.since(clock::now())).await;
        }
    }

    fn say(&self, turn: Option<CheckTurn>, result: CheckResult) {
        let label = &self.check.config.label;
        match (turn, result) {
            (Some(CheckTurn::Failed), CheckResult::Failed(failure)) => {
                let why = wrong(failure);
                let text =
                    format!("service check `{label}` fails, {why}: front-ends send no requests");
                self.output.event("check_failed", &text);
            }
            (Some(CheckTurn::Passed), _) => {
                let text = format!("service check `{label}` passes");
                self.output.event("check_passed", &text);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_say_of_services_once_all_have_been_asked() {
        let state = |label: &str| ServiceState {
            label: label.into(),
            passes: None,
        };
        let all = vec![state("dns"), state("store")];
        let states = ServiceStates(Arc::new(Mutex::new(all)));
        assert_eq!(states.failing(), None);
        assert_eq!(states.note(CheckId(1), Some(false)), None);
        let said = states.failing().unwrap();
        assert_eq!(said, "service check store fails");
        let both = CheckSet::from_bits(0b11);
        let said = |failing| {
            Some(Services {
                checked: both,
                failing: CheckSet::from_bits(failing),
            })
        };
        assert_eq!(states.note(CheckId(0), Some(true)), said(0b10));
        assert_eq!(states.note(CheckId(0), Some(false)), said(0b11));
        assert_eq!(states.note(CheckId(1), Some(true)), said(0b01));
    }
}
