//! What `automatic` has set and found out that is worth keeping for the process after it: plain values, by class.
//!
//! ```text
//! Automatic ── learned(now) ──> LearnedAutomatic ── a successor ──> recall(.., elapsed, now) ──> throttles to set again
//! ```
//!
//! | what | why |
//! |---|---|
//! | a throttle: class, resource, limit, since when it is needed | without it the class hurts others again until it is found out anew |
//! | whether it is on trial, what it was before an ease, how often that had to be taken back | the next step goes on from there |
//! | what was tried in vain, what did harm | it is not tried again at once |
//! | what others take with room | a site that is full when its front-end is upgraded looks as if it were always so |
//!
//! What was seen of late is seen anew: an accusation, the last request held, that the resource has figures count as of now,
//! so a throttle has the time to show that it is needed that any other has. Only how long it stands without being needed
//! goes on, so that no row of upgrades makes one last. A throttle in its first minute is not watched for harm any more, and
//! rounds of the last resort begin anew: both compare with moments that only the former process has seen.
//!
//! Inputs: what another one said, maybe damaged: what makes no sense is left out, and bounds are those of this one. Failure
//! case: a class that has become harmless in the moment of the upgrade waits until it is let go as any other.
//!
//! Source: as for the whole (`automatic`).

use std::time::Duration;

use super::super::{PATIENCE_MAX, Passing};
use super::{
    ACQUITTED_FOR, Acquitted, Again, AutoConfig, Automatic, Done, Eased, LeftAlone, Own, done,
};
use crate::time::Timestamp;

/// Most classes that are remembered as tried in vain, and as harmful to slow.
const REMEMBERED_MAX: usize = 1000;
/// Longest name that is taken over, bytes.
const NAME_MAX: usize = 1024;
/// Greatest pain, or latency over SLO, that is believed.
const PAIN_MAX: f64 = 1e6;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnedAutomatic {
    /// Its throttles.
    pub throttles: Vec<LearnedThrottle>,
    /// Classes that were tried in vain, and how long ago.
    pub acquitted: Vec<(String, Duration)>,
    /// Classes that it did harm to slow: how long ago, and how often before that.
    pub harmful: Vec<(String, Duration, u32)>,
    /// What others take with room, over the SLO.
    pub usual: Option<f64>,
}

/// A throttle.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedThrottle {
    /// The class, as throttles have it.
    pub class: String,
    /// The resource that it is set for.
    pub resource: String,
    /// Its concurrency.
    pub limit: u32,
    /// How long ago it last was seen to be needed.
    pub needed: Duration,
    /// The pain when it was set, as long as it is only a trial.
    pub trial: Option<f64>,
    /// The last change, if that was an ease.
    pub eased: Option<Eased>,
    /// Eases that had to be taken back of late.
    pub relapses: u32,
}

impl Automatic {
    /// What is known by now.
    pub fn learned(&self, now: Timestamp) -> LearnedAutomatic {
        let throttle = |(class, own): (&String, &Own)| LearnedThrottle {
            class: class.clone(),
            resource: own.resource.clone(),
            limit: own.limit,
            needed: now.since(own.needed_at),
            trial: own.trial,
            eased: own.eased,
            relapses: own.relapses,
        };
        let acquitted = self.acquitted.iter();
        let harmful = self.harmful.iter();
        LearnedAutomatic {
            throttles: self.own.iter().map(throttle).collect(),
            acquitted: acquitted
                .map(|(class, it)| (class.clone(), now.since(it.at)))
                .collect(),
            harmful: harmful
                .map(|(class, it)| (class.clone(), it.age(now), it.times()))
                .collect(),
            usual: self.usual,
        }
    }

    /// Goes on from what another one knew so long ago; the throttles that are to be set again. To be called before the
    /// first look.
    pub fn recall(
        &mut self,
        learned: &LearnedAutomatic,
        elapsed: Duration,
        now: Timestamp,
    ) -> Vec<Done> {
        let ago = |age: Duration| now - age.saturating_add(elapsed).min(AGE_MAX);
        let named = |class: &str| !class.is_empty() && class.len() <= NAME_MAX;
        let acquitted = learned.acquitted.iter().filter(|it| named(&it.0));
        let acquitted = acquitted.filter(|(_, age)| *age < ACQUITTED_FOR);
        for (class, age) in acquitted.take(REMEMBERED_MAX) {
            let again = Again::No;
            let at = ago(*age);
            self.acquitted
                .insert(class.clone(), Acquitted { at, again });
        }
        let harmful = learned.harmful.iter().filter(|it| named(&it.0));
        for (class, age, times) in harmful.take(REMEMBERED_MAX) {
            let left = LeftAlone::known(ago(*age), *times);
            self.harmful.insert(class.clone(), left);
        }
        let usual = learned.usual;
        self.usual = usual.filter(|it| *it > 0.0 && *it <= PAIN_MAX);
        let mut done = Vec::new();
        for known in &learned.throttles {
            let is_new = !self.own.contains_key(&known.class);
            let age = known.needed.saturating_add(elapsed);
            let fits = named(&known.class) && named(&known.resource) && is_new;
            if fits && self.own.len() < self.bounds.most && age < self.bounds.longest {
                let own = recalled(known, &self.bounds, ago(known.needed), now);
                done.push(self.goes_on(&known.class, &own));
                self.own.insert(known.class.clone(), own);
            }
        }
        done
    }

    fn goes_on(&self, class: &str, own: &Own) -> Done {
        let (limit, resource) = (own.limit, &own.resource);
        let text = match self.bounds.holds {
            true => format!("{class}: stays throttled to {limit} at a time, for {resource}"),
            false => format!("{class}: still goes last where requests wait, for {resource}"),
        };
        done(
            class,
            Some(self.bounds.holds.then_some(limit)),
            "throttled",
            text,
        )
    }
}

/// Longest age that is believed.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// A throttle that is set now as it was elsewhere. What the class has at the servers is the former process's.
fn recalled(
    known: &LearnedThrottle,
    bounds: &AutoConfig,
    needed_at: Timestamp,
    now: Timestamp,
) -> Own {
    let believed = |pain: &f64| (0.0..=PAIN_MAX).contains(pain);
    let limit = known.limit.max(bounds.least).max(1);
    Own {
        resource: known.resource.clone(),
        limit,
        changed_at: now,
        drained_at: None,
        accused_at: now,
        held_at: now,
        held: 0,
        passed: 0,
        passed_before: 0,
        in_flight: None,
        passing: Passing::default(),
        dearer: None,
        trial: known.trial.filter(believed),
        eased: known.eased.filter(|it| believed(&it.pain) && it.from > 0),
        relapses: known.relapses.min(PATIENCE_MAX),
        known_at: now,
        needed_at,
        before: None,
        well_since: None,
        halved_at: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Culprit;
    use super::super::{Heard, UsedPart};
    use super::*;
    use crate::culprits::Confidence;
    use crate::throttle::{SetBy, Throttle, Throttles};

    const START: Timestamp = Timestamp::from_millis(10_000_000_000);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A front-end before a database.
    struct Site {
        automatic: Automatic,
        throttles: Throttles,
        now: Timestamp,
    }

    impl Site {
        fn new(now: Timestamp) -> Self {
            Self {
                automatic: Automatic::new(AutoConfig::default()),
                throttles: Throttles::new(10),
                now,
            }
        }

        /// One that goes on from what another knew so long ago, by another clock.
        fn after(learned: &LearnedAutomatic, elapsed: Duration) -> (Self, Vec<Done>) {
            let mut site = Self::new(START + seconds(77_000));
            let done = site.automatic.recall(learned, elapsed, site.now);
            done.iter().for_each(|it| site.carry_out(it));
            (site, done)
        }

        fn carry_out(&mut self, done: &Done) {
            let Some(limits) = done.limits else {
                self.throttles.release(&done.class);
                return;
            };
            let pattern = done.class.parse().unwrap();
            let set = self
                .throttles
                .set(pattern, limits, SetBy::Policy, None, self.now);
            set.unwrap();
        }

        /// A second passes in which so much of the database is used and others take so long; the class is accused or not.
        fn look(&mut self, usage: f64, latency: f64, accused: Option<&str>) -> Vec<Done> {
            self.now = self.now + seconds(1);
            let culprits: Vec<_> = (accused.iter())
                .map(|class| Culprit {
                    class,
                    resource: "db",
                    share: 0.8,
                    confidence: Some(Confidence::Strong),
                    presumed: false,
                    in_flight: 10.0,
                    held_back: 0.0,
                })
                .collect();
            let heard = Heard {
                took: None,
                culprits: &culprits,
                resources: &[UsedPart {
                    resource: "db",
                    usage,
                    capacity: 4.0,
                }],
                latency: Some(latency),
                held_back: 0.0,
                present: &[],
            };
            let all: Vec<Throttle> = self.throttles.all().collect();
            let done = self.automatic.look(&heard, &all, self.now);
            done.iter().for_each(|it| self.carry_out(it));
            done
        }

        fn limit(&self) -> Option<u32> {
            let mut all = self.throttles.all();
            all.next().and_then(|it| it.limits.concurrency)
        }
    }

    /// One that throttles `GET /a` since it was accused.
    fn throttling() -> Site {
        let mut site = Site::new(START);
        for _ in 0..10 {
            site.look(0.3, 0.1, None);
        }
        site.look(0.97, 2.0, Some("GET /a"));
        assert!(site.limit().is_some());
        site
    }

    #[test]
    fn a_throttle_stands_in_the_next_process_and_goes_on_as_it_would_have() {
        let mut before = throttling();
        let learned = before.automatic.learned(before.now);
        let (mut after, done) = Site::after(&learned, seconds(1));
        let text = "GET /a: stays throttled to 2 at a time, for db";
        assert_eq!((done.len(), done[0].text.as_str()), (1, text));
        assert_eq!(after.limit(), before.limit());
        let again = after.automatic.learned(after.now);
        assert_eq!(again.throttles[0].needed, seconds(1));
        assert_eq!(again.usual, learned.usual);
        // Others still wait, and discovery knows nothing yet: tightened in its turn, and not let go.
        let steps: Vec<_> = (0..10).flat_map(|_| after.look(0.97, 2.0, None)).collect();
        let limits: Vec<_> = steps
            .iter()
            .map(|it| it.limits.and_then(|it| it.concurrency))
            .collect();
        assert_eq!(limits, [Some(1)]);
        // With room and none held it ends as any other.
        let steps: Vec<_> = (0..40).flat_map(|_| after.look(0.3, 0.1, None)).collect();
        assert_eq!(steps.last().map(|it| it.what), Some("released"));
        assert_eq!(after.limit(), None);
        // Its operator's word counts more.
        before.throttles.release("GET /a");
        before.look(0.97, 2.0, None);
        assert_eq!(before.automatic.learned(before.now).throttles, []);
    }

    #[test]
    fn no_row_of_upgrades_makes_a_throttle_last_that_nothing_shows_to_be_needed() {
        let mut learned = throttling().automatic.learned(START + seconds(11));
        let mut stood = seconds(0);
        while !learned.throttles.is_empty() {
            let (after, done) = Site::after(&learned, seconds(100));
            assert!(done.len() <= 1);
            learned = after.automatic.learned(after.now);
            stood += seconds(100);
            assert!(stood <= AutoConfig::default().longest);
        }
    }

    #[test]
    fn what_others_usually_take_is_the_same_time_by_another_slo() {
        let mut site = throttling();
        // Half of what it was: all latencies are twice as much of it.
        site.automatic.follow_slo(2.0);
        let steps: Vec<_> = (0..40).flat_map(|_| site.look(0.8, 0.2, None)).collect();
        let limits: Vec<_> = steps
            .iter()
            .map(|it| it.limits.and_then(|it| it.concurrency))
            .collect();
        assert_eq!(limits, [None], "they are as fast as ever: it ends");
    }

    #[test]
    fn what_was_tried_in_vain_or_did_harm_is_left_alone_for_the_rest_of_its_time() {
        let learned = LearnedAutomatic {
            acquitted: vec![("GET /b".into(), seconds(200))],
            harmful: vec![("GET /c".into(), seconds(200), 1)],
            ..LearnedAutomatic::default()
        };
        let (site, done) = Site::after(&learned, seconds(0));
        assert_eq!(done, []);
        assert_eq!(site.automatic.learned(site.now), learned);
        let (site, _) = Site::after(&learned, seconds(99));
        assert_eq!(site.automatic.learned(site.now).acquitted.len(), 1);
        let (mut site, _) = Site::after(&learned, seconds(100));
        assert_eq!(
            site.look(0.97, 2.0, Some("GET /c")),
            [],
            "600 s the second time"
        );
        assert_eq!(site.automatic.learned(site.now).acquitted, []);
    }

    #[test]
    fn a_liar_gets_few_throttles_that_end() {
        let throttle = |class: &str, limit| LearnedThrottle {
            class: class.into(),
            resource: "db".into(),
            limit,
            needed: seconds(0),
            trial: Some(f64::NAN),
            eased: Some(Eased {
                from: 0,
                pain: f64::INFINITY,
            }),
            relapses: u32::MAX,
        };
        let mut throttles: Vec<_> = (0..50)
            .map(|it| throttle(&format!("GET /{it}"), 0))
            .collect();
        throttles[0].class = "x".repeat(NAME_MAX + 1);
        throttles[1].resource = String::new();
        throttles[2].needed = Duration::MAX;
        throttles[4].class = throttles[3].class.clone();
        let learned = LearnedAutomatic {
            throttles,
            acquitted: (0..5000)
                .map(|it| (format!("GET /{it}"), Duration::ZERO))
                .collect(),
            harmful: vec![("GET /9".into(), Duration::MAX, u32::MAX); 5000],
            usual: Some(f64::NEG_INFINITY),
        };
        let (_, done) = Site::after(&learned, Duration::MAX);
        assert_eq!(done, [], "all of that is too long ago");
        let (mut after, done) = Site::after(&learned, Duration::ZERO);
        assert_eq!(done.len(), AutoConfig::default().most);
        let known = after.automatic.learned(after.now);
        assert_eq!(known.acquitted.len(), REMEMBERED_MAX);
        assert_eq!(known.usual, None);
        for it in &known.throttles {
            let believed = (it.limit, it.trial, it.eased, it.relapses);
            assert_eq!(believed, (1, None, None, PATIENCE_MAX));
        }
        (0..40).for_each(|_| drop(after.look(0.3, 0.1, None)));
        assert_eq!(after.limit(), None);
        let bounds = AutoConfig {
            holds: false,
            most: 1,
            ..AutoConfig::default()
        };
        let done = Automatic::new(bounds).recall(&learned, Duration::ZERO, START);
        let limits = done[0].limits.unwrap();
        assert_eq!(
            (done.len(), limits.concurrency, limits.lowest_priority),
            (1, None, true)
        );
    }
}
