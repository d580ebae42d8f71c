//! `discovery`: what a source of servers that lies, flaps and hangs does to requests.
//!
//! ```text
//! 0 s      4         8       12        16      20       24      28            32 s
//! right    silent    empty   garbage   few     false    flaps   others        end
//! 1 to 6   no answer none    no sense  1 of 6  6 and 3  3 and 3 3 to 8
//! ```
//!
//! All servers serve all the time: nothing but the source is wrong. *False* adds three addresses where nothing listens,
//! *flaps* names the first and the last three in turn each second, and *others* is right again: two servers were taken
//! out and two are new.
//!
//! * **failed**: requests without a right answer, refusals included; also by phase.
//! * **follow**: from the beginning of *others* until both new servers have worked; the whole phase if they never do.
//! * **candidates**: the fewest servers that Tidegate sent requests to at any time. `max_drop` lets two of six go at once.
//!
//! The source is a file, a name server (`name_server.rs`) with a TTL of a second, or the API of Kubernetes or Consul
//! (`api_server.rs`). HAProxy has the same name by `server-template` and `resolvers` that ask each second, with all `hold`
//! times as by default.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use crate::cluster::Cluster;
use crate::front::{self, Discovered, FrontEnd, Site};
use crate::load::{Arrivals, LoadPlan, LoadResult, Pacing, Requests, Stream};
use crate::results::Axis;

use super::super::judge::{at_least, at_most, median};
use super::super::measured::Measured;
use super::super::report::{ExperimentFindings, Sketch};
use super::super::{Experiment, ExperimentError, Lab, Scale, arms};
use super::super::{drive, plan::Arm};
use super::api_server::{Api, ApiServer};
use super::name_server::NameServer;
use super::reply::Reply;
use super::{Changed, ChangesExperiment, Figures, WARM_UP, estimated, haproxy, load_figures};

/// See the module.
pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "discovery",
    about: "what requests lose while the source of servers (a file, a name server, an API) hangs, lies and flaps",
    source: "design goals",
    needs: "namespaces (root); haproxy for its arm",
    estimate,
    run: |lab| CHANGES.carry_out(lab),
    plan: None,
};

const BY_FILE: &str = "auto, file";
const BY_DNS: &str = "auto, dns";
const BY_KUBERNETES: &str = "auto, kubernetes";
const BY_CONSUL: &str = "auto, consul";
const HAPROXY_DNS: &str = "haproxy, dns";

const SITE: &str = "shop";
/// Requests per second; six servers bear about 1000, and one about 170.
const RATE: f64 = 100.0;
const TIMEOUT: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_millis(100);
/// Between two looks at the source and at the servers.
const LOOK: Duration = Duration::from_millis(20);
/// Between two looks at how many servers get requests.
const COUNT: Duration = Duration::from_millis(200);
/// How long a source that flaps stays as it is.
const FLAP: Duration = Duration::from_secs(1);
/// Where nothing listens: behind the nodes in their network.
const NOWHERE: [u8; 3] = [201, 202, 203];
/// Servers that a source which lies must leave: `max_drop` is a third of six.
const LEFT: f64 = 4.0;
/// CPU time after which a server has worked.
const WORKED: Duration = Duration::from_millis(2);
/// What the source does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Right,
    Silent,
    Empty,
    Garbage,
    Few,
    False,
    Flaps,
    Others,
}

const PHASES: [Phase; 8] = [
    Phase::Right,
    Phase::Silent,
    Phase::Empty,
    Phase::Garbage,
    Phase::Few,
    Phase::False,
    Phase::Flaps,
    Phase::Others,
];

impl Phase {
    /// The servers that are named so long after the phase began; `Err` is how there are none.
    fn named(self, since: Duration) -> Result<Vec<Named>, NoAnswer> {
        let nodes = |range: std::ops::Range<usize>| range.map(Named::Node).collect();
        Ok(match self {
            Self::Right => nodes(0..6),
            Self::Silent => return Err(NoAnswer::Silence),
            Self::Empty => return Err(NoAnswer::Empty),
            Self::Garbage => return Err(NoAnswer::Garbage),
            Self::Few => nodes(0..1),
            Self::False => {
                let nowhere = NOWHERE.map(Named::Nowhere);
                (0..6).map(Named::Node).chain(nowhere).collect()
            }
            Self::Flaps => match since.as_nanos() / FLAP.as_nanos() % 2 {
                0 => nodes(0..3),
                _ => nodes(3..6),
            },
            Self::Others => nodes(2..8),
        })
    }

    /// What is lost meanwhile.
    fn metric(self) -> &'static str {
        match self {
            Self::Right => "right_failed",
            Self::Silent => "silent_failed",
            Self::Empty => "empty_failed",
            Self::Garbage => "garbage_failed",
            Self::Few => "few_failed",
            Self::False => "false_failed",
            Self::Flaps => "flaps_failed",
            Self::Others => "others_failed",
        }
    }
}

/// What a source names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Node(usize),
    /// The last part of an address without a server.
    Nowhere(u8),
}

/// How a source names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoAnswer {
    Silence,
    Empty,
    Garbage,
}

fn each(scale: Scale) -> Duration {
    scale.pick(Duration::from_millis(1500), Duration::from_secs(4))
}

fn length(scale: Scale) -> Duration {
    each(scale) * PHASES.len() as u32
}

fn all() -> Vec<Changed> {
    let kind = || arms::blind("auto").kind;
    let named = |mut changed: Changed, name: &str| {
        changed.arm = Arm {
            name: name.into(),
            ..changed.arm
        };
        changed
    };
    vec![
        named(Changed::never(kind()), BY_FILE),
        named(Changed::never(kind()), BY_DNS),
        named(Changed::never(kind()), BY_KUBERNETES),
        named(Changed::never(kind()), BY_CONSUL),
        named(haproxy(), HAPROXY_DNS),
    ]
}

fn estimate(scale: Scale) -> Duration {
    estimated(&all(), length(scale))
}

const CHANGES: ChangesExperiment = ChangesExperiment {
    experiment: &EXPERIMENT,
    agents: &[],
    arms: all,
    run: one,
    findings,
};

/// The source of an arm.
enum Source {
    File(PathBuf),
    Dns(NameServer),
    Api(Api, ApiServer),
}

/// A source among the cluster's nodes.
struct Told<'a> {
    cluster: &'a Cluster,
    source: Source,
    said: Option<Result<Vec<Named>, NoAnswer>>,
}

impl Told<'_> {
    /// Has it name these, if it does not already.
    fn say(&mut self, named: Result<Vec<Named>, NoAnswer>) -> Result<(), ExperimentError> {
        if self.said.as_ref() == Some(&named) {
            return Ok(());
        }
        match &self.source {
            Source::File(path) => {
                let unfit = |error: io::Error| ExperimentError::Unfit(format!("the file: {error}"));
                self.write(path, &named).map_err(unfit)?;
            }
            Source::Dns(server) => server.order(self.reply(&named)),
            Source::Api(_, server) => server.order(self.reply(&named)),
        }
        self.said = Some(named);
        Ok(())
    }

    fn reply(&self, named: &Result<Vec<Named>, NoAnswer>) -> Reply {
        match named {
            Ok(named) => Reply::Addresses(named.iter().map(|it| self.address(*it)).collect()),
            Err(NoAnswer::Silence) => Reply::Silence,
            Err(NoAnswer::Empty) => Reply::Empty,
            Err(NoAnswer::Garbage) => Reply::Garbage,
        }
    }

    /// How a front-end finds it.
    fn discovered(&self) -> io::Result<Discovered> {
        Ok(match &self.source {
            Source::File(path) => Discovered::File(path.clone()),
            Source::Dns(server) => Discovered::Dns {
                server: server.address(),
                port: self.port(),
            },
            Source::Api(Api::Kubernetes, server) => {
                let token = self.cluster.folder().join("token");
                fs::write(&token, "secret")?;
                Discovered::Kubernetes {
                    server: server.address(),
                    token,
                }
            }
            Source::Api(Api::Consul, server) => Discovered::Consul {
                server: server.address(),
            },
        })
    }

    fn write(&self, path: &PathBuf, named: &Result<Vec<Named>, NoAnswer>) -> io::Result<()> {
        let port = self.port();
        let text = match named {
            Err(NoAnswer::Silence) => return fs::remove_file(path),
            Err(NoAnswer::Empty) => "[]".into(),
            Err(NoAnswer::Garbage) => "[{]".into(),
            Ok(named) => {
                let nodes = named
                    .iter()
                    .map(|it| format!("{}:{port}", self.address(*it)));
                json!([{ "targets": nodes.collect::<Vec<_>>() }]).to_string()
            }
        };
        let new = path.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(new, path)
    }

    fn port(&self) -> u16 {
        self.cluster.nodes()[0].address.port()
    }

    fn address(&self, named: Named) -> Ipv4Addr {
        let of = |node: usize| match self.cluster.nodes()[node].address.ip() {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        match named {
            Named::Node(node) => of(node),
            Named::Nowhere(last) => {
                let [a, b, c, _] = of(0).octets();
                Ipv4Addr::new(a, b, c, last)
            }
        }
    }
}

/// One run of an arm.
fn one(lab: &Lab, cluster: &Cluster, changed: &Changed) -> Result<Figures, ExperimentError> {
    let place = cluster.front();
    let mut told = Told {
        source: source(&changed.arm.name, cluster)?,
        cluster,
        said: None,
    };
    told.say(Phase::Right.named(Duration::ZERO))?;
    let unfit = |error: io::Error| ExperimentError::Unfit(format!("the source: {error}"));
    let site = Site {
        name: SITE.into(),
        servers: Vec::new(),
        discovered: Some(told.discovered().map_err(unfit)?),
    };
    let mut front = front::start_to_change(place, &changed.arm.kind, vec![site], cluster)?;
    let running = drive::run_load(cluster, &load(lab.scale, &front))?;
    let begin = clock::now() + WARM_UP;
    let seen = course(&mut told, &front, begin, each(lab.scale))?;
    let result = running.wait()?;
    if let Some(why) = front.ended() {
        return Err(ExperimentError::Unfit(why));
    }
    Ok(figures(&result, &seen, each(lab.scale)))
}

fn source(arm: &str, cluster: &Cluster) -> Result<Source, ExperimentError> {
    let place = cluster.front();
    let port = cluster.nodes()[0].address.port();
    let api = |api| {
        let server = ApiServer::start(place, api, port, Reply::Silence)?;
        Ok(Source::Api(api, server))
    };
    match arm {
        BY_FILE => Ok(Source::File(cluster.folder().join("discovered.json"))),
        BY_KUBERNETES => api(Api::Kubernetes),
        BY_CONSUL => api(Api::Consul),
        _ => Ok(Source::Dns(NameServer::start(place, Reply::Silence)?)),
    }
}

/// What was seen of a course.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CourseFigures {
    /// How long the last phase took to be followed.
    follow: Duration,
    /// Fewest servers that got requests, of a front-end that says so.
    candidates: Option<f64>,
}

/// Takes the source through its phases.
fn course(
    told: &mut Told<'_>,
    front: &FrontEnd,
    begin: Timestamp,
    each: Duration,
) -> Result<CourseFigures, ExperimentError> {
    let new = |cluster: &Cluster| [6, 7].map(|node| cluster.cpu_time(node));
    let mut follow = None;
    let mut candidates: Option<f64> = None;
    let mut count_due = begin;
    let mut before = new(told.cluster);
    for (index, phase) in PHASES.into_iter().enumerate() {
        let start = begin + each * index as u32;
        let mut due = start;
        while due < start + each {
            clock::sleep_until(due);
            let since = clock::now().since(start);
            told.say(phase.named(since))?;
            if due >= count_due {
                let now = front.candidates(told.cluster.front(), SITE)?;
                candidates = candidates.into_iter().chain(now).reduce(f64::min);
                count_due = due + COUNT;
            }
            if phase == Phase::Others {
                let used = new(told.cluster).into_iter().zip(before);
                let both = used
                    .into_iter()
                    .all(|(now, then)| now.saturating_sub(then) > WORKED);
                follow = follow.or_else(|| both.then_some(since));
            } else {
                before = new(told.cluster);
            }
            due = due + LOOK;
        }
    }
    Ok(CourseFigures {
        follow: follow.unwrap_or(each),
        candidates,
    })
}

fn figures(result: &LoadResult, seen: &CourseFigures, each: Duration) -> Figures {
    let total = result.total();
    let mut table = load_figures(&total);
    table.push(("follow_ms", seen.follow.as_secs_f64() * 1e3));
    table.extend(seen.candidates.map(|count| ("candidates", count)));
    let series = result.streams.iter().flat_map(|stream| &stream.series);
    let series: Vec<_> = series.collect();
    for (index, phase) in PHASES.into_iter().enumerate() {
        let within = |at: f64| (at / each.as_secs_f64()).floor() as usize == index;
        let here = series.iter().filter(|it| it.at >= 0.0 && within(it.at));
        let lost: u64 = here.map(|it| it.failed).sum();
        table.push((phase.metric(), lost as f64));
    }
    let raw =
        json!({ "errors": total.errors, "refused": total.refused, "generator": result.generator });
    Figures::plain(table, raw)
}

fn load(scale: Scale, front: &FrontEnd) -> LoadPlan {
    LoadPlan {
        targets: vec![front.address],
        streams: vec![Stream {
            site: SITE.into(),
            pacing: Pacing::Open {
                rate: RATE,
                arrivals: Arrivals::Poisson,
            },
            requests: Requests::Single {
                path: "/work?cpu=400us&bytes=1024".into(),
            },
            header: None,
        }],
        warm_up: WARM_UP,
        length: length(scale),
        timeout: TIMEOUT,
        windows: Some(WINDOW),
        ..LoadPlan::default()
    }
}

fn findings(measured: &Measured, _scale: Scale) -> ExperimentFindings {
    let table = &measured.table;
    let failed = |arm: &str| median(table, arm, "failed");
    let ours = [BY_FILE, BY_DNS, BY_KUBERNETES, BY_CONSUL];
    let goals = ours.into_iter().chain([HAPROXY_DNS]);
    let lost = goals
        .clone()
        .map(|arm| at_most(format!("requests lost, {arm}"), failed(arm), 0.0));
    let follow = goals.map(|arm| {
        let follow = median(table, arm, "follow_ms");
        at_most(
            format!("time to follow the source when it is right again, {arm}, ms"),
            follow,
            3000.0,
        )
    });
    let left = ours.map(|arm| {
        let fewest = median(table, arm, "candidates");
        at_least(
            format!("fewest servers that got requests, {arm}"),
            fewest,
            LEFT,
        )
    });
    let groups = PHASES.map(|phase| {
        let metric = phase.metric();
        (
            metric.trim_end_matches("_failed").to_owned(),
            metric.to_owned(),
        )
    });
    ExperimentFindings {
        paper: BTreeMap::new(),
        verdicts: lost.chain(follow).chain(left).collect(),
        notes: vec![format!(
            "An open loop of {RATE:.0} requests/s; one of the eight servers bears more. A request that ends in a phase counts for it."
        )],
        plots: vec![Sketch::Bars {
            title: "Requests lost by what the source does".into(),
            groups: groups.into(),
            y: Axis::from_zero("requests"),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_flaps_names_the_halves_in_turn() {
        let named = |ms| Phase::Flaps.named(Duration::from_millis(ms)).unwrap();
        assert_eq!(named(900), [0, 1, 2].map(Named::Node));
        assert_eq!(named(1000), [3, 4, 5].map(Named::Node));
        assert_eq!(named(2000), named(0));
    }

    #[test]
    fn what_is_lost_counts_for_the_phase_in_which_it_ends() {
        let window = |at, failed| crate::load::Window {
            at,
            failed,
            ..Default::default()
        };
        let stream = crate::load::StreamResult {
            series: vec![
                window(-0.5, 9),
                window(3.9, 1),
                window(4.0, 2),
                window(31.9, 3),
            ],
            ..Default::default()
        };
        let result = LoadResult {
            streams: vec![stream],
            ..LoadResult::default()
        };
        let seen = CourseFigures {
            follow: Duration::ZERO,
            candidates: Some(4.0),
        };
        let figures = figures(&result, &seen, Duration::from_secs(4));
        let of = |name| figures.table.iter().find(|it| it.0 == name).unwrap().1;
        assert_eq!(of("right_failed"), 1.0);
        assert_eq!(of("silent_failed"), 2.0);
        assert_eq!(of("others_failed"), 3.0);
        assert_eq!(of("empty_failed"), 0.0);
    }
}
