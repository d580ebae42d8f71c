//! `slbl-reaction`: from the moment when a server has used up its file descriptors to the last request that is sent there.
//!
//! ```text
//! used up     as many files open in the server's process as it may have, as /proc shows them
//! misrouted   sent to that server between then and the end of the starving, a second later
//! reaction    from used up to the last misrouted one's last try; 0 if there is none
//! ```
//!
//! By the front-end's access log, whose times are those of the request's head and of its last try. A request that was tried more
//! than once counts as misrouted: its first try may have gone there. Each run starves one server once, before a front-end
//! that has just started: one that is over its limit again soon stays out for longer.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_core::stats::quantile_of_sorted;
use tidegate_remote::clock;

use crate::cluster::{Cluster, ClusterError, Node};
use crate::experiments::arms::{AUTO, BESIDE, FRESH};
use crate::experiments::judge::{Table, at_most, rounds};
use crate::experiments::plan::{Arm, Plan, Point, Stage};
use crate::experiments::report::{ExperimentFindings, report};
use crate::experiments::runner::{Run, RunHook, Runner};
use crate::experiments::{Experiment, ExperimentError, Lab, Scale};
use crate::front::{ACCESS_LOG, FrontKind, TidegateArm};
use crate::load::{LoadResult, Size, Stream};
use crate::results::Report;

use super::{FILES, SERVERS, SHARE, SLBL, arriving, cluster, requests};

/// See the module.
pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "slbl-reaction",
    about: "from the moment when a server's file descriptors are used up to the last request that is sent there",
    source: "SLBL-ARPN §7; design goals",
    needs: "namespaces (root)",
    estimate: |scale| plan(scale).estimate(),
    run,
    plan: Some(plan),
};

const REACTION: &str = "reaction_ms";
const MISROUTED: &str = "misrouted";
/// Milliseconds at the 99th percentile.
const GOAL: f64 = 20.0;
/// Requests per second: one each 8 ms at a server.
const OFFERED: f64 = 600.0;
/// CPU microseconds of a request.
const COST: f64 = 300.0;
const WARM_UP: Duration = Duration::from_millis(500);
/// From the begin of the load until a server is starved.
const CALM: Duration = Duration::from_millis(800);
const STARVED_FOR: Duration = Duration::from_secs(1);
/// Until the log has what was asked for last.
const LENGTH: Duration = Duration::from_millis(2500);
/// Longest wait for the descriptors to be used up.
const USED_UP_MAX: Duration = Duration::from_millis(500);

fn plan(scale: Scale) -> Plan {
    let arm = |policy| {
        let arm = TidegateArm::reading(policy, policy, BESIDE, FRESH).logging();
        Arm::of(FrontKind::Tidegate(arm))
    };
    let stream = Stream {
        requests: requests(Size::fixed(COST)),
        ..arriving(OFFERED)
    };
    let point = Point {
        settle: Duration::ZERO,
        timeout: Duration::from_secs(2),
        ..Point::single(String::new(), stream, WARM_UP, LENGTH)
    };
    Plan {
        stages: vec![Stage::new(cluster(SERVERS, SHARE), vec![point])],
        arms: vec![arm(SLBL), arm(AUTO)],
        rounds: scale.pick(2, 30),
    }
}

/// Starves a server and reads the log.
#[derive(Debug, Default)]
struct Starving {
    /// Of the last run.
    seen: Reaction,
}

/// What followed once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Reaction {
    /// From used up to the last misrouted request, milliseconds.
    millis: f64,
    misrouted: u32,
}

/// What is read of a line of the log.
#[derive(Debug, Deserialize)]
struct Logged {
    time: String,
    queue_us: u64,
    node: Option<String>,
    tries: u32,
}

impl RunHook for Starving {
    fn during(&mut self, cluster: &mut Cluster, run: &Run<'_>) -> Result<(), ExperimentError> {
        let begun = clock::now();
        clock::sleep_until(begun + CALM);
        let node = &cluster.nodes()[run.round as usize % SERVERS];
        let (from, to) = starve(cluster, node)?;
        clock::sleep_until(begun + WARM_UP + LENGTH);
        let path = log_of(cluster)?;
        let text = fs::read_to_string(&path).map_err(ClusterError::file("read", path))?;
        self.seen = reaction(&text, &format!("site-{}", node.name), (from, to))
            .map_err(ExperimentError::Unfit)?;
        Ok(())
    }

    fn metrics(&mut self, _: &Run<'_>, _: &LoadResult) -> Vec<(String, f64)> {
        vec![
            (REACTION.into(), self.seen.millis),
            (MISROUTED.into(), self.seen.misrouted.into()),
        ]
    }

    fn raw(&mut self) -> Value {
        json!({ REACTION: self.seen.millis, MISROUTED: self.seen.misrouted })
    }
}

/// Holds as many connections as the server may have files; from when to when all were used up, as times of the day.
fn starve(cluster: &Cluster, node: &Node) -> Result<(Duration, Duration), ExperimentError> {
    let pid_file = cluster.folder().join(format!("{}.pid", node.name));
    let pid = fs::read_to_string(&pid_file).map_err(ClusterError::file("read", pid_file))?;
    let open = PathBuf::from(format!("/proc/{}/fd", pid.trim()));
    let connect = || -> std::io::Result<(Vec<TcpStream>, Duration)> {
        let held = (0..FILES).map(|_| TcpStream::connect(node.address));
        let held = held.collect::<Result<_, _>>()?;
        let deadline = clock::now() + USED_UP_MAX;
        while fs::read_dir(&open)?.count() < FILES as usize {
            if clock::now() > deadline {
                let text = "the server does not use up its file descriptors";
                return Err(std::io::Error::other(text));
            }
        }
        Ok((held, clock::unix()))
    };
    let held = cluster.clients().inside(connect)?;
    let starving = |why| ExperimentError::Unfit(format!("starving {}: {why}", node.name));
    let (held, from) = held.map_err(starving)?;
    clock::sleep_until(clock::now() + STARVED_FOR);
    drop(held);
    Ok((day(from), day(clock::unix())))
}

/// The access log of the front-end that runs.
fn log_of(cluster: &Cluster) -> Result<PathBuf, ExperimentError> {
    let folder = cluster.folder();
    let entries = fs::read_dir(folder).map_err(ClusterError::file("read", folder))?;
    let logs = entries.filter_map(|it| Some(it.ok()?.path().join(ACCESS_LOG)));
    let mut logs = logs.filter(|path| path.is_file());
    let missing = || ExperimentError::Unfit("there is no access log".into());
    logs.next().ok_or_else(missing)
}

/// What a log says of a node that was without descriptors in this time of the day.
fn reaction(log: &str, node: &str, (from, to): (Duration, Duration)) -> Result<Reaction, String> {
    let mut seen = Reaction::default();
    for line in log.lines() {
        let line: Logged = serde_json::from_str(line).map_err(|why| format!("{line}: {why}"))?;
        let head = time_of_day(&line.time).ok_or_else(|| format!("{} is no time", line.time))?;
        let last_try = head + Duration::from_micros(line.queue_us);
        let suspect = line.tries > 1 || line.node.as_deref() == Some(node);
        if suspect && last_try > from && head < to {
            seen.misrouted += 1;
            let millis = last_try.saturating_sub(from).as_secs_f64() * 1e3;
            seen.millis = seen.millis.max(millis);
        }
    }
    Ok(seen)
}

/// Of a date and time in UTC, as `2026-01-31T12:34:56.123456Z`.
fn time_of_day(text: &str) -> Option<Duration> {
    let (_, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut parts = time.split(':');
    let mut number = || parts.next()?.parse::<f64>().ok();
    let (hours, minutes, seconds) = (number()?, number()?, number()?);
    Duration::try_from_secs_f64(hours.mul_add(3600.0, minutes * 60.0) + seconds).ok()
}

/// Of a time since the epoch.
fn day(unix: Duration) -> Duration {
    unix - Duration::from_secs(unix.as_secs() / 86_400 * 86_400)
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    let plan = plan(lab.scale);
    let measured = Runner::run(lab, &plan, &mut Starving::default())?;
    let findings = findings(&measured.table);
    let took = clock::now().since(started);
    Ok(report(&EXPERIMENT, lab, &plan, measured, findings, took))
}

fn findings(table: &Table) -> ExperimentFindings {
    let p99 = |arm: &str| {
        let mut values = rounds(table, arm, REACTION).to_vec();
        values.sort_by(f64::total_cmp);
        quantile_of_sorted(&values, 0.99)
    };
    let verdict = |arm: &str| {
        let goal = format!("p99 from used up to the last misrouted request of {arm}, ms");
        at_most(goal, p99(arm), GOAL)
    };
    ExperimentFindings {
        paper: Default::default(),
        verdicts: [SLBL, AUTO].map(verdict).into(),
        notes: vec![
            "A request that was tried more than once counts as misrouted, wherever it went first."
                .into(),
        ],
        plots: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time: &str, node: &str, queue_us: u64, tries: u32) -> String {
        format!(
            "{{\"time\":\"2026-01-31T12:00:{time}Z\",\"queue_us\":{queue_us},\"node\":\"{node}\",\"tries\":{tries}}}\n"
        )
    }

    #[test]
    fn the_last_try_at_the_node_counts() {
        let log = [
            line("00.900000", "site-n1", 10, 1),
            line("01.001000", "site-n1", 2000, 1),
            line("01.010000", "site-n2", 10, 1),
            line("01.020000", "site-n2", 5000, 2),
            line("02.500000", "site-n1", 10, 1),
        ]
        .concat();
        let noon = Duration::from_secs(12 * 3600);
        let at = |seconds| noon + Duration::from_secs(seconds);
        let seen = reaction(&log, "site-n1", (at(1), at(2))).unwrap();
        assert_eq!(seen.misrouted, 2);
        assert!((seen.millis - 25.0).abs() < 0.01, "{seen:?}");
        let seen = reaction(&log, "site-n3", (at(2), at(3))).unwrap();
        assert_eq!(seen, Reaction::default());
    }

    #[test]
    fn what_is_no_line_is_said() {
        let nothing = (Duration::ZERO, Duration::ZERO);
        assert!(reaction("x\n", "n", nothing).is_err());
        let bad = line("x", "n", 0, 1);
        assert!(reaction(&bad, "n", nothing).is_err());
    }
}
