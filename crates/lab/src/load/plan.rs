//! What load is wanted: plain data, the same as JSON between the lab and its generator.
//!
//! Limits: [`TARGETS_MAX`], [`STREAMS_MAX`], [`REQUESTS_MAX`] and the others below; a plan beyond
//! them is refused before anything is sent.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::walk::Walk;

/// Front-ends at most.
const TARGETS_MAX: usize = 1024;
/// Streams at most.
const STREAMS_MAX: usize = 256;
/// Requests that the open loops of one plan may want: they are drawn beforehand.
const REQUESTS_MAX: f64 = 4_000_000.0;
/// Clients of all closed loops together.
const CLIENTS_MAX: u32 = 10_000;
/// Longest run.
const LENGTH_MAX: Duration = Duration::from_secs(24 * 3600);
/// Windows of one stream at most.
const WINDOWS_MAX: u64 = 200_000;
/// Files of a set at most.
const FILES_MAX: u32 = 10_000_000;
/// A dead front-end is not a reason to spin.
const REST: Duration = Duration::from_millis(10);
/// Shortest part of [`Arrivals::Steps`].
const STEP_MIN: Duration = Duration::from_millis(1);

/// A load: which addresses are asked, for what, how often and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadPlan {
    /// Front-ends; each request goes to one of them at random.
    pub targets: Vec<SocketAddr>,
    /// What is sent, one entry per site and manner.
    pub streams: Vec<Stream>,
    /// Before anything counts.
    pub warm_up: Duration,
    /// What is measured, after the warm-up.
    pub length: Duration,
    /// Everything random follows from it.
    pub seed: u64,
    /// After its intended start a request may take this long; then it is a failure.
    pub timeout: Duration,
    /// Length of one window of the time series; none: no series.
    pub windows: Option<Duration>,
    /// A new connection for every request instead of kept ones.
    pub connection_per_request: bool,
    /// Answers are also counted by the value of this response header (which node it was).
    pub count_by: Option<String>,
    /// Numbers in this response header are added up, by page where clients walk.
    pub sum_by: Option<String>,
    /// Answers within this time are counted in each window of the series; none: they are not.
    pub slo: Option<Duration>,
    /// A client of a closed loop rests so long after a refusal or a failure.
    pub rest: Duration,
}

impl Default for LoadPlan {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            streams: Vec::new(),
            warm_up: Duration::from_secs(1),
            length: Duration::from_secs(5),
            seed: 1,
            timeout: Duration::from_secs(10),
            windows: None,
            connection_per_request: false,
            count_by: None,
            sum_by: None,
            slo: None,
            rest: REST,
        }
    }
}

/// The requests to one site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// The site: the requests' Host header.
    pub site: String,
    /// When they are sent.
    pub pacing: Pacing,
    /// What they ask for.
    pub requests: Requests,
    /// A header that each of them carries, name and value.
    #[serde(default)]
    pub header: Option<(String, String)>,
}

/// When requests are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// Whether or not the last one was answered.
    Open {
        /// Requests per second on the average over warm-up and length; of steps, the low rate.
        rate: f64,
        /// How they are spread over the time.
        arrivals: Arrivals,
    },
    /// Each client waits for its answer, thinks and asks again.
    Closed {
        /// How many.
        clients: u32,
        /// Mean of the exponential think time; zero: none.
        think: Duration,
    },
}

/// How the requests of an open loop are spread over the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Exponential gaps.
    Poisson,
    /// Equal gaps.
    Paced,
    /// Bursts of `length` requests, each in its turn of `of`: in a cycle of `length / rate`
    /// seconds this stream has the slot `turn`, and is silent in the others'. Streams of one rate
    /// and length, with turns 0, 1, 2 …, make bursts to one site after the other.
    Bursts {
        /// Requests of one burst.
        length: u32,
        /// This stream's place among those that take turns, from 0.
        turn: u32,
        /// How many take turns.
        of: u32,
    },
    /// Exponential gaps at the rate for a time, at a percentage of it for another, and again.
    Steps {
        /// How long at the rate itself: it begins so.
        low: Duration,
        /// How long at the other one.
        high: Duration,
        /// The other one, percent of the rate.
        percent: u32,
    },
    /// As those of the World Cup's site on one evening of 1998: 105 minutes, pressed into the run.
    WorldCup,
    /// As those of NASA's site on one night of 1995: 220 minutes, pressed into the run.
    Nasa,
}

/// What requests ask for. Paths are templates: `{file}` is the file's number, `{bytes}` and
/// `{cpu}` its size in bytes and cost in microseconds, `{n}` the request's number in its stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requests {
    /// Always the same.
    Single {
        /// Its path.
        path: String,
    },
    /// Files of unequal popularity: the k-th of them is asked for in proportion to k^-alpha.
    Zipf {
        /// Skew, 0 (all alike) and up.
        alpha: f64,
        /// How many files.
        files: u32,
        /// Template.
        path: String,
        /// How large a file is. A file has the same size in every run of one seed.
        size: Size,
        /// What it costs, microseconds of CPU time; likewise fixed per file.
        cost: Size,
    },
    /// The files and sizes of the NASA log in its order, or of its shape.
    Nasa {
        /// Template; `{file}` is the rank of the URL in the log.
        path: String,
        /// What a file costs, microseconds of CPU time.
        cost: Size,
    },
    /// Several paths by their weights, drawn anew for each request.
    Mix(Vec<Mix>),
    /// Pages of a site, each client going from one to the next: closed loops only.
    Walk(Walk),
}

impl Requests {
    /// Files of one size and cost.
    pub fn zipf(alpha: f64, files: u32, path: &str) -> Self {
        Self::Zipf {
            alpha,
            files,
            path: path.to_owned(),
            size: Size::fixed(1024.0),
            cost: Size::fixed(1000.0),
        }
    }

    /// Files as those of the World Cup's site: as many objects as its table has, log-normal sizes
    /// with its mean of about 2.6 kB. Popularity and sizes are modelled, see [`LoadResult::said`].
    ///
    /// [`LoadResult::said`]: super::LoadResult::said
    pub fn world_cup(path: &str, cost: Size) -> Self {
        Self::Zipf {
            alpha: 0.8,
            files: 89_997,
            path: path.to_owned(),
            size: Size {
                mean: 2600.0,
                spread: Spread::LogNormal { cv: 2.0 },
            },
            cost,
        }
    }
}

/// One kind of request among several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// How often, relative to the others.
    pub weight: f64,
    /// Template.
    pub path: String,
    /// For `{bytes}`.
    pub size: Size,
    /// For `{cpu}`, microseconds.
    pub cost: Size,
}

/// A random amount.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Its mean.
    pub mean: f64,
    /// How it scatters about it.
    pub spread: Spread,
}

impl Size {
    /// Always the same amount.
    pub const fn fixed(mean: f64) -> Self {
        Self {
            mean,
            spread: Spread::Fixed,
        }
    }
}

/// How a random amount scatters about its mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Not at all.
    Fixed,
    /// Exponential.
    Exponential,
    /// Log-normal.
    LogNormal {
        /// Standard deviation over mean.
        cv: f64,
    },
    /// A share of them is so many times as large as the others.
    Bimodal {
        /// Share of the large ones, 0 to 1.
        share: f64,
        /// Their size relative to the others'.
        ratio: f64,
    },
}

impl LoadPlan {
    /// From the first intended start to the last one.
    pub fn total(&self) -> Duration {
        self.warm_up + self.length
    }

    /// What is wrong with it, as a sentence.
    pub(super) fn check(&self) -> Result<(), String> {
        within("number of targets", self.targets.len(), 1, TARGETS_MAX)?;
        within("number of streams", self.streams.len(), 1, STREAMS_MAX)?;
        if self.length.is_zero() || self.total() > LENGTH_MAX {
            return Err(format!(
                "the length must be above zero and at most {LENGTH_MAX:?}"
            ));
        }
        if self.timeout.is_zero() {
            return Err("the time-out must be above zero".to_owned());
        }
        if let Some(window) = self.windows {
            let windows = self.total().as_nanos() / window.as_nanos().max(1);
            if window.is_zero() || windows > u128::from(WINDOWS_MAX) {
                return Err(format!("a run has at most {WINDOWS_MAX} windows"));
            }
        }
        self.streams.iter().try_for_each(Stream::check)?;
        let (requests, clients) = self.size();
        if requests > REQUESTS_MAX {
            return Err(format!(
                "{requests:.0} requests are wanted, at most {REQUESTS_MAX:.0} can be"
            ));
        }
        within("number of clients", clients, 0, u64::from(CLIENTS_MAX))
    }

    /// Requests of all open loops and clients of all closed ones.
    fn size(&self) -> (f64, u64) {
        let total = self.total().as_secs_f64();
        let mut size = (0.0, 0);
        for stream in &self.streams {
            match stream.pacing {
                Pacing::Open { rate, arrivals } => size.0 += rate * arrivals.greatest() * total,
                Pacing::Closed { clients, .. } => size.1 += u64::from(clients),
            }
        }
        size
    }
}

impl Pacing {
    /// Clients of a closed loop; an open one has none.
    #[must_use]
    pub fn clients(&self) -> u32 {
        match self {
            Self::Closed { clients, .. } => *clients,
            Self::Open { .. } => 0,
        }
    }
}

impl Arrivals {
    /// The greatest rate over the given one.
    fn greatest(self) -> f64 {
        match self {
            Self::Steps { percent, .. } => f64::from(percent.max(100)) / 100.0,
            Self::Poisson | Self::Paced | Self::Bursts { .. } | Self::WorldCup | Self::Nasa => 1.0,
        }
    }
}

impl Stream {
    fn check(&self) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("stream {:?}: {what}", self.site));
        match self.pacing {
            Pacing::Open { rate, .. } if !(rate.is_finite() && rate > 0.0) => {
                return wrong("the rate must be a number above zero");
            }
            Pacing::Open {
                arrivals: Arrivals::Bursts { length, turn, of },
                ..
            } if length == 0 || turn >= of => {
                return wrong("a burst has at least one request, and its turn is below `of`");
            }
            Pacing::Open {
                arrivals: Arrivals::Steps { low, high, percent },
                ..
            } if low.min(high) < STEP_MIN || percent == 0 => {
                return wrong("each part of steps lasts a millisecond at least, at some rate");
            }
            Pacing::Closed { clients: 0, .. } => return wrong("there must be a client"),
            Pacing::Open { .. } | Pacing::Closed { .. } => {}
        }
        match &self.requests {
            Requests::Zipf { alpha, files, .. } => {
                if !(alpha.is_finite() && *alpha >= 0.0) {
                    return wrong("alpha must be a number from zero up");
                }
                if !(1..=FILES_MAX).contains(files) {
                    return wrong("the number of files is out of range");
                }
            }
            Requests::Mix(mix) => {
                let weights = mix.iter().map(|it| it.weight);
                if !weights.clone().all(|it| it.is_finite() && it >= 0.0)
                    || weights.sum::<f64>() <= 0.0
                {
                    return wrong("weights must be numbers from zero up, one of them above");
                }
            }
            Requests::Walk(_) if matches!(self.pacing, Pacing::Open { .. }) => {
                return wrong("who walks waits for answers: a walk needs a closed loop");
            }
            Requests::Walk(walk) => return walk.check().or_else(|why| wrong(&why)),
            Requests::Single { .. } | Requests::Nasa { .. } => {}
        }
        Ok(())
    }
}

fn within<T: PartialOrd + std::fmt::Display>(
    what: &str,
    value: T,
    least: T,
    most: T,
) -> Result<(), String> {
    if value < least || value > most {
        return Err(format!("{what}: {value} is not within {least} to {most}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> LoadPlan {
        LoadPlan {
            targets: vec!["127.0.0.1:80".parse().unwrap()],
            streams: vec![Stream {
                site: "shop".to_owned(),
                pacing: Pacing::Open {
                    rate: 100.0,
                    arrivals: Arrivals::Bursts {
                        length: 64,
                        turn: 1,
                        of: 3,
                    },
                },
                requests: Requests::zipf(0.9, 1000, "/work?file={file}"),
                header: Some(("x-class".to_owned(), "3".to_owned())),
            }],
            windows: Some(Duration::from_millis(50)),
            ..LoadPlan::default()
        }
    }

    #[test]
    fn a_plan_is_the_same_after_json() {
        let text = serde_json::to_string(&plan()).unwrap();
        let back: LoadPlan = serde_json::from_str(&text).unwrap();
        assert_eq!(back, plan());
        assert_eq!(back.check(), Ok(()));
    }

    type Spoil = fn(&mut LoadPlan);

    fn steps(percent: u32, millis: u64) -> Pacing {
        Pacing::Open {
            rate: 1.0,
            arrivals: Arrivals::Steps {
                low: Duration::from_millis(millis),
                high: Duration::from_secs(1),
                percent,
            },
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_sentence() {
        let cases: [(Spoil, &str); 9] = [
            (|it| it.targets.clear(), "targets"),
            (|it| it.streams.clear(), "streams"),
            (|it| it.length = Duration::ZERO, "length"),
            (|it| it.timeout = Duration::ZERO, "time-out"),
            (|it| it.windows = Some(Duration::from_nanos(1)), "windows"),
            (
                |it| {
                    it.streams[0].pacing = Pacing::Closed {
                        clients: 0,
                        think: Duration::ZERO,
                    };
                },
                "client",
            ),
            (
                |it| {
                    it.streams[0].pacing = Pacing::Open {
                        rate: 1e9,
                        arrivals: Arrivals::Paced,
                    };
                },
                "requests are wanted",
            ),
            (|it| it.streams[0].pacing = steps(1000, 0), "some rate"),
            (
                |it| it.streams[0].pacing = steps(1_000_000_000, 1),
                "requests are wanted",
            ),
        ];
        for (spoil, word) in cases {
            let mut plan = plan();
            spoil(&mut plan);
            let sentence = plan.check().unwrap_err();
            assert!(sentence.contains(word), "{sentence}");
        }
    }
}
