//! The configuration file as it is written: tables, keys, types, defaults, ranges. What the
//! values mean together is `validate`'s business.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::admission::{AdmissionConfig, AdmissionKind, Priority};
use tidegate_core::topology::Capacity;
use tidegate_core::units::Size;

use super::acme::AcmeFile;
use super::address::NodeAddress;
use super::agent_moves::AgentMovesFile;
use super::agent_reports::{
    AgentCheckFile, AgentHeartbeatFile, AgentMetricsFile, AgentOrcaFile, AgentSnmpFile,
};
use super::answers::{PriorityFile, RetryAfter, RetryBudgetFile, SessionFile};
use super::check::CheckFiles;
use super::culprits::CulpritsFile;
use super::discover::{DiscoverFile, DnsFile};
use super::events::EventsFile;
use super::group::GroupFile;
use super::log::LogFile;
use super::policy::PolicySetting;
use super::reconfigure::{ReconfigureFile, SiteNodesFile};
use super::reported::{
    AuthName, ObjectFile, PERIOD_MAX, PERIOD_MIN, PeriodsFile, PrivacyName, SnmpVersionName,
};
use super::route::RouteFile;
use super::setting::{At, names, table};
use super::soft_limits::{AgentSoftLimitsFile, SoftLimitsFile};
use super::sticky::StickyFile;
use super::throttle::ThrottleFile;
use super::tls::{NodeTlsFile, ProtocolName, TlsFile};
use super::traces::TracesFile;
use super::values::Auto;

/// Port of the admin interface.
const ADMIN_PORT: u16 = 9900;
/// Port of the agent: where load records are asked for.
pub(crate) const AGENT_PORT: u16 = 9901;

/// Shortest and longest interval between two load reads or two samples. Below a tenth of a
/// millisecond the reader has no time for a thousand nodes; above ten seconds no record is
/// ever fresh when it matters.
const INTERVAL_MIN: Duration = Duration::from_micros(100);
const INTERVAL_MAX: Duration = Duration::from_secs(10);
/// Smallest and largest budget of reading, CPUs.
const BUDGET_MIN: f64 = 0.001;
const BUDGET_MAX: f64 = 64.0;
/// Time-outs of the data plane.
pub(super) const TIMEOUT_MIN: Duration = Duration::from_millis(1);
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// A node's weight beside another's.
pub(super) const WEIGHT_MIN: f32 = 0.001;
pub(super) const WEIGHT_MAX: f32 = 1000.0;
/// A time within which answers are wanted.
const SLO_MIN: Duration = Duration::from_millis(5);
const SLO_MAX: Duration = Duration::from_secs(600);
/// A node is warm by then.
const SLOW_START_MAX: Duration = Duration::from_secs(3600);
/// Classes of requests, and requests that wait.
const PRIORITIES_MAX: u32 = Priority::COUNT as u32;
const QUEUE_MAX: u32 = 1_000_000;
/// Front-ends before the same nodes.
const FRONT_ENDS_MAX: u32 = 1000;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

table! {
    /// The whole file. A front-end needs at least a listener, a site and a node or a source of nodes; an agent
    /// needs `[agent]` alone.
    pub(crate) struct ConfigFile {
        /// The live page, the JSON API, metrics and health of Tidegate itself.
        admin: AdminFile = defaults();
        /// Where clients connect. One table each.
        listener: Vec<At<ListenerFile>> = Vec::new();
        /// The authority that issues certificates of listeners.
        acme: Option<AcmeFile> = None;
        /// The hosted web sites. One table each.
        site: Vec<At<SiteFile>> = Vec::new();
        /// The servers. One table each.
        node: Vec<At<NodeFile>> = Vec::new();
        /// Where nodes come from while the front-end runs. One table each.
        discover: Vec<At<DiscoverFile>> = Vec::new();
        /// How host names are looked up.
        dns: DnsFile = defaults();
        /// What nodes share and that bears only so many requests. One table each.
        group: Vec<At<GroupFile>> = Vec::new();
        /// Classes of requests that are slowed. One table each.
        throttle: Vec<At<ThrottleFile>> = Vec::new();
        /// Which classes of requests load which resource.
        culprits: CulpritsFile = defaults();
        /// How load is read from the nodes.
        load: LoadFile = defaults();
        /// The node side: what `tidegate agent` does.
        agent: Option<AgentFile> = None;
        /// What the process may do once it runs.
        process: ProcessFile = defaults();
        /// What is kept over a restart.
        state: StateTable = defaults();
        /// The other front-ends.
        cluster: ClusterFile = defaults();
        /// Everything has a limit.
        limits: LimitsFile = defaults();
        /// How long the data plane waits for clients and nodes.
        timeouts: TimeoutsFile = defaults();
        /// What nodes learn about the client.
        forwarded: ForwardedFile = defaults();
        /// The access log.
        log: LogFile = defaults();
        /// The export of traces.
        traces: TracesFile = defaults();
        /// What happened.
        events: EventsFile = defaults();
        /// Moving nodes between sites.
        reconfigure: ReconfigureFile = defaults();
    }
}

table! {
    /// The live page at `/`, the JSON API, `/metrics`, `/livez` and `/readyz`.
    pub(crate) struct AdminFile {
        /// Where to listen. Beyond loopback only with a token.
        address: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT));
        /// File with the token that every request must then carry as
        /// `Authorization: Bearer …`: at least 16 printable letters. Only its owner may have access to it
        /// (mode 0600). Relative to this file.
        token_file: Option<PathBuf> = None;
        /// File with another token of the same kind, with which everything may be seen and nothing ordered: for a wall, or for
        /// those that watch. Relative to this file.
        read_token_file: Option<PathBuf> = None;
        /// File in which throttles that are set at run time are kept over a restart; not set: they
        /// end with the process. Relative to this file.
        overrides_file: Option<PathBuf> = None;
    }
}

table! {
    /// Where clients connect.
    pub(crate) struct ListenerFile {
        /// Address and port; `0.0.0.0` is every IPv4 address of the host, `[::]` every address.
        address: SocketAddr;
        /// TLS; not set: plain HTTP.
        tls: Option<TlsFile> = None;
        /// Send every request to the same URL by `https` (308), where there is no `tls`.
        redirect_to_https: bool = false;
        /// The port that requests are sent to.
        https_port: u32 = 443, in 1..=65_535;
        /// Networks of balancers that pass connections on here, like `["10.0.0.0/8"]`: each connection must come from one of them, and
        /// begin with a header of the PROXY protocol (version 1 or 2), which names its client. Empty: clients connect by themselves.
        proxy_protocol: Vec<At<String>> = Vec::new();
        /// Versions of HTTP that are spoken, the best first: `tls` offers them, and without it clients' first bytes say which it is. See
        /// [http2.md](http2.md).
        protocols: Vec<At<ProtocolName>> = ProtocolName::both();
        /// Pass connections on as they are to nodes of this site, each as one request: for protocols other than HTTP. With `tls` it ends here.
        /// See [tcp.md](tcp.md). Not set: they are HTTP.
        tcp_site: Option<String> = None;
    }
    later { http3: "HTTP/3" }
}

table! {
    /// A hosted web site.
    pub(crate) struct SiteFile {
        /// Its name: letters, digits, `.`, `-` and `_`.
        name: String;
        /// Hosts that it serves: exact, `*.suffix`, or `*` for all that no other site serves; none (`[]`) where listeners pass
        /// connections on to it (`tcp_site`).
        hosts: Vec<At<String>> = vec![At::default_of("*".into())];
        /// Path prefixes that it serves, on segment boundaries; empty means all.
        paths: Vec<At<String>> = Vec::new();
        /// How its nodes are picked: a name, or a table of a name and the policy's knobs, like
        /// `{ name = "k_least_loaded", index = "klm", k = 2 }`.
        policy: PolicySetting = PolicySetting::default();
        /// Which requests come in at all.
        admission: AdmissionFile = defaults();
        /// What becomes of some of its requests before a node is picked; the first that fits counts.
        route: Vec<At<RouteFile>> = Vec::new();
        /// Whether requests of a session go to the same node; not set: the policy alone decides.
        sticky: Option<StickyFile> = None;
        /// Statuses of nodes' answers, 400 to 599, like `[502, 503, 504]`, in place of which another node is asked, if the request is
        /// idempotent and has no body, within `retry_budget`. Empty: every answer goes to the client. See [retries.md](retries.md).
        retry_on: Vec<At<u32>> = Vec::new();
        /// Retries of requests that failed at a node.
        retry_budget: RetryBudgetFile = defaults();
        /// How long a node that is new or back takes to get its full share of requests, while others serve the site: for
        /// caches that fill, code that is compiled as it runs, pools. `0s`: it has it at once. A node whose load shows that it is
        /// warm is there up to four times sooner.
        slow_start: Duration = seconds(0), in seconds(0)..=SLOW_START_MAX;
        /// How nodes are asked whether they are well, one way or several; not set: not at all, and requests alone show it.
        check: CheckFiles = CheckFiles::default();
        /// Whether a node gets no requests while a service check of its own agent fails (`[[agent.check]]`), as its load
        /// record says.
        service_checks: bool = true;
        /// From which used share of a resource on a node gets no requests.
        soft_limits: SoftLimitsFile = defaults();
        /// Its nodes report their load in the response header `endpoint-load-metrics`: read it
        /// for policies that use it, and take it out of the response.
        load_header: bool = false;
        /// How many nodes it keeps and takes when nodes move between sites; not set: its nodes stay, and none comes.
        nodes: Option<SiteNodesFile> = None;
        /// TLS with its nodes, those that move here among them; not set: plain HTTP.
        node_tls: Option<NodeTlsFile> = None;
        /// What is spoken with its nodes: `h2` is HTTP/2, from the first byte or as TLS agrees on it, which servers of gRPC want. See
        /// [http2.md](http2.md).
        node_protocol: ProtocolName = ProtocolName::Http1;
        /// Begin each connection to its nodes, before TLS, with a header of the PROXY protocol of this version, which says whose
        /// connection it is; then each client's connection has its own to the nodes. See [proxy-protocol.md](proxy-protocol.md). Not set: none.
        node_proxy_protocol: Option<u32> = None, in Some(1)..=Some(2);
    }
}

table! {
    /// Which requests come in at all.
    pub(crate) struct AdmissionFile {
        /// What decides; see below and docs/admission.md.
        mode: AdmissionKind = AdmissionKind::Adaptive;
        /// Answers are wanted within this time: it sets how long a request may wait for room.
        slo: Duration = AdmissionConfig::SLO, in SLO_MIN..=SLO_MAX;
        /// adaptive: what a server gets that has no load record: whatever comes (`admit`), or what follows from how
        /// long answers take (`limit`).
        without_records: WithoutRecordsName = WithoutRecordsName::Admit;
        /// adaptive, maxconn, codel, dagor: priorities, 0 the highest; `priority` says which request has which.
        priorities: u32 = 1, in 1..=PRIORITIES_MAX;
        /// Which priority a request has.
        priority: PriorityFile = defaults();
        /// adaptive, maxconn, codel: how user sessions are recognised; not set: they are not.
        session: Option<SessionFile> = None;
        /// adaptive, maxconn, codel: most requests that wait for room, in each worker.
        queue: u32 = AdmissionConfig::QUEUE, in 0..=QUEUE_MAX;
        /// maxconn: how long they wait; not set is 0.4 of `slo`.
        queue_timeout: Option<Duration> = None, in Some(TIMEOUT_MIN)..=Some(SLO_MAX);
        /// static: the status for a request above a limit: 503, or 429 where clients are to blame.
        status: u32 = 503;
        /// After how many seconds a refused client may come again, the least and the most: each is
        /// given another number.
        retry_after: RetryAfter = RetryAfter(1..=3);
        /// File with the body of answers to requests that admission refuses: `.html`, `.json` or `.txt`, at
        /// most 64 KiB. Relative to this file.
        body: Option<PathBuf> = None;
        /// Let everything in and only count what would have been refused or made to wait.
        dry_run: bool = false;
        /// static, maxconn, codel: most requests in flight at a server, of this front-end.
        connections: Option<u32> = None;
        /// static: a server is full from this used share of its CPUs on, 0 to 1.
        cpu: Option<f32> = None;
        /// static: the same of its memory.
        memory: Option<f32> = None;
        /// static: the same of bytes per second at its network, both directions.
        network: Option<Size> = None;
        /// static: whose limit counts.
        scope: ScopeName = ScopeName::Any;
    }
}

names! {
    /// What a server without load records gets.
    pub(crate) enum WithoutRecordsName as "treatment of servers without records" {
        Admit = "admit",
        Limit = "limit",
    }
}

names! {
    /// Whose limit counts.
    pub(crate) enum ScopeName as "admission scope" {
        /// One full server is enough to refuse.
        Any = "any",
        /// Every server must be full.
        All = "all",
        /// The server that the policy chose.
        Chosen = "chosen",
    }
}

table! {
    /// A server.
    pub(crate) struct NodeFile {
        /// Its name: letters, digits, `.`, `-` and `_`.
        name: String;
        /// Where it serves HTTP; of a resource, its host. A host name (`web.internal:80`) is looked up at the start and
        /// again when its TTL is over: the node is at one of its addresses, and moves when that is not among them any more.
        /// `[[discover]]` makes a node of each.
        address: NodeAddress;
        /// What it is there for.
        role: RoleName = RoleName::Server;
        /// The site that it serves. A resource serves none.
        site: Option<String> = None;
        /// Its share relative to the other nodes, for policies that have no better knowledge.
        weight: f32 = 1.0, in WEIGHT_MIN..=WEIGHT_MAX;
        /// What it has of each resource, relative to the other nodes: `slbl` weighs what is free by it.
        capacity: CapacityFile = defaults();
        /// How its load is read.
        load: NodeLoadFile = defaults();
    }
}

table! {
    /// What a node has of each resource beside the other nodes: 1 is a node like the others.
    pub(crate) struct CapacityFile {
        /// Speed of its CPUs together.
        cpu: f32 = 1.0, in WEIGHT_MIN..=WEIGHT_MAX;
        /// Memory.
        memory: f32 = 1.0, in WEIGHT_MIN..=WEIGHT_MAX;
        /// File descriptors.
        files: f32 = 1.0, in WEIGHT_MIN..=WEIGHT_MAX;
    }
}

impl CapacityFile {
    pub(super) fn capacity(&self) -> Capacity {
        Capacity {
            cpu: self.cpu.value,
            memory: self.memory.value,
            files: self.files.value,
        }
    }
}

names! {
    /// What a node is there for.
    pub(crate) enum RoleName as "role" {
        /// It serves requests.
        Server = "server",
        /// It serves none, and its load is read: the host of a database behind the servers.
        Resource = "resource",
    }
}

impl ConfigFile {
    /// The nodes that serve requests at an address that the file gives, each by its number.
    pub(super) fn servers(&self) -> impl Iterator<Item = &At<NodeFile>> {
        let nodes = self.node.value.iter();
        nodes.filter(|node| node.role.value == RoleName::Server && node.address.fixed().is_some())
    }

    /// The nodes that serve requests and whose address is to be looked up.
    pub(crate) fn hosted(&self) -> impl Iterator<Item = &At<NodeFile>> {
        let nodes = self.node.value.iter();
        nodes.filter(|node| node.role.value == RoleName::Server && node.address.fixed().is_none())
    }
}

impl NodeFile {
    /// Whether it serves this site.
    pub(super) fn serves(&self, site: &str) -> bool {
        self.role.value == RoleName::Server && self.site.value.as_deref() == Some(site)
    }
}

table! {
    /// How one node's load is read.
    pub(crate) struct NodeLoadFile {
        /// `auto` is `rdma` where a key is given here or in `[load]`, which is `udp` on a host without an RDMA device and of a node
        /// that serves nothing over RDMA; else `none`.
        transport: TransportName = TransportName::Auto;
        /// udp, rdma, snmp, agent_check: where the node's agent answers. By default port 9901 of the node's host, or port 161;
        /// agent_check needs it. orca: where reports are streamed.
        address: Option<SocketAddr> = None;
        /// udp, rdma: file with this node's key, or with masters other than those of `[load]`. Relative to this
        /// file.
        key_file: Option<PathBuf> = None;
        /// udp, rdma: the name in the agent's key, where it is not this node's: nodes on one host that share an
        /// agent share its key.
        key_name: Option<String> = None;
        /// shm: the name under which the agent on this host publishes. Only an agent of root or of
        /// this process's user is believed.
        path: Option<PathBuf> = None;
        /// snmp: which version is spoken. Not set: `2c`.
        version: Option<SnmpVersionName> = None;
        /// snmp 1 and 2c: file with the community, in one line. Only its owner may have access to it (mode 0600). Relative to
        /// this file.
        community_file: Option<PathBuf> = None;
        /// snmp 3: the user that asks.
        user: Option<String> = None;
        /// snmp 3: how messages are authenticated. Not set: `sha256` where `auth_file` is.
        auth: Option<AuthName> = None;
        /// snmp 3: file with the password for that, in one line; as `community_file`.
        auth_file: Option<PathBuf> = None;
        /// snmp 3: how messages are encrypted. Not set: `aes128` where `privacy_file` is.
        privacy: Option<PrivacyName> = None;
        /// snmp 3: file with the password for that, in one line; as `community_file`.
        privacy_file: Option<PathBuf> = None;
        /// agent_check: what is sent first, as it is, up to 512 bytes: most agents that read a line want `\n` at its end.
        send: Option<String> = None;
        /// snmp, agent_check, orca with `address`: time between two polls or reports. Not set: 500 ms, agent_check 2 s. orca
        /// without: a report is believed for four of these. Not set: 1 s.
        period: Option<Duration> = None, in Some(PERIOD_MIN)..=Some(PERIOD_MAX);
        /// snmp: metrics with another period, like `{ memory = "5s" }`.
        periods: Option<PeriodsFile> = None;
        /// snmp: objects to ask for beside those that are known, like
        /// `{ oid = "1.3.6.1.4.1.99999.1.0", metric = "files", scale = 0.01 }`.
        oids: Option<Vec<At<ObjectFile>>> = None;
    }
}

names! {
    /// Ways to read a node's load.
    pub(crate) enum TransportName as "transport" {
        /// The best that is configured.
        Auto = "auto",
        /// Asking the node's agent over UDP.
        Udp = "udp",
        /// Reading the agent's memory by RDMA, and asking it over UDP while that cannot be ([rdma.md](rdma.md)).
        Rdma = "rdma",
        /// Shared memory with an agent on this host.
        Shm = "shm",
        /// Asking an agent of SNMP: `snmpd`, or a device's own.
        Snmp = "snmp",
        /// Asking an agent of HAProxy's agent check. It tells no load: what it says of the node's weight, health, state and
        /// bound is followed.
        AgentCheck = "agent_check",
        /// ORCA's reports: those in the header `endpoint-load-metrics` of the node's responses, which ends here; or with `address`,
        /// those that are streamed there.
        Orca = "orca",
        /// Not at all: own requests in flight and latencies decide.
        None = "none",
    }
    later { "xdp" }
}

names! {
    /// How often load is read.
    pub(crate) enum PaceName as "pace" {
        /// As often as decisions can use it.
        Need = "need",
        /// Once in `interval`.
        Constant = "constant",
    }
}

table! {
    /// How load is read from all nodes.
    pub(crate) struct LoadFile {
        /// Shortest time between two reads of a node. Not set: 1 ms, and with more than 31 nodes so much longer that
        /// reading them takes about a quarter of a CPU.
        interval: Option<Duration> = None, in Some(INTERVAL_MIN)..=Some(INTERVAL_MAX);
        /// "need": as often as decisions can use it, once in an eighth of the time that requests take at the servers; not more often
        /// than they come but once in 50 ms, once in 100 ms without any, and once in `interval` while requests wait or are refused.
        /// "constant": once in `interval` always; so it is with `[reconfigure]` in any case.
        pace: PaceName = PaceName::Need;
        /// CPUs that reading may take, or a tenth of what this front-end takes if that is more, where neither `interval` is set nor
        /// `pace` "constant".
        budget: f64 = 0.05, in BUDGET_MIN..=BUDGET_MAX;
        /// A read that is not answered in this time has failed.
        timeout: Duration = ms(5), in INTERVAL_MIN..=INTERVAL_MAX;
        /// File with the masters that give each node its key (`tidegate key new`): the first is used, the
        /// others are there while keys change. Only its owner may have access to it (mode 0600). Relative
        /// to this file.
        key_file: Option<PathBuf> = None;
        /// Ask the system for real-time priority for the reading thread; without the
        /// permission it runs at normal priority and says so.
        realtime: bool = true;
    }
}

table! {
    /// The node side: samples this host's kernel and publishes the load record.
    pub(crate) struct AgentFile {
        /// Where front-ends ask for the record, over UDP.
        listen: SocketAddr = SocketAddr::from((Ipv4Addr::UNSPECIFIED, AGENT_PORT));
        /// File with this node's keys (`tidegate key derive`), with any of which front-ends may ask. Only
        /// its owner may have access to it (mode 0600). Relative to this file.
        key_file: PathBuf;
        /// Shortest time between two samples: there are two of them between two reads of a front-end, and one each 100 ms while none reads; all the time while a front-end reads over RDMA, which is not seen here. KLM-2005 used 50ms.
        interval: Duration = ms(1), in INTERVAL_MIN..=INTERVAL_MAX;
        /// Also publish in shared memory under this name, for front-ends on the same host (a path
        /// like `/dev/shm/tidegate`: a socket there hands the memory out, to root and to this
        /// user's processes).
        shm: Option<PathBuf> = None;
        /// What is measured: `host`, or the path of a cgroup for a container that reports
        /// itself.
        scope: String = "host".into();
        /// Processes whose open files are held against their limits: names, or paths of pid
        /// files.
        watch: Vec<At<String>> = Vec::new();
        /// Ask the system for real-time priority for the sampler; without the permission it
        /// runs at normal priority and says so.
        realtime: bool = true;
        /// Share of a CPU that what is thrown away or answered in vain may take at that priority; beyond it the thread
        /// waits for its turn like any other. Requests of front-ends are not charged.
        realtime_share: f64 = tidegate_remote::udp::REALTIME_SHARE, in 0.0..=1.0;
        /// Try only these ways of answering, best first: `xdp_native`, `xdp_generic`, `tc` (the
        /// kernel answers), `kernel_record` (the kernel makes the record), `agent_realtime`,
        /// `agent`. Empty: all of them.
        rungs: Vec<At<String>> = Vec::new();
        /// Networks that are listened to, such as `10.0.0.0/8`. Empty: all.
        allow: Vec<At<String>> = Vec::new();
        /// Let front-ends read the record by RDMA, beside UDP: with the card of this host whose address is that of `listen`, or any.
        /// Without one the agent warns and serves UDP alone ([rdma.md](rdma.md)).
        rdma: bool = false;
        /// With `rdma`: front-ends change the node's words (slots of admission) over RDMA too. The card alone changes them
        /// then, also for datagrams and the agent itself; front-ends that map its memory cannot, and the kernel does not
        /// answer in the agent's place ([rdma.md](rdma.md#words)).
        rdma_words: bool = false;
        /// Front-ends that may be connected over RDMA at once.
        rdma_queue_pairs: u32 = 256, in 1..=4096;
        /// What is done when the node moves to another site.
        moves: Option<AgentMovesFile> = None;
        /// How the agent asks services of its own host whether they are well, one way or several; front-ends send the node no
        /// requests while one of them fails. Not set: none is asked.
        check: CheckFiles = CheckFiles::default();
        /// From when on the node is said to have too little of something.
        soft_limits: AgentSoftLimitsFile = defaults();
        /// HAProxy's agent check, answered; not set: it is not.
        agent_check: Option<AgentCheckFile> = None;
        /// Heartbeats to Apache's `mod_heartmonitor`; not set: none are sent.
        heartbeat: Option<AgentHeartbeatFile> = None;
        /// The record as metrics; not set: there are none.
        metrics: Option<AgentMetricsFile> = None;
        /// ORCA reports, streamed; not set: they are not.
        orca: Option<AgentOrcaFile> = None;
        /// Values for the `snmpd` of this host; not set: there are none.
        snmp: Option<AgentSnmpFile> = None;
    }
}

table! {
    /// What `tidegate run` and `tidegate agent` may do once they run. Started as root they give away all
    /// capabilities that they do not need, in any case.
    pub(crate) struct ProcessFile {
        /// The user to become, by name or number, with its own group alone; only root can. Not set: the user stays.
        user: Option<String> = None;
        /// A front-end's workers keep CAP_NET_ADMIN, for marks of throttles that are set at run time. Those of
        /// `[[throttle]]` keep it by themselves.
        marks: bool = false;
        /// When the configuration file is read again: when asked, by `tidegate reload` or SIGHUP, or also when it
        /// has changed.
        reload: ReloadName = ReloadName::Asked;
    }
}

names! {
    /// When a configuration file is read again.
    pub(crate) enum ReloadName as "kind of reload" {
        /// When an operator asks for it.
        Asked = "asked",
        /// When it changes as well.
        Watch = "watch",
    }
}

table! {
    /// What a front-end keeps over a restart: what it has learned of requests and their cost
    /// ([culprits.md](culprits.md)), in the file `culprits.learned`, of its nodes ([restart.md](restart.md)), in
    /// `nodes.learned`, and what happened at sites and nodes ([api.md](api.md#get-apihistory)), in `history.json`, each for its owner
    /// alone (mode 0600).
    pub(crate) struct StateTable {
        /// A folder that is there, belongs to the user that the process runs as, is writable for that user alone, and that no
        /// other front-end uses. Not set: the one of the service manager (`STATE_DIRECTORY`, which systemd sets for
        /// `StateDirectory=`), and without that nothing is kept. Relative to this file. `tidegate check` notes what is
        /// wrong with it, and what to do.
        directory: Option<PathBuf> = None;
        /// Whether anything is kept at all.
        keep: bool = true;
    }
}

table! {
    /// The other front-ends.
    pub(crate) struct ClusterFile {
        /// Front-ends that serve these nodes without talking to each other, this one included.
        /// Where agents count how many read them, the greater number counts.
        front_ends: u32 = 1, in 1..=FRONT_ENDS_MAX;
    }
}

table! {
    /// Everything has a limit, and a named refusal.
    pub(crate) struct LimitsFile {
        /// Threads that serve requests; `auto` is one per CPU.
        workers: Auto<u32> = Auto::Auto;
        /// Client connections. One more takes the place of one without a request, which has been silent for a second or sends its head
        /// slowly ([operating.md](operating.md#more-clients-than-places)); where there is none, it is answered 503. One holds
        /// up to 145 KiB with the defaults of `head` and `buffer`, less than 1 GiB in all; 4 KiB once it has been idle for a second.
        connections: u32 = 7000, in 1..=4_000_000;
        /// Upgraded connections (WebSocket), those included that ask for it; one more is answered 503.
        tunnels: u32 = 4096, in 1..=4_000_000;
        /// Bytes of a request's head (431) and of a response's (502).
        head: Size = Size::kib(16), in Size::kib(8)..=Size::kib(1024);
        /// Header fields of a request (431) and of a response (502). Up to 100 cost nothing.
        fields: u32 = 100, in 10..=1000;
        /// Bytes of a request's target (414).
        uri: Size = Size::kib(8), in Size::kib(1)..=Size::kib(1024);
        /// Bytes of a request's body (413); not set is no limit.
        body: Option<Size> = None;
        /// Bytes per second that a client must send of a body (408) and read of an answer (cut), in the long run:
        /// `body_idle` is free, and a faster client earns that time again. Waiting for a node does not
        /// count. 0 is no limit.
        body_rate: Size = Size(250), in Size(0)..=Size::kib(1024);
        /// The same for a request of a throttled class, with `throttled_idle`: it is not ended, but lends its place
        /// (`concurrency`) to the next, and takes one again before its node does more for it. 0: only a client that
        /// stands still counts.
        throttled_rate: Size = Size::kib(16), in Size(0)..=Size::kib(1024);
        /// Bytes buffered for each connection and direction.
        buffer: Size = Size::kib(16), in Size::kib(8)..=Size::kib(4096);
        /// Idle connections that each worker keeps to each node.
        pool_per_node: u32 = 128, in 0..=10_000;
        /// Nodes that a request may be tried at, the first included.
        tries: u32 = 3, in 1..=10;
        /// Bytes of a request's body that are held until its node has begun, where nodes say whether they have
        /// (`node_protocol = "h2"`): then it is sent again, whatever its method. At most 32 MiB a worker in all. 0: it is sent once.
        replay_body: Size = Size::kib(128), in Size(0)..=Size::kib(1024);
        /// What one source may take: an IPv4 address, or the first 64 bits of an IPv6 address. Those of `[forwarded] trusted`
        /// are not limited. Not set: there are no such limits.
        per_source: Option<PerSourceFile> = None;
    }
}

table! {
    /// What one source may take of this front-end, over all workers.
    pub(crate) struct PerSourceFile {
        /// Connections; one more is answered 429 (`source_connections`) before anything of it is read, and closed. Not
        /// set is no limit.
        connections: Option<u32> = None, in Some(1)..=Some(1_000_000);
        /// Requests per second in the long run; one more is answered 429 (`source_rate`). Not set is no limit.
        requests_per_second: Option<f64> = None, in Some(0.001)..=Some(1e6);
        /// Requests that may come at once; not set: as many as in a second, and one at least.
        burst: Option<u32> = None, in Some(1)..=Some(1_000_000);
    }
}

table! {
    /// How long the data plane waits for clients and nodes.
    pub(crate) struct TimeoutsFile {
        /// A client's request head, from its first byte to its last (408).
        client_head: Duration = seconds(10), in TIMEOUT_MIN..=TIMEOUT_MAX;
        /// A client between two requests.
        client_idle: Duration = seconds(60), in TIMEOUT_MIN..=TIMEOUT_MAX;
        /// A connection to a node (504).
        connect: Duration = seconds(2), in TIMEOUT_MIN..=TIMEOUT_MAX;
        /// A node's response head, from the end of the request (504).
        response_head: Duration = seconds(60), in TIMEOUT_MIN..=TIMEOUT_MAX;
        /// A body that stands still, in either direction.
        body_idle: Duration = seconds(60), in TIMEOUT_MIN..=TIMEOUT_MAX;
        /// A request of a throttled class that stands still for its client, until it lends its place to the next; at
        /// once when its class has lost that much of all its places.
        throttled_idle: Duration = seconds(2), in TIMEOUT_MIN..=TIMEOUT_MAX;
        /// A request's body in all (408); not set is no limit.
        request_body: Option<Duration> = None, in Some(TIMEOUT_MIN)..=Some(TIMEOUT_MAX);
        /// A response's body in all (cut); not set is no limit.
        response_body: Option<Duration> = None, in Some(TIMEOUT_MIN)..=Some(TIMEOUT_MAX);
        /// A request in all, from the end of its head to the last byte of its answer, waits for room included (504, or cut
        /// once the answer has begun); not set is no limit. An upgraded connection has none.
        total: Option<Duration> = None, in Some(TIMEOUT_MIN)..=Some(TIMEOUT_MAX);
        /// An upgraded connection that carries nothing in either direction.
        tunnel_idle: Duration = seconds(3600), in TIMEOUT_MIN..=TIMEOUT_MAX;
        /// An idle connection to a node in the pool.
        upstream_idle: Duration = seconds(30), in TIMEOUT_MIN..=TIMEOUT_MAX;
        /// A TCP connection of any kind without a sign of life is probed after this time, and closed when
        /// probes stay unanswered for as long again. To within seconds.
        tcp_keepalive: Duration = seconds(60), in seconds(1)..=seconds(7200);
        /// From the signal to stop, when `/readyz` begins to say no, until nothing new is accepted: time for a
        /// load balancer before Tidegate to notice.
        drain_delay: Duration = ms(0), in ms(0)..=seconds(3600);
        /// From then on, for requests in flight to end and for idle connections to close behind their next
        /// answer. The same for requests of a node that a change takes out of the cluster.
        drain: Duration = seconds(30), in TIMEOUT_MIN..=TIMEOUT_MAX;
    }
}

table! {
    /// What nodes learn about the client, and clients about the node.
    pub(crate) struct ForwardedFile {
        /// Send `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` to nodes.
        x_forwarded: bool = true;
        /// Send `Forwarded` (RFC 7239) to nodes.
        forwarded: bool = false;
        /// Addresses or ranges (`10.0.0.0/8`) of clients whose own claims are believed and
        /// appended to. Claims of all others are replaced or dropped: `Forwarded`, `Forwarded-For`, `X-Forwarded`,
        /// `X-Forwarded-` and anything, `X-Original-Forwarded-For`, `X-Real-IP`, `Client-IP`, `True-Client-IP`,
        /// `X-Client-IP`, `X-Cluster-Client-IP`, `X-Envoy-External-Address`, `X-AppEngine-User-IP`,
        /// `CF-Connecting-IP`, `CF-Connecting-IPv6`, `CF-Pseudo-IPv4`, `Fastly-Client-IP`, `WL-Proxy-Client-IP`,
        /// `WL-Proxy-SSL`, `Proxy-Client-IP`, `X-Originating-IP`, `X-Remote-IP`, `X-Remote-Addr`, `Remote-Addr`,
        /// `X-Source-IP`, `X-Azure-ClientIP`, `X-Azure-SocketIP`, `X-ProxyUser-IP`, `X-ForwardedFor`, `X-Host`,
        /// `X-Url-Scheme`, `Front-End-Https`, `Ali-CDN-Real-IP`, `CDN-Src-IP`, `CloudFront-Viewer-Address`,
        /// `DO-Connecting-IP`, `Fly-Client-IP`, `Incap-Client-IP`, `X-NF-Client-Connection-IP`, `X-Sucuri-ClientIP`,
        /// `X-Vercel-Forwarded-For`, `X-Vercel-Proxied-For`. In trailers they are dropped for all clients.
        trusted: Vec<At<String>> = Vec::new();
        /// Names of these, or `Proxy`, that go on to nodes from all clients. `Proxy` is else dropped for all:
        /// gateways make `HTTP_PROXY` of it. What says what is wanted of the node (`X-Original-URL`,
        /// `X-HTTP-Method-Override`) always goes on.
        keep: Vec<At<String>> = Vec::new();
        /// Pass on fields that many servers take for one that Tidegate sets or strips, since they
        /// take `_`, `.` and the like for `-`: `X_Forwarded_For`, `X.Real.IP`, `Transfer_Encoding`. Not set, they
        /// are dropped.
        underscores: bool = false;
        /// Tidegate's name in `Via`; not set is no `Via`, since it makes some servers send
        /// uncompressed answers.
        via: Option<String> = None;
        /// What becomes of a request that belongs to no trace (`traceparent` of W3C Trace Context): `pass` leaves it so, `make` begins one.
        /// Traces of clients go on as they are, but for the caller where `[traces]` exports the request.
        traceparent: TraceparentName = TraceparentName::Pass;
        /// The share of traces begun here that say that they are recorded; tracers behind mostly go by that.
        trace_sampled: f64 = 0.0, in 0.0..=1.0;
        /// Name the node that answered in `x-tidegate-node`, for debugging.
        node_header: bool = false;
    }
}

names! {
    /// What becomes of a request without a trace.
    pub(crate) enum TraceparentName as "treatment of traces" {
        /// It has none.
        Pass = "pass",
        /// It gets one.
        Make = "make",
    }
}

/// A table of which every key has its default.
///
/// # Panics
/// If a key of the table has none, which any test that reads a configuration shows.
pub(crate) fn defaults<T: super::setting::Setting>() -> T {
    let nothing = toml::de::DeValue::Table(toml::de::DeTable::new());
    let raw = toml::Spanned::new(0..0, nothing);
    T::decode(&raw, &mut super::problem::Problems::default())
        .expect("every key of this table has a default")
}
