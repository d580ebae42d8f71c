//! The 33 families of labelled scenarios: what each adds to the ground.

use tidegate_core::prng::Prng;

use super::draw::{Plan, between, log_between, plain, rate_of, site, whole};
use super::site::{Background, Comes, Noise, Onset, Site, Traffic};

/// One line for each family: its name, and what it is about.
macro_rules! families {
    ($($variant:ident $name:literal $about:literal,)*) => {
        /// A kind of scenario.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Family {
            $(#[doc = $about] $variant,)*
        }

        impl Family {
            /// All.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it is about.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }
        }
    };
}

families! {
    Steady "steady" "Elephants come at random, at a constant rate.",
    OnsetRate "onset_rate" "After a quiet minute elephants come 20 times as often.",
    OnsetCost "onset_cost" "After a quiet minute their requests cost 20 times as much.",
    Rare "rare" "Few requests of 0.2 to 1.5 s each.",
    LowTraffic "low_traffic" "20 to 60 requests a second in all.",
    HighTraffic "high_traffic" "1000 to 2000 requests a second.",
    Session "session" "Users go from page to page: elephants follow others, and others follow them.",
    Ajax "ajax" "A page and its parts start together; one part is an elephant.",
    Lag "lag" "Work comes late in a life of waiting, or early.",
    Long "long" "Requests of 2 to 6 s that ask the database 6 to 15 times.",
    Saturated "saturated" "The database is asked for more than it has, from the first second on.",
    SaturatedPool "saturated_pool" "The same with a pool of connections that all wait for.",
    NearSat "near_sat" "80 to 92 % of the capacity in use.",
    NoisyBg "noisy_bg" "Jobs of nobody use a wandering 10 to 25 % of the database.",
    Periodic "periodic" "Elephants come from timers, more or less on time.",
    Flash "flash" "A crowd comes for some seconds, and wants everything but elephants.",
    Diurnal "diurnal" "All rates swing.",
    CacheWarm "cache_warm" "All work of the database is dear at first and cheaper by and by.",
    ManyEleph "many_eleph" "Four to six elephants.",
    ManyClasses "many_classes" "150 to 200 classes.",
    MultiRes "multi_res" "Elephants on the database, on the web servers and on the disk; all three are judged.",
    Combination "combination" "A session, a crowd, background jobs and clocks that differ.",
    SlowClient "slow_client" "Clients read slowly, and the log shows when they are done.",
    Async "async" "Work begins 0.1 to 0.8 s after the reply.",
    HeavyTail "heavy_tail" "Work scatters as a log-normal with sigma 1.3.",
    Bursty "bursty" "Small ones come in bursts, all together.",
    None "none" "No elephant.",
    NoneFlash "none_flash" "No elephant, but a crowd.",
    SyncCron "sync_cron" "No elephant: a cron job, and classes that are polled at its period.",
    Messy "messy" "Clocks differ, the log has lost lines, work has heavy tails, jobs of nobody run.",
    Parallel "parallel" "Elephants send several queries side by side.",
    Twin "twin" "Each elephant has a twin that starts, and may end, with it and does nothing.",
    NoneBusy "none_busy" "Small ones use 30 to 55 % of the capacity together.",
}

impl Family {
    /// A family by its name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|family| family.label() == name)
    }

    /// The site of a seed.
    pub(super) fn site(self, seed: u64) -> Site {
        let mut prng = Prng::new(seed.wrapping_mul(1_000_003) ^ ((self as u64) << 40));
        let plan = self.plan();
        let (mut site, elephants) = site(&plan, &mut prng);
        self.change(&mut site, &elephants, &mut prng);
        site
    }

    fn plan(self) -> Plan {
        let plan = Plan::default();
        match self {
            Self::OnsetRate | Self::OnsetCost => after_a_minute(plan),
            Self::Rare => Plan {
                cost: (0.2, 1.5),
                share: (0.1, 0.4),
                elephants: (1, 2),
                ..plan
            },
            Self::LowTraffic => Plan {
                rate: (20.0, 60.0),
                ..plan
            },
            Self::HighTraffic => Plan {
                rate: (1000.0, 2000.0),
                ..plan
            },
            Self::Session | Self::Ajax => Plan {
                rate: (40.0, 400.0),
                ..costing(plan, 0.003, 0.1)
            },
            Self::Lag | Self::Async => costing(plan, 0.01, 0.2),
            Self::Long => Plan {
                cost: (0.3, 1.5),
                share: (0.1, 0.45),
                elephants: (1, 2),
                ..plan
            },
            Self::Saturated => full(plan, 1.3),
            Self::SaturatedPool => full(plan, 1.2),
            Self::NearSat => Plan {
                share: (0.6, 0.67),
                small: Some((0.2, 0.25)),
                ..plan
            },
            Self::ManyEleph => Plan {
                elephants: (4, 6),
                share: (0.35, 0.7),
                ..plan
            },
            Self::ManyClasses => Plan {
                classes: (150, 200),
                ..plan
            },
            Self::HeavyTail => unequal(plan, 1.3),
            Self::Messy => unequal(plan, 1.0),
            Self::Parallel => Plan {
                db_cores: Some(4.0),
                cost: (0.02, 0.4),
                ..plan
            },
            Self::Twin => Plan {
                elephants: (1, 2),
                ..costing(plan, 0.005, 0.2)
            },
            Self::None | Self::NoneFlash | Self::SyncCron => without(plan, (0.1, 0.3)),
            Self::NoneBusy => without(plan, (0.3, 0.55)),
            Self::Steady
            | Self::NoisyBg
            | Self::Periodic
            | Self::Flash
            | Self::Diurnal
            | Self::CacheWarm
            | Self::MultiRes
            | Self::Combination
            | Self::SlowClient
            | Self::Bursty => plan,
        }
    }

    fn change(self, site: &mut Site, elephants: &[u16], prng: &mut Prng) {
        match self {
            Self::OnsetRate => onset(site, elephants, 0.05, 1.0),
            Self::OnsetCost => onset(site, elephants, 1.0, 0.05),
            Self::Session => session(site, elephants, prng),
            Self::Ajax => ajax(site, elephants, prng),
            Self::Lag => lag(site, elephants, prng),
            Self::Long => long(site, elephants, prng),
            Self::Saturated => site.in_flight_max = whole(prng, (60, 250)),
            Self::SaturatedPool => {
                site.in_flight_max = whole(prng, (100, 400));
                site.pool = Some(whole(prng, (4, 24)));
            }
            Self::NoisyBg => wandering(site, prng, (0.1, 0.25)),
            Self::Periodic => periodic(site, elephants, prng),
            Self::Flash | Self::NoneFlash => crowd(site, prng),
            Self::Diurnal => day(site, prng),
            Self::CacheWarm => {
                site.warm_up = Some((between(prng, (1.0, 2.0)), between(prng, (5.0, 12.0))))
            }
            Self::MultiRes => multi_res(site, prng),
            Self::Combination => {
                session(site, elephants, prng);
                crowd(site, prng);
                wandering(site, prng, (0.05, 0.12));
                site.skew = between(prng, (-0.2, 0.2));
            }
            Self::SlowClient => {
                for class in &mut site.classes {
                    class.client = log_between(prng, (0.2, 2.0));
                }
            }
            Self::Async => behind(site, elephants, prng),
            Self::Bursty => bursts(site, prng),
            Self::SyncCron => sync_cron(site, prng),
            Self::Messy => {
                wandering(site, prng, (0.05, 0.15));
                site.skew = between(prng, (-0.2, 0.2));
                site.lost = 0.03;
                for class in &mut site.classes {
                    if prng.unit() < 0.3 {
                        class.client = log_between(prng, (0.05, 0.5));
                    }
                }
            }
            Self::Parallel => {
                for class in elephants {
                    site.classes[usize::from(*class)].parallel = whole(prng, (2, 4)) as u8;
                }
            }
            Self::Twin => twin(site, elephants, prng),
            Self::Steady
            | Self::Rare
            | Self::LowTraffic
            | Self::HighTraffic
            | Self::NearSat
            | Self::ManyEleph
            | Self::ManyClasses
            | Self::HeavyTail
            | Self::None
            | Self::NoneBusy => {}
        }
    }
}

fn after_a_minute(plan: Plan) -> Plan {
    Plan {
        seconds: 90.0,
        onset: 60.0,
        ..plan
    }
}

fn costing(plan: Plan, least: f64, most: f64) -> Plan {
    Plan {
        cost: (least, most),
        ..plan
    }
}

/// More is asked for than there is.
fn full(plan: Plan, most: f64) -> Plan {
    Plan {
        share: (0.85, most),
        small: Some((0.1, 0.3)),
        ..costing(plan, 0.005, 0.2)
    }
}

fn unequal(plan: Plan, sigma: f64) -> Plan {
    Plan {
        noise: Some(Noise::LogNormal(sigma)),
        ..plan
    }
}

fn without(plan: Plan, small: (f64, f64)) -> Plan {
    Plan {
        elephants: (0, 0),
        small: Some(small),
        ..plan
    }
}

fn day(site: &mut Site, prng: &mut Prng) {
    let (period, phase) = (between(prng, (20.0, 60.0)), prng.unit());
    site.traffic = Traffic::Wave {
        period,
        amplitude: 0.7,
        phase,
    };
    site.steady.clear();
}

fn bursts(site: &mut Site, prng: &mut Prng) {
    let (times, length, gap) = (
        between(prng, (3.0, 6.0)),
        between(prng, (0.5, 2.0)),
        between(prng, (3.0, 8.0)),
    );
    site.traffic = Traffic::Bursts { times, length, gap };
}

fn onset(site: &mut Site, elephants: &[u16], rate: f64, work: f64) {
    for class in elephants {
        let at = site.onset;
        site.classes[usize::from(*class)].onset = Some(Onset { at, rate, work });
    }
}

/// Elephants come after a popular page, by and by, and another page follows each.
fn session(site: &mut Site, elephants: &[u16], prng: &mut Prng) {
    for elephant in elephants {
        let rate = rate_of(&site.classes[usize::from(*elephant)]);
        let fits = |class: &usize| rate_of(&site.classes[*class]) > rate;
        let parents: Vec<_> = (0..usize::from(elephants[0])).filter(fits).collect();
        let Some(parent) = (!parents.is_empty()).then(|| parents[prng.below(parents.len())]) else {
            continue;
        };
        let chance = rate / rate_of(&site.classes[parent]);
        let delay = between(prng, (0.5, 2.0));
        let class = parent as u16;
        site.classes[usize::from(*elephant)].comes = Comes::With {
            class,
            chance,
            least: 0.1,
            delay,
            after: true,
        };
        let child = prng.below(usize::from(elephants[0]));
        if child != parent
            && site.classes.iter().all(
                |it| !matches!(it.comes, Comes::With { class, .. } if usize::from(class) == child),
            )
        {
            site.classes[child].comes = Comes::With {
                class: *elephant,
                chance: 0.8,
                least: 0.3,
                delay,
                after: true,
            };
        }
    }
}

/// Each elephant has a page that it is a part of, and three to five other parts.
fn ajax(site: &mut Site, elephants: &[u16], prng: &mut Prng) {
    for elephant in elephants {
        let rate = rate_of(&site.classes[usize::from(*elephant)]);
        let page = site.classes.len() as u16;
        let mut class = plain(prng, rate, None);
        class.db = 1e-4;
        site.classes.push(class);
        let part = Comes::With {
            class: page,
            chance: 1.0,
            least: 0.0,
            delay: 0.01,
            after: false,
        };
        site.classes[usize::from(*elephant)].comes = part;
        for _ in 0..whole(prng, (3, 5)) {
            let mut class = plain(prng, 0.0, None);
            class.comes = part;
            class.db = if prng.unit() < 0.6 { 1e-4 } else { 0.0 };
            site.classes.push(class);
        }
    }
}

fn lag(site: &mut Site, elephants: &[u16], prng: &mut Prng) {
    for elephant in elephants {
        let class = &mut site.classes[usize::from(*elephant)];
        let wait = between(prng, (0.3, 1.2));
        match prng.unit() < 0.5 {
            true => class.wait_before = wait,
            false => class.wait_after = wait,
        }
    }
}

fn long(site: &mut Site, elephants: &[u16], prng: &mut Prng) {
    for elephant in elephants {
        let class = &mut site.classes[usize::from(*elephant)];
        class.rounds = whole(prng, (6, 15)) as u8;
        class.wait_before = between(prng, (2.0, 6.0)) / f64::from(class.rounds);
    }
}

fn wandering(site: &mut Site, prng: &mut Prng, share: (f64, f64)) {
    let work = log_between(prng, (0.002, 0.05));
    let rate = between(prng, share) * site.db_cores / work;
    let lasts = between(prng, (2.0, 8.0));
    site.background
        .push(Background::Wandering { rate, work, lasts });
}

fn periodic(site: &mut Site, elephants: &[u16], prng: &mut Prng) {
    for elephant in elephants {
        let class = &mut site.classes[usize::from(*elephant)];
        let used = class.db * rate_of(class);
        let period = between(prng, (1.0, 4.0));
        class.db = used * period;
        class.comes = Comes::Every {
            period,
            jitter: between(prng, (0.08, 0.25)) * period,
            phase: prng.unit() * period,
        };
    }
}

fn crowd(site: &mut Site, prng: &mut Prng) {
    let used: f64 = site
        .classes
        .iter()
        .map(|class| class.db * rate_of(class))
        .sum::<f64>()
        / site.db_cores;
    // As many as the database bears.
    let small: f64 = (0..site.classes.len() as u16)
        .filter(|class| !site.steady.contains(class))
        .map(|class| {
            site.classes[usize::from(class)].db * rate_of(&site.classes[usize::from(class)])
        })
        .sum::<f64>()
        / site.db_cores;
    let most = 1.0 + (0.95 - used).max(0.1) / small.max(0.01);
    let times = between(prng, (3.0, 6.0)).min(most.max(1.5));
    let (at, length) = (between(prng, (8.0, 20.0)), between(prng, (5.0, 10.0)));
    site.traffic = Traffic::Crowd { at, length, times };
}

fn multi_res(site: &mut Site, prng: &mut Prng) {
    site.all_tiers = true;
    let rate: f64 = site.classes.iter().map(rate_of).sum();
    let share = between(prng, (0.1, 0.4));
    let cost = log_between(prng, (0.01, 0.1)).max(share * site.web_cores / (0.3 * rate));
    let mut class = plain(prng, share * site.web_cores / cost, None);
    class.web = cost;
    site.steady.push(site.classes.len() as u16);
    site.classes.push(class);
    let share = between(prng, (0.1, 0.4));
    let cost = log_between(prng, (0.01, 0.1)).max(share / (0.3 * rate));
    let mut class = plain(prng, share / cost, None);
    class.disk = cost;
    site.steady.push(site.classes.len() as u16);
    site.classes.push(class);
}

fn behind(site: &mut Site, elephants: &[u16], prng: &mut Prng) {
    for elephant in elephants {
        let from = between(prng, (0.1, 0.4));
        let to = from + between(prng, (0.05, 0.4));
        site.classes[usize::from(*elephant)].behind = Some((from, to));
    }
}

/// A cron job, and two or three classes at its very period: half of them at its phase.
fn sync_cron(site: &mut Site, prng: &mut Prng) {
    let period = between(prng, (2.0, 6.0));
    let phase = prng.unit() * period;
    let work = between(prng, (0.08, 0.25)) * period * site.db_cores;
    site.background.push(Background::Cron {
        period,
        phase,
        work,
    });
    for _ in 0..whole(prng, (2, 3)) {
        let mut class = plain(prng, 0.0, None);
        let late = match prng.unit() < 0.5 {
            true => between(prng, (0.0, 0.1)),
            false => prng.unit() * period,
        };
        class.comes = Comes::Every {
            period,
            jitter: 0.01,
            phase: phase + late,
        };
        class.wait_after = between(prng, (0.01, 0.3));
        site.classes.push(class);
    }
}

/// Half of the twins end with their elephant, half have a life of their own.
fn twin(site: &mut Site, elephants: &[u16], prng: &mut Prng) {
    for elephant in elephants {
        let mut class = plain(prng, 0.0, None);
        match prng.unit() < 0.5 {
            true => class.comes = Comes::Twin { of: *elephant },
            false => {
                class.comes = Comes::With {
                    class: *elephant,
                    chance: 1.0,
                    least: 0.0,
                    delay: 0.005,
                    after: false,
                };
                class.wait_after = log_between(prng, (0.02, 0.5));
            }
        }
        site.classes.push(class);
    }
}
