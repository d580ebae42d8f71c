//! Slowing culprits down by itself: what the core's [`Automatic`] is given, and what is done of what it says.
//!
//! ```text
//! findings ──> Culprit              named, suspected or presumed; all but those that an operator throttles
//! findings ──> Present              what each class has at the servers
//! series ──> UsedPart               use of the last 5 s
//! requests ──> Others               p95 of all other classes, and what admission held back of them
//! throttles ──> Automatic ──> concurrency orders, set by "policy"
//! ```
//!
//! An order is for the requests of the class that it was made from, and for no others. It keeps the text that it had
//! when it was set, whatever else gets a name of its own in that place since.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::throttle::{
    AutoConfig, Automatic, ClassPattern, Culprit, Done, Heard, Present, SetBy, Throttle, UsedPart,
};
use tidegate_core::time::Timestamp;

use super::findings::Finding;
use super::front_end::Throttles;
use super::handed_over::LearnedPolicy;
use crate::names::ClassNames;

/// How a resource does.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pressed {
    /// Its name.
    pub(super) resource: String,
    /// Used part of its capacity.
    pub(super) usage: f64,
    /// Its CPUs, or disks.
    pub(super) capacity: f64,
}

/// How requests of all other classes fare.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct OthersDo {
    /// What they take as a part of what they shall take; none if there are too few.
    pub(super) latency: Option<f64>,
    /// Part of them that was refused, or waited for long.
    pub(super) held_back: f64,
    /// What one of them takes at the servers, seconds; none if there are too few.
    pub(super) took: Option<f64>,
}

/// What it looks at.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    /// What discovery has found.
    pub(super) found: &'a [Finding],
    /// How resources do.
    pub(super) pressed: &'a [Pressed],
    /// How requests of all other classes fare.
    pub(super) others: OthersDo,
    /// What part of a class was held back, by its name.
    pub(super) held_back: &'a dyn Fn(&str) -> f64,
    /// What one of a class takes at the servers, by its name.
    pub(super) took: &'a dyn Fn(&str) -> Option<f64>,
}

/// What it did, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicyEvent {
    /// The kind of event.
    pub(super) event: &'static str,
    /// It as a sentence.
    pub(super) text: String,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Policy {
    automatic: Automatic,
    names: ClassNames,
    /// Orders that were set, by the class's name.
    orders: BTreeMap<String, String>,
}

impl Policy {
    /// Within these bounds; it has no throttle yet.
    pub(super) fn new(bounds: AutoConfig, names: ClassNames) -> Self {
        Self {
            automatic: Automatic::new(bounds),
            names,
            orders: BTreeMap::new(),
        }
    }

    /// Goes by these bounds from now on; see [`Automatic::set_bounds`].
    pub(super) fn set_bounds(&mut self, bounds: AutoConfig) {
        self.automatic.set_bounds(bounds);
    }

    /// The SLO is another one; see [`Automatic::follow_slo`].
    pub(super) fn follow_slo(&mut self, times: f64) {
        self.automatic.follow_slo(times);
    }

    /// The classes that it throttles, as throttles have them.
    pub(super) fn classes(&self) -> impl Iterator<Item = &str> {
        self.automatic.classes()
    }

    /// Releases what it has set, and goes on to know it.
    pub(super) fn release_all(&self, throttling: &dyn Throttles, now: Timestamp) {
        for class in self.automatic.classes() {
            throttling.release(class, now);
        }
    }

    /// What a successor goes on from; classes belong to this site, or carry their site's name.
    pub(super) fn learned(&self, alone: Option<String>, now: Timestamp) -> LearnedPolicy {
        let orders = self.orders.iter();
        LearnedPolicy {
            automatic: self.automatic.learned(now),
            orders: orders
                .map(|(class, order)| (class.clone(), order.clone()))
                .collect(),
            alone,
        }
    }

    /// Goes on from what another process knew, where classes belong to this site, or carry their site's name; says which
    /// throttles stand again. To be called before the first look.
    pub(super) fn recall(
        &mut self,
        known: &LearnedPolicy,
        alone: Option<&str>,
        throttling: &dyn Throttles,
        now: Timestamp,
    ) -> Vec<PolicyEvent> {
        let own = |text: &str| self.own_name(text, known.alone.as_deref(), alone);
        let mut automatic = known.automatic.clone();
        let standing = throttling.all();
        // An operator's order, or the configuration's, is the later word.
        automatic.throttles.retain_mut(|it| {
            let pattern = match renamed(&mut it.class, &own) {
                true => self.names.pattern(&it.class).ok(),
                false => None,
            };
            let free = |own: &ClassPattern| standing.iter().all(|it| !it.pattern.covers(own));
            pattern.is_some_and(|own| free(&own))
        });
        automatic
            .acquitted
            .retain_mut(|it| renamed(&mut it.0, &own));
        automatic.harmful.retain_mut(|it| renamed(&mut it.0, &own));
        let orders = known.orders.iter();
        self.orders = orders
            .filter_map(|(class, order)| Some((own(class)?, own(order)?)))
            .take(automatic.throttles.len())
            .collect();
        let done = self.automatic.recall(&automatic, Duration::ZERO, now);
        let done = done.into_iter();
        let said = done.filter_map(|it| self.carry_out(it, throttling, now));
        let said = said.collect();
        self.forget_orders();
        said
    }

    /// What a class is called here that another process called so; none if it is of a site that is not here.
    fn own_name(&self, text: &str, there: Option<&str>, here: Option<&str>) -> Option<String> {
        if self.names.is_configured(text) {
            return Some(text.into());
        }
        match (there, here) {
            (Some(there), Some(here)) => (there == here).then(|| text.into()),
            (None, None) => Some(text.into()),
            (Some(there), None) => Some(format!("{there} {text}")),
            (None, Some(here)) => text
                .strip_prefix(here)?
                .strip_prefix(' ')
                .map(str::to_owned),
        }
    }

    /// Whether it throttles this class, by its name among the findings.
    pub(super) fn throttles(&self, class: &str) -> bool {
        self.orders.contains_key(class)
    }

    /// Looks at the scene, and acts; says what it did, for the operator.
    pub(super) fn act(
        &mut self,
        scene: &Scene<'_>,
        throttling: &dyn Throttles,
        now: Timestamp,
    ) -> Vec<PolicyEvent> {
        let Scene {
            found,
            pressed,
            others,
            held_back,
            took,
        } = *scene;
        let given_up = self.give_up(throttling, now);
        let standing = throttling.all();
        let orders: Vec<_> = found.iter().map(|it| self.order(it)).collect();
        let culprits: Vec<_> = (found.iter().zip(&orders))
            .filter_map(|(it, order)| {
                let culprit = self.culprit(it, order.as_deref()?, &standing)?;
                let held_back = held_back(&it.class);
                Some(Culprit {
                    held_back,
                    ..culprit
                })
            })
            .collect();
        let resources: Vec<_> = (pressed.iter())
            .map(|it| UsedPart {
                resource: &it.resource,
                usage: it.usage,
                capacity: it.capacity,
            })
            .collect();
        let present = self.present(found, &orders, took);
        let heard = Heard {
            culprits: &culprits,
            present: &present,
            resources: &resources,
            latency: others.latency,
            held_back: others.held_back,
            took: others.took,
        };
        let done = self.automatic.look(&heard, &standing, now);
        let done = done.into_iter();
        let said = (given_up.into_iter())
            .chain(done.filter_map(|it| self.carry_out(it, throttling, now)))
            .collect();
        for (it, order) in found.iter().zip(orders) {
            if let Some(order) =
                order.filter(|order| self.automatic.classes().any(|it| it == order))
            {
                self.orders.entry(it.class.to_string()).or_insert(order);
            }
        }
        self.forget_orders();
        said
    }

    /// Releases what is on requests of sites that are served no more, or for resources that are watched no more.
    pub(super) fn leave(
        &mut self,
        is_gone: &dyn Fn(&ClassPattern) -> bool,
        resources: &[String],
        throttling: &dyn Throttles,
        now: Timestamp,
    ) -> Vec<PolicyEvent> {
        let (names, automatic) = (&self.names, &mut self.automatic);
        let is_gone = |class: &str, resource: &str| {
            resources.iter().any(|it| it == resource)
                || names.pattern(class).is_ok_and(|it| is_gone(&it))
        };
        let done = automatic.leave(is_gone, now).into_iter();
        let done = done.filter_map(|it| self.carry_out(it, throttling, now));
        let done = done.collect();
        self.forget_orders();
        done
    }

    /// Classes that have no site in their names belong to this one, and are called by it from now on. A throttle without a
    /// site would be for all.
    pub(super) fn name_site(&mut self, site: &str, throttling: &dyn Throttles, now: Timestamp) {
        let standing = throttling.all();
        for (class, order) in std::mem::take(&mut self.orders) {
            if self.names.is_configured(&order) {
                self.orders.insert(class, order);
                continue;
            }
            let named = format!("{site} {order}");
            let throttle = standing.iter().find(|it| it.pattern.name() == order);
            let own = throttle.filter(|it| it.set_by == SetBy::Policy);
            let limits = own.map(|it| it.limits);
            let set = self.names.pattern(&named).ok().zip(limits);
            let set = set.is_some_and(|(pattern, limits)| {
                throttling.set(pattern, limits, SetBy::Policy, now).is_ok()
            });
            if own.is_some() {
                throttling.release(&order, now);
            }
            match set {
                true => self.automatic.rename(&order, &named),
                false => self.automatic.forget(&order),
            }
            self.orders.insert(format!("{site} {class}"), named);
        }
        self.forget_orders();
    }

    fn forget_orders(&mut self) {
        let automatic = &self.automatic;
        (self.orders).retain(|_, order| automatic.classes().any(|it| it == order));
    }

    /// Releases own orders on requests that an operator's order is for: the more exact one would count, which is ours.
    fn give_up(&mut self, throttling: &dyn Throttles, now: Timestamp) -> Vec<PolicyEvent> {
        let standing = throttling.all();
        let (own, others): (Vec<_>, Vec<_>) =
            (standing.iter()).partition(|it| it.set_by == SetBy::Policy);
        let given_up = own.into_iter().filter_map(|own| {
            let other = others.iter().find(|it| it.pattern.covers(&own.pattern))?;
            let (class, by) = (own.pattern.name(), other.pattern.name());
            self.automatic.forget(class);
            throttling.release(class, now)?;
            let text = format!("{class}: not throttled any more, there is an order on {by}");
            Some(PolicyEvent {
                event: "released",
                text,
            })
        });
        given_up.collect()
    }

    /// What each class has at the servers, by the names that orders have. What one takes counts for classes that are slowed.
    fn present<'a>(
        &self,
        found: &[Finding],
        orders: &'a [Option<String>],
        took: &dyn Fn(&str) -> Option<f64>,
    ) -> Vec<Present<'a>> {
        let present = found.iter().zip(orders).filter_map(|(it, order)| {
            let slowed = self.throttles(&it.class);
            Some(Present {
                class: order.as_deref()?,
                in_flight: it.in_progress,
                took: slowed.then(|| took(&it.class)).flatten(),
            })
        });
        present.collect()
    }

    /// What the order on a class is called: as it was set, or as it would be.
    fn order(&self, it: &Finding) -> Option<String> {
        let set = self.orders.get(&*it.class).map(String::as_str);
        set.or(it.pattern.as_deref()).map(str::to_owned)
    }

    /// What the core is given of a finding; nothing if it is neither named, suspected nor presumed, cannot be ordered, or is
    /// an operator's already.
    fn culprit<'a>(
        &self,
        it: &'a Finding,
        order: &'a str,
        standing: &[Throttle],
    ) -> Option<Culprit<'a>> {
        let (confidence, share) = match &it.flagged {
            Some((confidence, _)) => (Some(*confidence), it.share),
            None => (None, it.suspected.or(it.presumed)?),
        };
        let pattern = self.names.pattern(order).ok()?;
        let mut others = standing.iter().filter(|it| it.set_by != SetBy::Policy);
        if others.any(|it| it.pattern.covers(&pattern)) {
            return None;
        }
        Some(Culprit {
            class: order,
            resource: &it.resource,
            share,
            confidence,
            presumed: it.flagged.is_none() && it.suspected.is_none(),
            in_flight: it.in_progress,
            held_back: 0.0,
        })
    }

    /// Sets or releases a throttle; what is to be said of it, or why it could not be set.
    fn carry_out(
        &mut self,
        done: Done,
        throttling: &dyn Throttles,
        now: Timestamp,
    ) -> Option<PolicyEvent> {
        let Done {
            class,
            limits,
            what: event,
            text,
        } = done;
        let Some(limits) = limits else {
            throttling.release(&class, now)?;
            return Some(PolicyEvent { event, text });
        };
        let given = self.names.pattern(&class);
        let given = given.map_err(|error| error.to_string()).and_then(|it| {
            let set = throttling.set(it, limits, SetBy::Policy, now);
            set.map_err(|error| error.to_string())
        });
        if let Err(error) = given {
            self.automatic.forget(&class);
            let text = format!("{class}: cannot be throttled: {error}");
            return Some(PolicyEvent { event, text });
        }
        Some(PolicyEvent { event, text })
    }
}

/// Gives a class its name here; false if it has none.
fn renamed(name: &mut String, own: &impl Fn(&str) -> Option<String>) -> bool {
    match own(name) {
        Some(here) => {
            *name = here;
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests;
