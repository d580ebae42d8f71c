//! What becomes of throttles when discovery is to do something else by itself.
//!
//! ```text
//! other bounds                 ──> what stands keeps its limit until its next change
//! another SLO                  ──> what others usually take is so much of the new one
//! classes are held, or no more ──> what stands is released, and set again by the new bounds, as by a new process
//! nothing is done any more     ──> what stands is released
//! ```
//!
//! A delay experiment that runs goes on to its end, which comes within a minute.

use tidegate_core::throttle::AutoConfig;
use tidegate_core::time::Timestamp;

use super::Running;
use crate::live::policy::Policy;

impl Running {
    /// Takes over what it is to do, if that has changed.
    pub(super) fn follow_actions(&mut self, now: Timestamp) {
        let wanted = **self.wanted.load();
        if wanted == self.actions {
            return;
        }
        let before = std::mem::replace(&mut self.actions, wanted);
        let times = before.slo.as_secs_f64() / wanted.slo.as_secs_f64();
        let holds = |bounds: AutoConfig| bounds.holds;
        let same_kind = before.automatic.map(holds) == wanted.automatic.map(holds);
        if let Some(policy) = self.policy.as_mut().filter(|_| before.slo != wanted.slo) {
            policy.follow_slo(times);
        }
        match (&mut self.policy, wanted.automatic) {
            (Some(policy), Some(bounds)) if same_kind => policy.set_bounds(bounds),
            (_, bounds) => self.begin_anew(bounds, now),
        }
    }

    /// Another policy goes on from what the present one knows.
    fn begin_anew(&mut self, bounds: Option<AutoConfig>, now: Timestamp) {
        let alone = self.requests.alone().map(str::to_owned);
        let former = self.policy.take();
        self.policy = bounds.map(|bounds| Policy::new(bounds, self.names.clone()));
        let Some(former) = former else { return };
        former.release_all(&*self.throttles, now);
        let known = former.learned(alone, now);
        self.take_over(&known);
        let Some(policy) = &self.policy else { return };
        let standing = known.automatic.throttles.iter();
        let released = standing.filter(|it| policy.classes().all(|class| class != it.class));
        for it in released {
            let text = format!("{}: not throttled any more, by the new bounds", it.class);
            self.log.event("released", &text);
        }
    }
}
