//! `protocol-cost`: what TLS, HTTP/2, gRPC and large answers cost the front-end in CPU time, and what an idle connection takes of its memory.
//!
//! ```text
//! CPU 0   clients (h2load; openssl s_time for handshakes), and the front-end, held to 40 % of the CPU
//!         by a quota of its control group
//! CPU 1   four nodes: the test server, and beside it a server of gRPC calls
//! cost    = CPU time of the front-end's control group / requests answered
//! idle    = (resident memory with so many idle connections - without) / connections
//! ```
//!
//! As in `proxy-cost`: the quota saturates every front-end, all stand in turn within a round, each is compared with HAProxy in the same round,
//! and the median of these ratios counts. Where a front-end is saturated, throughput is the inverse of cost.
//!
//! Certificates are of the curve P-256, sessions are resumed by tickets, versions and ciphers are those that both sides agree on by default
//! (TLS 1.3). The set-up of a run's connections is in its cost, which is 1 % of it for those that are kept.
//!
//! What it does not show: other certificates, TLS towards nodes, and clients on other machines.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tidegate_remote::clock;

use crate::cluster::{Cluster, Place, Process, lab};
use crate::front::{self, Certificate, Features, FrontEnd, FrontKind, HaproxyBalance, Site};
use crate::load::others::{self, H2load};
use crate::results::{Axis, Report};
use crate::server::CALL;

use super::judge::{Table, at_most, ratio};
use super::measured::Measured;
use super::one_front_end::{self, CPU, NODES, QUOTA};
use super::plan::Arm;
use super::proxy_cost::{BASE, compare};
use super::report::{ExperimentFindings, Sketch};
use super::{Experiment, ExperimentError, Lab, Scale, arms};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "protocol-cost",
    about: "CPU time per request over TLS, HTTP/2 and gRPC, per handshake and per large answer; memory per idle connection",
    source: "design goals",
    needs: "namespaces (root); h2load and openssl; haproxy, nginx, envoy for their arms",
    estimate,
    run,
    plan: None,
};

/// Clients that keep their connections.
const CLIENTS: u32 = 32;
/// Connections with many requests at once.
const MANY: (u32, u32) = (8, 8);
/// Times that work is begun whose client does not end.
const TRIES: u32 = 3;
/// Processes that do one handshake after the other.
const HANDSHAKERS: u32 = 6;
const HANDSHAKE_SECONDS: u32 = 2;
const WARM_UP: Duration = Duration::from_millis(300);
/// Idle connections: each asks once in so long.
const IDLE: u32 = 1000;
const IDLE_RATE: f64 = 0.2;
const IDLE_LENGTH: Duration = Duration::from_secs(6);
/// When they are all there, and have asked once.
const IDLE_AFTER: Duration = Duration::from_millis(4500);
/// Where the servers of calls listen.
const CALLS_PORT: u16 = 8001;
const ENVOY: &str = "envoy least_request";
const OURS: &str = "round_robin";

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Requests on connections that are kept: of so many bytes.
    Kept { tls: bool, http2: bool, bytes: u32 },
    /// A connection per request, its handshake whole or resumed.
    Handshake { resumed: bool },
    /// Unary calls.
    Calls,
}

const KIB: u32 = 1024;
const KINDS: [Kind; 7] = [
    Kind::Kept {
        tls: true,
        http2: false,
        bytes: KIB,
    },
    Kind::Kept {
        tls: true,
        http2: true,
        bytes: KIB,
    },
    Kind::Kept {
        tls: false,
        http2: false,
        bytes: KIB * KIB,
    },
    Kind::Kept {
        tls: true,
        http2: false,
        bytes: KIB * KIB,
    },
    Kind::Handshake { resumed: false },
    Kind::Handshake { resumed: true },
    Kind::Calls,
];

impl Kind {
    fn label(self) -> String {
        match self {
            Self::Kept { tls, http2, bytes } => {
                let tls = if tls { "tls" } else { "plain" };
                let version = if http2 { "h2" } else { "h1" };
                let size = match bytes / KIB {
                    kib @ ..KIB => format!("{kib}KiB"),
                    kib => format!("{}MiB", kib / KIB),
                };
                format!("{tls}={version}-{size}")
            }
            Self::Handshake { resumed: false } => "handshake=new".into(),
            Self::Handshake { resumed: true } => "handshake=resumed".into(),
            Self::Calls => "grpc=unary".into(),
        }
    }

    fn metric(self, quantity: &str) -> String {
        format!("{quantity}[{}]", self.label())
    }

    /// Whether the arm does it here: the lab gives Envoy no TLS, and nginx no calls.
    fn fits(self, arm: &Arm) -> bool {
        match arm.kind {
            FrontKind::Tidegate(_) | FrontKind::Haproxy(_) => true,
            FrontKind::Nginx(_) => self != Self::Calls,
            FrontKind::Envoy(_) => self == Self::Calls,
            FrontKind::Apache => false,
        }
    }
}

/// Idle connections: of TLS, of HTTP/2.
const IDLES: [(&str, bool, bool); 3] = [
    ("plain=h1", false, false),
    ("tls=h1", true, false),
    ("tls=h2", true, true),
];

fn all() -> Vec<Arm> {
    vec![
        Arm::of(FrontKind::Haproxy(HaproxyBalance::RoundRobin)),
        arms::blind(OURS),
        arms::auto(),
        Arm::of(FrontKind::Nginx(front::NginxBalance::RoundRobin)),
        Arm::of(FrontKind::Envoy(front::EnvoyFilter::None)),
    ]
}

fn length(scale: Scale) -> Duration {
    Duration::from_millis(scale.pick(1200, 2000))
}

fn rounds(scale: Scale) -> u32 {
    scale.pick(1, 4)
}

fn estimate(scale: Scale) -> Duration {
    let start = Duration::from_millis(900);
    let of = |arm: &Arm| {
        let kinds = KINDS.iter().filter(|kind| kind.fits(arm)).count() as u32;
        let kinds = (WARM_UP + length(scale) + Duration::from_millis(300)) * kinds + start * 2;
        let idle = (IDLE_LENGTH + start) * IDLES.len() as u32;
        kinds * rounds(scale) + idle * u32::from(holds_idle(arm))
    };
    Duration::from_secs(5) + all().iter().map(of).sum::<Duration>()
}

/// Whether its memory is looked at: HAProxy, nginx and one of ours.
fn holds_idle(arm: &Arm) -> bool {
    Kind::Handshake { resumed: false }.fits(arm) && arm.name != arms::AUTO
}

fn run(lab: &Lab) -> Result<Report, ExperimentError> {
    let started = clock::now();
    // That openssl is there is seen where it makes the certificate.
    front::installed(others::H2LOAD).map_err(ExperimentError::Unfit)?;
    let reason = "a front-end's CPU quota needs control groups";
    let cluster = one_front_end::cluster(lab, reason)?;
    let (measured, arms) = one_front_end::begin(lab, &cluster, all());
    let message = cluster.folder().join("message");
    // A call's message: not compressed, 100 bytes, letters.
    let call = [&[0, 0, 0, 0, 100][..], &[b'x'; 100]].concat();
    std::fs::write(&message, call).map_err(|error| ExperimentError::Unfit(error.to_string()))?;
    let mut bench = Bench {
        lab,
        cluster: &cluster,
        place: cluster.aside("proxy", CPU)?,
        certificate: Certificate::make(cluster.front(), cluster.folder())?,
        message,
        _calls: calls(&cluster)?,
        measured,
    };
    bench.all_rounds(&arms)?;
    bench.all_idle(&arms);
    let mut measured = bench.measured;
    compare(&mut measured.table);
    one_front_end::end(&EXPERIMENT, lab, &arms, measured, findings, started)
}

/// A server of calls on every node.
fn calls(cluster: &Cluster) -> Result<Vec<Process>, ExperimentError> {
    let program = lab()?;
    let start = |node: &crate::cluster::Node| {
        let mut command = node.place().command(&program);
        let listen = SocketAddr::new(node.address.ip(), CALLS_PORT).to_string();
        command.args(["serve-calls", "--listen", &listen]);
        Ok(Process::start(
            format!("calls of {}", node.name),
            &mut command,
        )?)
    };
    cluster.nodes().iter().map(start).collect()
}

struct Bench<'a> {
    lab: &'a Lab,
    cluster: &'a Cluster,
    place: Place,
    certificate: Certificate,
    /// The file with a call's message.
    message: std::path::PathBuf,
    _calls: Vec<Process>,
    measured: Measured,
}

impl Bench<'_> {
    fn all_rounds(&mut self, arms: &[Arm]) -> Result<(), ExperimentError> {
        self.place.limit(Some(QUOTA))?;
        for (round, arm) in one_front_end::turns(arms, rounds(self.lab.scale)) {
            let message = format!("{} round {}", arm.name, round + 1);
            self.lab.progress.message(&message);
            for calls in [false, true] {
                if let Err(error) = self.one(arm, round, calls) {
                    let note = format!("FAILED {}: {error}", arm.name);
                    self.measured.notes.push(note);
                }
            }
        }
        Ok(self.place.limit(None)?)
    }

    /// All kinds of work through one process: calls, or all others.
    fn one(&mut self, arm: &Arm, round: u32, calls: bool) -> Result<(), ExperimentError> {
        let kinds = KINDS
            .iter()
            .filter(|kind| kind.fits(arm) && (**kind == Kind::Calls) == calls);
        let kinds: Vec<_> = kinds.copied().collect();
        if kinds.is_empty() {
            return Ok(());
        }
        let front = self.front(arm, calls)?;
        for kind in kinds {
            let mut tries = 1;
            while !self.measure(&front, arm, kind, round)? {
                let note = format!("{} {}: h2load did not end", arm.name, kind.label());
                if tries == TRIES {
                    return Err(ExperimentError::Unfit(note));
                }
                self.measured.notes.push(note);
                tries += 1;
            }
        }
        Ok(())
    }

    /// One kind of work; false if its client did not end, which says nothing of the front-end.
    fn measure(
        &mut self,
        front: &FrontEnd,
        arm: &Arm,
        kind: Kind,
        round: u32,
    ) -> Result<bool, ExperimentError> {
        if self.load(front, kind, WARM_UP)?.is_none() {
            return Ok(false);
        }
        let (at, before) = (clock::now(), self.place.cpu_time());
        let Some(answered) = self.load(front, kind, length(self.lab.scale))? else {
            return Ok(false);
        };
        let used = self.place.cpu_time().saturating_sub(before).as_secs_f64();
        let wall = clock::now().seconds_since(at);
        let measured = &mut self.measured;
        let cost = used * 1e6 / answered as f64;
        measured.record(&arm.name, &kind.metric("cpu_us"), cost);
        let quota = used / wall / QUOTA * 100.0;
        measured.record(&arm.name, &kind.metric("quota_used_pct"), quota);
        measured.raw.push(json!({
            "arm": arm.name, "round": round, "kind": kind.label(), "answered": answered, "cpu_seconds": used, "seconds": wall,
        }));
        Ok(true)
    }

    fn front(&self, arm: &Arm, calls: bool) -> Result<FrontEnd, ExperimentError> {
        let server = |node| {
            let mut server = front::server(&arm.kind, "site", self.cluster, node)?;
            if calls {
                server.address.set_port(CALLS_PORT);
            }
            Ok::<_, ExperimentError>(server)
        };
        let servers = (0..NODES).map(server).collect::<Result<_, _>>()?;
        let envoy = matches!(arm.kind, FrontKind::Envoy(_));
        let features = Features {
            certificate: (!envoy).then(|| self.certificate.clone()),
            servers_http2: calls,
            ..Features::default()
        };
        let sites = vec![Site::of("site", servers)];
        Ok(front::start_with(
            &self.place,
            &arm.kind,
            sites,
            self.cluster,
            features,
        )?)
    }

    /// Requests answered; an error if one was not. None: the client did not end.
    fn load(
        &self,
        front: &FrontEnd,
        kind: Kind,
        length: Duration,
    ) -> Result<Option<u64>, ExperimentError> {
        let place = self.cluster.clients();
        let done = match kind {
            Kind::Handshake { resumed } => {
                let seconds = if length > WARM_UP {
                    HANDSHAKE_SECONDS
                } else {
                    1
                };
                let address = secure(front)?.to_string();
                let path = format!("/work?bytes={KIB}");
                let at = (address.as_str(), path.as_str());
                others::handshakes(place, at, resumed, HANDSHAKERS, seconds).map(Some)
            }
            Kind::Kept { tls, http2, bytes } => {
                let (clients, streams) = if http2 { MANY } else { (CLIENTS, 1) };
                let path = format!("/work?bytes={bytes}");
                let load = H2load {
                    url: url(front, tls, &path)?,
                    http1: !http2,
                    clients,
                    streams,
                    length,
                    rate: None,
                    headers: &[],
                    body: None,
                };
                load.run(place)
            }
            Kind::Calls => {
                let kind = format!("content-type: {CALL}");
                let load = H2load {
                    url: url(front, false, "/echo.Echo/Unary")?,
                    http1: false,
                    clients: MANY.0,
                    streams: MANY.1,
                    length,
                    rate: None,
                    headers: &[&kind, "te: trailers"],
                    body: Some(self.message.as_os_str()),
                };
                load.run(place)
            }
        };
        done.map_err(|why| ExperimentError::Unfit(format!("{}: {why}", kind.label())))
    }

    /// What idle connections take, each kind before a front-end of its own.
    fn all_idle(&mut self, arms: &[Arm]) {
        for arm in arms.iter().filter(|arm| holds_idle(arm)) {
            for (label, tls, http2) in IDLES {
                self.lab
                    .progress
                    .message(&format!("{} idle {label}", arm.name));
                match self.idle(arm, tls, http2) {
                    Ok(kib) => self
                        .measured
                        .record(&arm.name, &format!("idle_kib[{label}]"), kib),
                    Err(error) => self
                        .measured
                        .notes
                        .push(format!("FAILED {} idle {label}: {error}", arm.name)),
                }
            }
        }
    }

    /// KiB of resident memory that a connection adds which has asked once and is idle.
    fn idle(&self, arm: &Arm, tls: bool, http2: bool) -> Result<f64, ExperimentError> {
        let front = self.front(arm, false)?;
        let kept = Kind::Kept {
            tls,
            http2,
            bytes: KIB,
        };
        if self.load(&front, kept, WARM_UP)?.is_none() {
            return Err(ExperimentError::Unfit("h2load did not end".into()));
        }
        let before = front.resident();
        let load = H2load {
            url: url(&front, tls, &format!("/work?bytes={KIB}"))?,
            http1: !http2,
            clients: IDLE,
            streams: 1,
            length: IDLE_LENGTH,
            rate: Some(IDLE_RATE),
            headers: &[],
            body: None,
        };
        let place = self.cluster.clients();
        let mut clients = Process::start(others::H2LOAD, &mut load.command(place))?;
        clock::sleep_until(clock::now() + IDLE_AFTER);
        let held = front.resident();
        if let Some(status) = clients.ended() {
            let why = format!("{} ended with {status}: {}", others::H2LOAD, clients.told());
            return Err(ExperimentError::Unfit(why));
        }
        Ok(held.saturating_sub(before) as f64 / 1024.0 / f64::from(IDLE))
    }
}

fn secure(front: &FrontEnd) -> Result<SocketAddr, ExperimentError> {
    let none = || ExperimentError::Unfit("it has no listener with TLS".into());
    front.secure().ok_or_else(none)
}

fn url(front: &FrontEnd, tls: bool, path: &str) -> Result<String, ExperimentError> {
    Ok(match tls {
        true => format!("https://{}{path}", secure(front)?),
        false => format!("http://{}{path}", front.address),
    })
}

fn findings(table: &Table) -> ExperimentFindings {
    let cost = |kind: Kind, base: &str| ratio(table, OURS, base, &kind.metric("cpu_us"));
    let [kept, http2, large, secure_large, new, resumed, calls] = KINDS;
    let over = |what: &str, kind: Kind, wanted: f64| {
        at_most(
            format!("CPU over HAProxy's, {what}"),
            cost(kind, BASE),
            wanted,
        )
    };
    let idle = |label: &str, wanted: f64| {
        let measured = super::judge::median(table, OURS, &format!("idle_kib[{label}]"));
        at_most(
            format!("KiB of an idle connection, {label}"),
            measured,
            wanted,
        )
    };
    ExperimentFindings {
        verdicts: vec![
            over("TLS, kept connections, 1 KiB", kept, 0.95),
            over("TLS, a new handshake each", new, 0.6),
            over("TLS, a resumed handshake each", resumed, 0.8),
            over("HTTP/2 over TLS, 1 KiB", http2, 1.0),
            over("answers of 1 MiB", large, 1.0),
            over("answers of 1 MiB over TLS", secure_large, 1.0),
            at_most(
                "CPU over Envoy's, unary gRPC".into(),
                cost(calls, ENVOY),
                0.4,
            ),
            idle("plain=h1", 4.0),
            idle("tls=h1", 12.0),
        ],
        notes: vec![
            format!(
                "Each front-end has {:.0} % of a CPU; quota_used_pct near 100 says that it was saturated.",
                QUOTA * 100.0
            ),
            "Ratios are taken within a round and their median counts.".into(),
            format!(
                "Idle memory is measured once for each kind, with {IDLE} connections that have each asked once."
            ),
        ],
        plots: vec![Sketch::Bars {
            title: "CPU time per request, HAProxy = 1".into(),
            groups: KINDS
                .map(|kind| (kind.label(), kind.metric("cpu_us_over_haproxy")))
                .into(),
            y: Axis::from_zero("over HAProxy's in the same round"),
        }],
        ..ExperimentFindings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_label_of_its_own() {
        let labels = KINDS.map(Kind::label);
        let expected = [
            "tls=h1-1KiB",
            "tls=h2-1KiB",
            "plain=h1-1MiB",
            "tls=h1-1MiB",
            "handshake=new",
            "handshake=resumed",
            "grpc=unary",
        ];
        assert_eq!(labels, expected);
    }

    #[test]
    fn peers_do_what_they_are_configured_for() {
        let names = |kind: Kind| {
            let fitting = all().into_iter().filter(move |arm| kind.fits(arm));
            fitting.map(|arm| arm.name).collect::<Vec<_>>()
        };
        let calls = [BASE, OURS, arms::AUTO, ENVOY];
        assert_eq!(names(Kind::Calls), calls);
        let tls = [BASE, OURS, arms::AUTO, "nginx round robin"];
        assert_eq!(names(KINDS[0]), tls);
    }
}
