//! Sets what is to be set at HAProxy, or says what would be, and puts it back at the end.

use super::changes::{Change, Keeper, Plan, Setting, listed};
use super::runtime_api::{NoAnswer, RuntimeApi};
use crate::output::Output;

/// One kind of setting in force.
pub(super) struct Steered<S, K> {
    pub(super) keeper: K,
    /// So many times something was set.
    pub(super) set: u64,
    /// What a dry run has shown.
    shown: Vec<Change<S>>,
}

impl<S, K> Steered<S, K> {
    pub(super) fn new(keeper: K) -> Self {
        Self {
            keeper,
            set: 0,
            shown: Vec::new(),
        }
    }
}

/// See the module.
pub(super) struct Hand {
    pub(super) api: RuntimeApi,
    pub(super) dry_run: bool,
    pub(super) output: Output,
}

impl Hand {
    /// Does what is planned.
    pub(super) async fn carry_out<S, K>(
        &self,
        plan: Plan<S>,
        steered: &mut Steered<S, K>,
    ) -> Result<(), NoAnswer>
    where
        S: Setting,
        K: Keeper<S>,
    {
        for (name, text) in &plan.events {
            self.output.event(name, text);
        }
        if self.dry_run {
            self.show(plan.changes, &mut steered.shown);
            return Ok(());
        }
        for (name, text) in &plan.reasons {
            self.output.event(name, text);
        }
        let mut done = Vec::new();
        for change in plan.changes {
            match self.set(&change).await? {
                None => {
                    steered.set += u64::from(change.to.counts());
                    steered.keeper.on_set(&change);
                    done.push(change);
                }
                Some(why) => {
                    steered.keeper.on_refused(&change);
                    let server = change.server();
                    let text = format!("{server} is left alone: HAProxy says: {why}");
                    self.output.event("refused", &text);
                }
            }
        }
        if let (Some(name), false) = (S::SET, done.is_empty()) {
            self.output.event(name, &listed(&done));
        }
        Ok(())
    }

    /// Sets it; what HAProxy says against it, if it does.
    async fn set<S: Setting>(&self, change: &Change<S>) -> Result<Option<String>, NoAnswer> {
        self.api.order(&change.to.command(&change.server())).await
    }

    /// Says what would be set, if that is something else than before.
    fn show<S: Setting>(&self, changes: Vec<Change<S>>, shown: &mut Vec<Change<S>>) {
        let alike = changes.len() == shown.len()
            && changes
                .iter()
                .zip(&*shown)
                .all(|(it, shown)| it.is_near(shown));
        if !alike {
            let text = match changes.is_empty() {
                true => S::NOTHING.into(),
                false => format!("{} {}", S::WOULD_TEXT, listed(&changes)),
            };
            self.output.event(S::WOULD, &text);
            *shown = changes;
        }
    }

    /// Puts back what was set; how many times, and why it could not where it could not.
    pub(super) async fn put_back<S: Setting>(&self, changes: &[Change<S>]) -> (u64, Vec<String>) {
        let (mut restored, mut not_restored) = (0, Vec::new());
        for change in changes {
            let said = self.set(change).await;
            match said.unwrap_or_else(|why| Some(why.to_string())) {
                None => restored += 1,
                Some(why) => not_restored.push(format!("{}: {why}", change.server())),
            }
        }
        (restored, not_restored)
    }
}
