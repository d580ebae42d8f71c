//! What the JSON API says, as types: written by the server, read by the command line and the
//! page. `docs/api.md` describes them.
//!
//! A number that is not known is null, never zero. Times are seconds, sizes are bytes, counts
//! run from the start of the process.

mod access;
mod agent;
mod certificates;
mod checks;
mod events;
mod headline;
mod history;
mod moves;
mod nodes;
mod overview;
mod reload;
mod requests;
mod sources;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use access::AccessModel;
pub(crate) use agent::AgentStatus;
pub(crate) use certificates::{CertificateStatus, GivenCertificate};
pub(crate) use checks::{CheckStatus, ServicesStatus};
pub(crate) use events::{EventLevel, EventModel, Events};
pub(crate) use headline::{Headline, Level, Problem};
pub(crate) use history::{HistoryModel, NodeHistory, SiteHistory};
pub(crate) use moves::{BestMove, WhyMoves};
pub(crate) use nodes::{AddedNode, AddedNodes, NodeEdited, NodeRequest, NodeSettings, NodeWeight};
pub(crate) use overview::{Overview, OverviewNode, OverviewRecent, OverviewSite, Short};
pub(crate) use reload::{PlanLine, Reloaded};
pub(crate) use requests::{Decision, LastRequests};
pub(crate) use sources::{LeftOutStatus, SourceEventStatus, SourceStatus};

/// The header that a runtime override must carry if there is no token.
pub(crate) const OVERRIDE_HEADER: &str = "tidegate-override";
/// The header in which an operator's program names the operator: a name for the list of events, no proof of anything.
pub(crate) const OPERATOR_HEADER: &str = "tidegate-operator";
/// The path at which front-ends ask each other for their requests.
pub(crate) const EXCHANGE: &str = "/api/culprits/requests";
/// Most kinds of requests that a sentence names.
const KINDS_MAX: usize = 5;

/// `GET /api/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Tidegate's version.
    pub(crate) version: String,
    /// Since the start.
    pub(crate) uptime_seconds: f64,
    /// Whether it takes requests: not while draining, nor with no candidate in any site.
    pub(crate) ready: bool,
    /// It was asked to stop and lets requests in flight end.
    pub(crate) draining: bool,
    /// What is wrong, worst first.
    #[serde(default)]
    pub(crate) headline: Headline,
    /// Where clients connect.
    pub(crate) listeners: Vec<String>,
    /// The configuration file, by its absolute path; null if all came from the command line.
    #[serde(default)]
    pub(crate) configuration: Option<String>,
    /// Front-ends known to serve these nodes, this one included.
    pub(crate) front_ends: u32,
    /// Grows with every change of a node's or site's state.
    pub(crate) topology_version: u64,
    /// The thread that reads loads.
    pub(crate) reader: ReaderStatus,
    /// All requests.
    pub(crate) requests: Requests,
    /// Client connections that are open.
    pub(crate) connections: u64,
    /// Client connections without a request that gave way to new ones, as many being open as may be.
    #[serde(default)]
    pub(crate) connections_evicted: u64,
    /// Client connections that were refused before a byte was read, by reason: they are no requests.
    #[serde(default)]
    pub(crate) connections_refused: BTreeMap<String, u64>,
    /// The same of the last seconds, per second, where there were any.
    #[serde(default)]
    pub(crate) connections_refused_per_second: BTreeMap<String, f64>,
    /// Requests per second that were refused in the last seconds, by reason, those of no site included.
    #[serde(default)]
    pub(crate) refused: BTreeMap<String, f64>,
    /// Workers that accept no connections now, because they do not keep up.
    pub(crate) accept_paused: u64,
    /// The last seconds.
    pub(crate) recent: Recent,
    /// Age of the load record at decisions of the last seconds.
    pub(crate) load_age: Quantiles,
    /// Certificates that come by themselves, in the order of the configuration.
    #[serde(default)]
    pub(crate) certificates: Vec<CertificateStatus>,
    /// Why the webhook of events takes none; null if it does, or if there is none.
    #[serde(default)]
    pub(crate) webhook_error: Option<String>,
    /// Those of the configuration.
    #[serde(default)]
    pub(crate) given_certificates: Vec<GivenCertificate>,
    /// Sites in the order of the configuration.
    pub(crate) sites: Vec<SiteStatus>,
    /// Nodes that were taken out of the cluster and have requests yet.
    #[serde(default)]
    pub(crate) leaving: Vec<LeavingStatus>,
    /// Where nodes come from besides the configuration file.
    #[serde(default)]
    pub(crate) sources: Vec<SourceStatus>,
    /// Nodes that others than the file announce, and that cannot come in now.
    #[serde(default)]
    pub(crate) left_out: Vec<LeftOutStatus>,
    /// Classes of requests that are throttled.
    pub(crate) throttles: Vec<ThrottleStatus>,
    /// Nodes that serve nothing and are read, in the order of the configuration.
    #[serde(default)]
    pub(crate) resources: Vec<ResourceStatus>,
}

/// A node that was taken out of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LeavingStatus {
    /// Its name.
    pub(crate) name: String,
    /// Where it serves HTTP.
    pub(crate) address: String,
    /// Requests of ours that it has yet.
    pub(crate) in_flight: u64,
}

/// A node that serves nothing and is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResourceStatus {
    /// Its name.
    pub(crate) name: String,
    /// Its host.
    pub(crate) address: String,
    /// How its load is read now; `none` while it is not known.
    pub(crate) rung: String,
    /// The last load that was read, however old; null if there never was one.
    pub(crate) load: Option<LoadStatus>,
    /// How the reads go.
    pub(crate) reads: Option<ReadStatus>,
}

/// The thread that reads loads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReaderStatus {
    /// Nodes that it reads.
    pub(crate) nodes: u32,
    /// Time between two reads of a node, as of now.
    pub(crate) interval_seconds: f64,
    /// The same where requests need it most.
    pub(crate) shortest_interval_seconds: f64,
    /// Whether it runs at real-time priority; null if nothing is read.
    pub(crate) realtime: Option<bool>,
    /// Why not, where not.
    pub(crate) note: Option<String>,
}

/// Requests: received = completed + failed + rejected + cancelled + in flight.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Requests {
    /// Heads that were read.
    pub(crate) received: u64,
    /// Answered by a node, to the end.
    pub(crate) completed: u64,
    /// Not answered, or not to the end.
    pub(crate) failed: u64,
    /// Refused, by reason.
    pub(crate) rejected: BTreeMap<String, u64>,
    /// Given up by the client.
    pub(crate) cancelled: u64,
    /// On their way.
    pub(crate) in_flight: u64,
    /// Further tries of requests whose first try failed.
    pub(crate) retries: u64,
}

/// A window of the last seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recent {
    /// Its length.
    pub(crate) seconds: f64,
    /// Answers per second.
    pub(crate) requests_per_second: f64,
    /// Answers with a server error, and failures, per second.
    pub(crate) errors_per_second: f64,
    /// Of a site: from the request's head to the end of an answer of a node; neither refusals nor tunnels.
    /// Of a node: time to the response head.
    pub(crate) latency: Quantiles,
}

/// Requests of a site that are no answers of its nodes, and what happens before those.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Apart {
    /// Requests that wait for room at a node now.
    pub(crate) queued: u64,
    /// How long requests of the last seconds waited for room, whether they got it or not.
    pub(crate) queue_wait: Quantiles,
    /// Rejected requests per second.
    pub(crate) refused_per_second: f64,
    /// From their head to their end.
    pub(crate) refusal: Quantiles,
    /// Requests rejected since the start, by reason.
    pub(crate) rejected: BTreeMap<String, u64>,
    /// How long tunnels had been open that ended in the last seconds.
    pub(crate) tunnel: Quantiles,
}

/// Quantiles; null without a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quantiles {
    /// The median.
    pub(crate) p50_seconds: Option<f64>,
    /// Of a hundred, one is larger.
    pub(crate) p99_seconds: Option<f64>,
}

/// A site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SiteStatus {
    /// Its name.
    pub(crate) name: String,
    /// Its policy's name.
    pub(crate) policy: String,
    /// Hosts that it serves.
    pub(crate) hosts: Vec<String>,
    /// Path prefixes that it serves; empty means all.
    pub(crate) paths: Vec<String>,
    /// Nodes that requests may go to now.
    pub(crate) candidates: u32,
    /// No node is up, so ejected ones are used.
    pub(crate) fail_open: bool,
    /// The last seconds.
    pub(crate) recent: Recent,
    /// How long it has been refusing requests for want of room; null if it does not.
    #[serde(default)]
    pub(crate) refusing_seconds: Option<f64>,
    /// How long requests to it have been failing; null if they do not.
    #[serde(default)]
    pub(crate) failing_seconds: Option<f64>,
    /// Rejected requests per second of the last seconds, by reason.
    #[serde(default)]
    pub(crate) refused: BTreeMap<String, f64>,
    /// Failed requests per second of the last seconds, by reason; answers of nodes with a server error, also of tries that
    /// were repeated, as `5xx`.
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, f64>,
    /// Refusals, waits and tunnels, which are not in `recent.latency`.
    #[serde(default)]
    pub(crate) apart: Apart,
    /// Kinds of requests that go last where room is short since they grew, those with the most in flight first.
    #[serde(default)]
    pub(crate) grown: Vec<GrownKind>,
    /// Its nodes.
    pub(crate) nodes: Vec<NodeStatus>,
}

/// A kind of a site's requests that has grown much more than all others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GrownKind {
    /// Method and path, `*` for digits, names of the query; null for all kinds without a place of their own.
    pub(crate) kind: Option<String>,
    /// Its requests that wait for a node's answer.
    pub(crate) in_flight: u64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    /// Its name.
    pub(crate) name: String,
    /// Where it serves HTTP.
    pub(crate) address: String,
    /// The operator's word: ready, drain or maint.
    pub(crate) state: String,
    /// Experience: up, failing or ejected.
    pub(crate) health: String,
    /// What speaks against it.
    #[serde(default)]
    pub(crate) trouble: Trouble,
    /// Whether requests may go there now.
    pub(crate) candidate: bool,
    /// Whether it is on its way to another site, and gets no requests meanwhile.
    #[serde(default)]
    pub(crate) moving: bool,
    /// Where it is on its way to; null if it is not on its way, or if only its agent is waited for.
    #[serde(default)]
    pub(crate) moves_to: Option<NodeMove>,
    /// The part of its fair share that it may have while it starts slowly; null if it does not.
    #[serde(default)]
    pub(crate) slow_start: Option<f64>,
    /// What each of its site's checks says of it, in the order of the configuration; empty if it is not checked.
    #[serde(default)]
    pub(crate) checks: Vec<CheckStatus>,
    /// What the service checks of its own agent say; null if its last record says nothing of them.
    #[serde(default)]
    pub(crate) services: Option<ServicesStatus>,
    /// How it came over one of its soft limits; null if it is over none.
    #[serde(default)]
    pub(crate) soft_limit: Option<SoftLimitStatus>,
    /// What its agent says of it; null if it is not asked by HAProxy's agent check.
    #[serde(default)]
    pub(crate) agent: Option<AgentStatus>,
    /// Configured share.
    pub(crate) weight: f32,
    /// How its load is read now; `none` while it is not known.
    pub(crate) rung: String,
    /// The last load that was read, however old; null if there never was one.
    pub(crate) load: Option<LoadStatus>,
    /// How the reads go; null if its load is not read.
    pub(crate) reads: Option<ReadStatus>,
    /// Own requests in flight.
    pub(crate) in_flight: u64,
    /// Answers by class of status (`1xx` to `5xx`), and `failed` for none.
    pub(crate) responses: BTreeMap<String, u64>,
    /// Share of its site's answers in the last seconds; null if there were none.
    pub(crate) share: Option<f64>,
    /// The last seconds.
    pub(crate) recent: Recent,
}

/// How a node came over a soft limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SoftLimitStatus {
    /// What it has little left of: files, memory or cpu.
    pub(crate) resource: String,
    /// The used share at that moment.
    pub(crate) used: f64,
    /// The limit.
    pub(crate) limit: f64,
    /// It was below the limit, and at its pace would have had nothing left after this time; null if it was not.
    pub(crate) full_in_seconds: Option<f64>,
    /// Whether it gets no requests for that: false where too many nodes are out, or where it is out for more than that.
    pub(crate) out: bool,
}

/// One number that is known of a node's load, or is not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeMetric {
    /// cpu, memory and files (used shares), capacity (CPUs), runnable (tasks) or in_flight (requests).
    pub(crate) name: String,
    /// How much, when it was known last; null if it never was.
    pub(crate) value: Option<f64>,
    /// How that is read: a rung; `none` without a value.
    pub(crate) source: String,
    /// How long ago it was measured; null without a value.
    pub(crate) age_seconds: Option<f64>,
    /// Whether it counts: the load is young enough.
    pub(crate) believed: bool,
    /// What it weighs in the site's policy; null if that does not weigh it.
    pub(crate) weight: Option<f64>,
    /// The site's soft limit of it; null if there is none.
    pub(crate) limit: Option<f64>,
}

/// What speaks against a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trouble {
    /// Requests that failed there since it answered anything.
    pub(crate) in_a_row: u32,
    /// All errors so far, by reason; server errors as `5xx`.
    pub(crate) errors: BTreeMap<String, u64>,
    /// The last one; null if there was none.
    pub(crate) error: Option<String>,
    /// How long ago that was.
    pub(crate) error_seconds_ago: Option<f64>,
    /// How often it was ejected so far.
    pub(crate) ejections: u64,
    /// Why it is ejected, if it is: failures, silence, errors, check, soft_limit or agent.
    pub(crate) ejected_for: Option<String>,
    /// Since when.
    pub(crate) ejected_seconds_ago: Option<f64>,
    /// All this in sentences, and what brings it back; none if it is well.
    pub(crate) notes: Vec<String>,
}

/// A load as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoadStatus {
    /// Young enough to be believed.
    pub(crate) fresh: bool,
    /// Since the record was made.
    pub(crate) age_seconds: f64,
    /// CPUs that the node can use.
    pub(crate) capacity: Option<f64>,
    /// Run-queue length, tasks.
    pub(crate) runnable: Option<f64>,
    /// Used share of the capacity at that moment: over the last 10 ms or so.
    pub(crate) cpu: Option<f64>,
    /// The same over the last seconds; null where the node does not count it, or was not read that long.
    #[serde(default)]
    pub(crate) recent_cpu: Option<f64>,
    /// Whether the node counts it, be it read that long or not.
    #[serde(skip)]
    pub(crate) counts_cpu: bool,
    /// Used share of the memory.
    pub(crate) memory: Option<f64>,
    /// Used share of the file descriptors, of the system or a watched process.
    pub(crate) files: Option<f64>,
    /// Requests in flight of all front-ends.
    pub(crate) in_flight: Option<f64>,
    /// CPUs with soft interrupts pending.
    pub(crate) softirqs: Option<f64>,
    /// One-way delay between node and front-end.
    pub(crate) one_way_seconds: f64,
}

impl LoadStatus {
    /// What is shown as the use of its CPUs: a mean of seconds where there is one.
    pub(crate) fn shown_cpu(&self) -> Option<f64> {
        self.recent_cpu.or(self.cpu)
    }

    /// What a verdict may rest on: no moment where there will be a mean.
    pub(crate) fn judged_cpu(&self) -> Option<f64> {
        let moment = self.cpu.filter(|_| !self.counts_cpu);
        self.recent_cpu.or(moment)
    }
}

/// How the reads of one node go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReadStatus {
    /// Reads that were answered.
    pub(crate) reads: u64,
    /// Those of them that brought a record that was known already.
    pub(crate) unchanged: u64,
    /// Reads that were not answered in time.
    pub(crate) timeouts: u64,
    /// Records that changed while they were read.
    pub(crate) torn: u64,
    /// Records that were refused because they cannot be true.
    pub(crate) implausible: u64,
    /// Restarts of the agent.
    pub(crate) restarts: u64,
    /// Round trip, smoothed.
    pub(crate) rtt_seconds: Option<f64>,
    /// Which of the front-end's keys the node answered to last: 1 is the first one of `key_file`.
    pub(crate) key: Option<u32>,
    /// Why the last read gave nothing; null once a read gives a record.
    pub(crate) last_error: Option<String>,
    /// Why it is not read over RDMA, though it is to be; null where it is read so, or is not to be.
    #[serde(default)]
    pub(crate) no_rdma: Option<String>,
}

/// `GET /api/why/NAME`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Why {
    /// Why a node gets what it gets.
    Node(Box<WhyNode>),
    /// How a site chooses.
    Site(Box<WhySite>),
    /// Why a class is slow.
    Class(Box<WhyClass>),
    /// What became of a request.
    Request(Box<Decision>),
}

/// Why a node gets what it gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WhyNode {
    /// Its site.
    pub(crate) site: String,
    /// The site's policy.
    pub(crate) policy: String,
    /// What the policy does, in a line.
    pub(crate) policy_what: String,
    /// The reasons in sentences, the weightiest first.
    pub(crate) reasons: Vec<String>,
    /// The terms by which the policy sees the node now.
    pub(crate) terms: Vec<TermStatus>,
    /// What is known of its load, number by number.
    #[serde(default)]
    pub(crate) metrics: Vec<NodeMetric>,
    /// The last requests that went there, newest first.
    pub(crate) decisions: Vec<Decision>,
    /// The node.
    pub(crate) node: NodeStatus,
}

/// A node on its way to another site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeMove {
    /// The site that it is to serve.
    pub(crate) site: String,
    /// What it does: `drains`, `switches`.
    pub(crate) state: String,
}

/// How a site chooses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WhySite {
    /// The site.
    pub(crate) site: String,
    /// Its policy.
    pub(crate) policy: String,
    /// What the policy does, in a line.
    pub(crate) policy_what: String,
    /// The reasons in sentences, the weightiest first.
    pub(crate) reasons: Vec<String>,
    /// Kinds of requests that go last where room is short since they grew.
    #[serde(default)]
    pub(crate) grown: Vec<GrownKind>,
    /// What moves think of it; null if it takes no part in them.
    #[serde(default)]
    pub(crate) moves: Option<WhyMoves>,
    /// Its nodes, each with the policy's terms.
    pub(crate) nodes: Vec<WhySiteNode>,
    /// Its last requests, newest first.
    pub(crate) decisions: Vec<Decision>,
}

/// One node of a site's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WhySiteNode {
    /// Its name.
    pub(crate) name: String,
    /// Whether requests may go there now.
    pub(crate) candidate: bool,
    /// Share of the site's answers in the last seconds.
    pub(crate) share: Option<f64>,
    /// The terms by which the policy sees it now.
    pub(crate) terms: Vec<TermStatus>,
}

/// One number that a decision rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TermStatus {
    /// Its name in the policy's formula.
    pub(crate) name: String,
    /// Its value; null if it is not known.
    pub(crate) value: Option<f64>,
    /// What it means, with its unit.
    pub(crate) what: String,
}

/// `POST /api/nodes/NAME/{drain,ready,maint}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Overridden {
    /// The node.
    pub(crate) node: String,
    /// Its state now.
    pub(crate) state: String,
    /// Own requests that are still in flight there.
    pub(crate) in_flight: u64,
    /// What the override has done to the site; null if it goes on as before.
    #[serde(default)]
    pub(crate) warning: Option<String>,
}

/// `POST /api/upgrade`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Upgraded {
    /// The process that serves from now on.
    pub(crate) process: u32,
}

/// Any answer that is not 200.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ApiError {
    /// What went wrong, in a sentence.
    pub(crate) error: String,
}

/// What is done to requests of a class; what is not set is not limited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitsModel {
    /// Most requests in flight.
    pub(crate) concurrency: Option<u32>,
    /// Most requests per second.
    pub(crate) rate: Option<f64>,
    /// Bytes per second of all response bodies.
    pub(crate) bandwidth: Option<u64>,
    /// How long one waits at most; then 429.
    pub(crate) queue_seconds: Option<f64>,
    /// Admission takes them for the lowest priority.
    pub(crate) priority: bool,
    /// `SO_MARK` of connections to nodes.
    pub(crate) mark: Option<u32>,
    /// Code point of connections to nodes.
    pub(crate) dscp: Option<u8>,
    /// `SO_PRIORITY` of connections to nodes.
    pub(crate) so_priority: Option<u32>,
}

/// What `POST /api/throttle` is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThrottleRequest {
    /// The class.
    pub(crate) class: String,
    /// What is done to it.
    pub(crate) limits: LimitsModel,
    /// For how long; null: until it is released.
    #[serde(default)]
    pub(crate) for_seconds: Option<f64>,
}

/// What `POST /api/release` is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseRequest {
    /// The class.
    pub(crate) class: String,
}

/// The answer to both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ThrottleGiven {
    /// The throttle as it is now, or was at its end.
    pub(crate) throttle: ThrottleStatus,
    /// Whether the override outlives a restart.
    pub(crate) kept: bool,
    /// Why not, if it should.
    pub(crate) note: Option<String>,
}

/// `GET /api/throttles`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Throttles {
    /// Those that were set first before the others.
    pub(crate) throttles: Vec<ThrottleStatus>,
    /// Why connections are not marked as asked for; null where they are.
    pub(crate) unmarked: Option<String>,
}

/// A throttled class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ThrottleStatus {
    /// Its name: site, method and path.
    pub(crate) class: String,
    /// What is done to it.
    pub(crate) limits: LimitsModel,
    /// What said so: config, operator or policy.
    pub(crate) set_by: String,
    /// Since it was set.
    pub(crate) seconds_ago: f64,
    /// Until it ends by itself; null: it does not.
    pub(crate) seconds_left: Option<f64>,
    /// Requests that were let on and have not ended, less those that have lent their places.
    pub(crate) in_flight: u64,
    /// Requests that have lent their places while they wait for their clients.
    #[serde(default)]
    pub(crate) lent: u64,
    /// Requests that are held.
    pub(crate) waiting: u64,
    /// Requests of the class since it is throttled.
    pub(crate) arrived: u64,
    /// Those that were let on.
    pub(crate) passed: u64,
    /// Those that were held, whatever became of them.
    pub(crate) held: u64,
    /// Those that were answered 429.
    pub(crate) rejected: u64,
    /// Those that left while they were held.
    pub(crate) left: u64,
    /// Time that requests were held, added up.
    pub(crate) delayed_seconds: f64,
    /// Bytes of bodies that were sent piece by piece.
    pub(crate) paced_bytes: u64,
    /// Time that their pieces waited, added up.
    pub(crate) paced_seconds: f64,
}

/// What is known of a class, why it is throttled, and what that does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WhyClass {
    /// The class.
    pub(crate) class: String,
    /// The reasons in sentences, the weightiest first.
    pub(crate) reasons: Vec<String>,
    /// Its last requests that met its throttle, newest first.
    pub(crate) decisions: Vec<Decision>,
    /// Its throttle, if it has one.
    pub(crate) throttle: Option<ThrottleStatus>,
}

/// Which kinds go last since they grew, the first few by name.
pub(crate) fn grown_reason(kinds: &[GrownKind]) -> Option<String> {
    if kinds.is_empty() {
        return None;
    }
    let named = kinds.iter().take(KINDS_MAX).map(|it| {
        let name = it.kind.as_deref().unwrap_or("kinds not told apart");
        format!("{name} ({} in flight)", it.in_flight)
    });
    let mut named: Vec<_> = named.collect();
    let left = kinds.len().saturating_sub(KINDS_MAX);
    if left > 0 {
        named.push(format!("and {left} more"));
    }
    Some(format!(
        "where room is short these go last, since they grew more than all others: {}",
        named.join(", ")
    ))
}

/// Nodes that serve another site than the configuration file says: the site, by node.
pub(crate) type MovedNodes = BTreeMap<String, String>;
