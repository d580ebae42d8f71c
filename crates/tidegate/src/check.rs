//! Carries checks out: asks a node as its site wants it, and says what is wrong with the answer. A file per kind.
//!
//! Each check has a connection of its own, which ends with it: what is asked is whether a new client would be served.
//! Of an answer so much is read as is needed, and no more than 64 KiB.
//!
//! ```text
//! asked ──> waits for a turn of its site, then of all ──> runs ──> its result        each check of each node
//! asked again while it waits     it keeps its place, and its result is that of the later question
//! asked again while it runs      what runs is broken off: the site is checked in another way by now
//! ```
//!
//! So many run at once of a site, and so many of all: nodes that hang for long take turns from their own site first.
//! Failure case: two sites whose nodes all hang let the checks of others wait for as long as their time-outs are.

mod dns;
mod exec;
mod ftp;
mod grpc;
mod http;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../fuzz/invariants/service_answers.rs"]
pub(crate) mod invariants;
mod nfs;
mod smb;
mod tcp;
mod udp;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::director::CheckDue;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{
    CheckConfig, CheckFailure, CheckId, CheckRequest, CheckResult, NodeId, SiteId, Topology,
};
use tidegate_proxy::{NodeTls, ProxyVersion, Shared, SiteSetter, is_own_fault};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{AcquireError, Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::driver::Overrides;

/// Checks that run at once, of all sites and of one; the others wait for their turn.
const RUNNING_MAX: usize = 128;
const OF_SITE_MAX: usize = 64;
/// Programs that run at once, of those.
const PROGRAMS_MAX: usize = 8;
/// Bytes of an answer that are looked at.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 4096;

/// What became of one of a node's checks so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CheckCounts {
    /// How often it passed.
    pub(crate) passed: u64,
    /// How often it failed, by what was wrong.
    pub(crate) failed: BTreeMap<&'static str, u64>,
    /// How long all of that took, seconds.
    pub(crate) seconds: f64,
    /// The last time.
    pub(crate) last: Option<LastCheck>,
}

/// Of a node: its checks by their labels, which stay when a reload gives them other places.
#[derive(Debug, Default)]
struct NodeCounts {
    /// Of the nodes that had its place.
    generation: u32,
    by_label: BTreeMap<String, CheckCounts>,
}

/// A check that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LastCheck {
    /// When it ended.
    pub(crate) at: Timestamp,
    /// How.
    pub(crate) result: CheckResult,
    /// How long it took.
    pub(crate) took: Duration,
    /// Checks in a row that ended so: passed or failed.
    pub(crate) in_a_row: u64,
}

/// Checks of all nodes, for those that look at them.
#[derive(Debug)]
pub(crate) struct Checks {
    nodes: Mutex<BTreeMap<NodeId, NodeCounts>>,
    asked: Mutex<BTreeMap<AskedOf, Asked>>,
    sites: Mutex<BTreeMap<SiteId, Arc<Semaphore>>>,
    running: Semaphore,
    programs: Semaphore,
}

/// A node, and which of its checks.
type AskedOf = (NodeId, CheckId);

/// A check of a node that waits or runs.
#[derive(Debug)]
struct Asked {
    /// As the director knows it.
    number: u64,
    /// What breaks it off, once it runs.
    running: Option<AbortHandle>,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            nodes: Mutex::default(),
            asked: Mutex::default(),
            sites: Mutex::default(),
            running: Semaphore::new(RUNNING_MAX),
            programs: Semaphore::new(PROGRAMS_MAX),
        }
    }
}

impl Checks {
    /// What became of the check of this label of the node that has this place, if there was any.
    pub(crate) fn of(&self, node: NodeId, generation: u32, label: &str) -> Option<CheckCounts> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = nodes.get(&node).filter(|it| it.generation == generation)?;
        known.by_label.get(label).cloned()
    }

    /// Takes a question in; whether it needs a turn of its own.
    fn ask(&self, due: CheckDue) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let new = Asked {
            number: due.number,
            running: None,
        };
        let of = (due.node, due.check);
        match asked.get_mut(&of) {
            Some(waits) if waits.running.is_none() => {
                waits.number = due.number;
                false
            }
            _ => {
                if let Some(before) = asked.insert(of, new).and_then(|it| it.running) {
                    before.abort();
                }
                true
            }
        }
    }

    /// The node's check begins to run, by this handle: its latest number.
    fn begins(&self, of: AskedOf, running: AbortHandle) -> Option<u64> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = asked.get_mut(&of)?;
        waits.running = Some(running);
        Some(waits.number)
    }

    /// The check of this number runs no more.
    fn ends(&self, due: CheckDue) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |it: &Asked| it.number == due.number && it.running.is_some();
        let of = (due.node, due.check);
        if asked.get(&of).is_some_and(is_it) {
            asked.remove(&of);
        }
    }

    fn turns_of(&self, site: SiteId) -> Arc<Semaphore> {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = sites.entry(site);
        Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(OF_SITE_MAX))))
    }

    /// Counts a check of a node that is checked in these ways.
    fn ended(
        &self,
        (node, generation): (NodeId, u32),
        configs: &[CheckConfig],
        label: &str,
        ended: EndedCheck,
    ) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = nodes.entry(node).or_default();
        if known.generation != generation {
            *known = NodeCounts {
                generation,
                ..NodeCounts::default()
            };
        }
        let is_made = |label: &str| configs.iter().any(|it| it.label == label);
        known.by_label.retain(|label, _| is_made(label));
        let counts = known.by_label.entry(label.into()).or_default();
        counts.count(ended);
    }
}

/// How a check ended just now.
#[derive(Clone, Copy, Debug)]
struct EndedCheck {
    at: Timestamp,
    result: CheckResult,
    took: Duration,
}

impl CheckCounts {
    fn count(&mut self, ended: EndedCheck) {
        let passed = ended.result == CheckResult::Passed;
        let same = |last: &LastCheck| (last.result == CheckResult::Passed) == passed;
        let before = self.last.filter(same).map_or(0, |last| last.in_a_row);
        match ended.result {
            CheckResult::Passed => self.passed += 1,
            CheckResult::Failed(failure) => {
                *self.failed.entry(failure.label()).or_default() += 1;
            }
        }
        self.seconds += ended.took.as_secs_f64();
        self.last = Some(LastCheck {
            at: ended.at,
            result: ended.result,
            took: ended.took,
            in_a_row: before + 1,
        });
    }
}

/// What checks are made with.
#[derive(Clone, Debug)]
pub(crate) struct Making {
    /// Nodes, and how they are checked.
    pub(crate) shared: Arc<Shared>,
    /// How TLS is spoken with them.
    pub(crate) sites: SiteSetter,
    /// Where results are counted.
    pub(crate) checks: Arc<Checks>,
    /// Where they go.
    pub(crate) driver: Overrides,
    pub(crate) clock: fn() -> Timestamp,
}

/// Has a check made, in its turn.
pub(crate) fn begin(due: CheckDue, making: &Making) {
    if making.checks.ask(due) {
        tokio::spawn(in_turn((due.node, due.check), making.clone()));
    }
}

async fn in_turn(of: AskedOf, making: Making) {
    let (node, check) = of;
    let Making { shared, checks, .. } = &making;
    let site = shared.topology.load().node(node).site;
    let of_site = checks.turns_of(site);
    let turns = async {
        // Checks of other kinds do not wait for programs.
        let runs_program = runs_program(&shared.topology.load(), of);
        let program = match runs_program {
            true => Some(checks.programs.acquire().await?),
            false => None,
        };
        let of_site = of_site.acquire().await?;
        Ok::<_, AcquireError>((program, of_site, checks.running.acquire().await?))
    };
    // They are never closed.
    let Ok(_turns) = turns.await else {
        return;
    };
    let (begins, number) = oneshot::channel();
    let running = tokio::spawn({
        let making = making.clone();
        async move {
            if let Ok(number) = number.await {
                let due = CheckDue {
                    node,
                    check,
                    number,
                };
                run(due, &making).await;
                making.checks.ends(due);
            }
        }
    });
    if let Some(number) = checks.begins(of, running.abort_handle()) {
        begins.send(number).ok();
    }
    // Also one that is broken off gives its turn back.
    running.await.ok();
}

/// Makes a check, and hands its result to the driver.
async fn run(due: CheckDue, making: &Making) {
    let Making {
        shared,
        sites,
        checks,
        driver,
        clock,
    } = making;
    let topology = shared.topology.load_full();
    let node = topology.node(due.node);
    let configs = &topology.site(node.site).health.checks;
    let Some(config) = configs.get(due.check.index()) else {
        return driver.checked(due, None);
    };
    let rule = sites.node_tls(node.site).filter(|_| config.tls);
    if config.tls && rule.is_none() {
        // A reload is under way that takes it away.
        return driver.checked(due, None);
    }
    let mut address = node.address;
    address.set_port(config.port.unwrap_or(address.port()));
    let begun = clock();
    let target = Target {
        address,
        node: &node.name,
        site: Some(&topology.site(node.site).name),
        tls: rule.as_deref(),
        http2: config.port.is_none() && sites.node_http2(node.site),
        proxy: (sites.node_proxy_protocol(node.site)).filter(|_| config.port.is_none()),
    };
    let result = check(&target, config).await;
    let at = clock();
    if let Some(result) = result {
        let took = at.since(begun);
        let ended = EndedCheck { at, result, took };
        let place = (due.node, node.generation);
        checks.ended(place, configs, &config.label, ended);
    }
    driver.checked(due, result);
}

/// Why a check has not passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unwell {
    /// This machine could not ask, which says nothing of the node.
    Unasked,
    /// That is wrong with the answer.
    Failed(CheckFailure),
}

impl From<CheckFailure> for Unwell {
    fn from(failure: CheckFailure) -> Self {
        Self::Failed(failure)
    }
}

/// What is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// Where. A program is given no port if it is 0.
    pub(crate) address: SocketAddr,
    /// Which node.
    pub(crate) node: &'a str,
    /// Of which site; an agent does not know it.
    pub(crate) site: Option<&'a str>,
    /// How TLS is spoken there, if the check is made through it.
    pub(crate) tls: Option<&'a NodeTls>,
    /// Whether a check by `http` speaks HTTP/2.
    pub(crate) http2: bool,
    /// The header of the PROXY protocol that its connection begins with, if it does with one.
    pub(crate) proxy: Option<ProxyVersion>,
}

fn runs_program(topology: &Topology, (node, check): AskedOf) -> bool {
    let health = &topology.site(topology.node(node).site).health;
    let check = health.checks.get(check.index());
    check.is_some_and(|it| matches!(it.request, CheckRequest::Exec(_)))
}

/// What a node makes of a check, outside of any turn; nothing if this machine could not ask.
pub(crate) async fn check(target: &Target<'_>, config: &CheckConfig) -> Option<CheckResult> {
    let asked = timeout(config.timeout, ask(target, config)).await;
    match asked.unwrap_or(Err(CheckFailure::Timeout.into())) {
        Ok(()) => Some(CheckResult::Passed),
        Err(Unwell::Failed(failure)) => Some(CheckResult::Failed(failure)),
        Err(Unwell::Unasked) => None,
    }
}

async fn ask(target: &Target<'_>, config: &CheckConfig) -> Result<(), Unwell> {
    let address = target.address;
    match &config.request {
        CheckRequest::Tcp(wanted) => tcp::ask(target, wanted).await,
        CheckRequest::Udp(wanted) => udp::ask(address, wanted).await,
        CheckRequest::Dns(wanted) => dns::ask(address, wanted).await,
        CheckRequest::Ftp(login) => ftp::ask(address, login.as_ref()).await,
        CheckRequest::Nfs(version) => nfs::ask(address, *version).await,
        CheckRequest::Smb => smb::ask(address).await,
        CheckRequest::Exec(command) => exec::ask(target, command, config.timeout).await,
        CheckRequest::Http(wanted) => http::ask(target, wanted).await,
        CheckRequest::Grpc(service) => grpc::ask(target, service).await,
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, Unwell> {
    match TcpStream::connect(address).await {
        Err(error) if is_own_fault(&error) => Err(Unwell::Unasked),
        Err(_) => Err(CheckFailure::Connect.into()),
        Ok(stream) => Ok(stream),
    }
}

/// A connection, plain or through TLS.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The connection, on which nothing but its header was said: it is no client's.
pub(crate) async fn opened(
    mut stream: TcpStream,
    proxy: Option<ProxyVersion>,
) -> std::io::Result<TcpStream> {
    if let Some(version) = proxy {
        stream.write_all(version.of_own()).await?;
    }
    Ok(stream)
}

async fn connect_by(target: &Target<'_>) -> Result<Box<dyn Duplex>, Unwell> {
    let stream = opened(connect(target.address).await?, target.proxy).await;
    let stream = stream.map_err(|_| CheckFailure::Broken)?;
    let Some(tls) = target.tls else {
        return Ok(Box::new(stream));
    };
    match tls.shake_hands(stream, target.address).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(failure) => Err(CheckFailure::Tls(failure.what()).into()),
    }
}

/// Reads until `judge` knows what the answer is: `most` bytes of it, and what is wrong with a longer one.
async fn read_answer<T>(
    stream: &mut TcpStream,
    read: &mut Vec<u8>,
    (most, too_long): (usize, CheckFailure),
    judge: impl Fn(&[u8]) -> Result<Option<T>, CheckFailure>,
) -> Result<T, Unwell> {
    let mut piece = [0; PIECE_BYTES];
    loop {
        if let Some(answer) = judge(read)? {
            return Ok(answer);
        }
        if read.len() >= most {
            return Err(too_long.into());
        }
        let count = stream.read(&mut piece).await;
        let count = count.map_err(|_| CheckFailure::Broken)?;
        if count == 0 {
            return Err(CheckFailure::Broken.into());
        }
        read.extend_from_slice(&piece[..count]);
    }
}

/// Whether an answer contains a text; each contains the empty one.
fn contains(bytes: &[u8], text: &[u8]) -> bool {
    text.is_empty() || bytes.windows(text.len()).any(|window| window == text)
}

#[cfg(test)]
mod tests {
    use tidegate_core::topology::BytesCheck;
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing;

    async fn check_at(address: SocketAddr, config: &CheckConfig) -> Option<CheckResult> {
        let target = Target {
            address,
            node: "n1",
            site: Some("shop"),
            tls: None,
            http2: false,
            proxy: None,
        };
        check(&target, config).await
    }

    fn config(request: CheckRequest) -> CheckConfig {
        CheckConfig {
            label: "tcp".into(),
            request,
            port: None,
            tls: false,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(60),
            rise: 2,
            fall: 3,
        }
    }

    #[test]
    fn each_check_of_a_node_waits_or_runs_once() {
        testing::runtime().block_on(async {
            let checks = Checks::default();
            let of = (NodeId(7), CheckId(1));
            let due = |number| CheckDue {
                node: of.0,
                check: of.1,
                number,
            };
            let hangs = tokio::spawn(std::future::pending::<()>());
            assert!(checks.ask(due(1)));
            assert!(!checks.ask(due(2)), "it waits already");
            let other = CheckDue {
                check: CheckId(0),
                ..due(9)
            };
            assert!(checks.ask(other), "another one does not");
            assert_eq!(checks.begins(of, hangs.abort_handle()), Some(2));
            // Of an older question: nothing ends.
            checks.ends(due(1));
            assert!(checks.ask(due(3)), "what runs is broken off");
            assert!(hangs.await.unwrap_err().is_cancelled());
            checks.ends(due(2));
            assert!(!checks.ask(due(4)), "the later one waits");
            let runs = tokio::spawn(async {});
            assert_eq!(checks.begins(of, runs.abort_handle()), Some(4));
            checks.ends(due(4));
            let asked = checks.asked.lock().unwrap();
            assert!(asked.keys().eq([&(NodeId(7), CheckId(0))]));
        });
    }

    #[test]
    fn nodes_that_hang_take_turns_from_their_own_site_first() {
        let checks = Checks::default();
        let (one, other) = (checks.turns_of(SiteId(0)), checks.turns_of(SiteId(1)));
        let of_one: Vec<_> = (0..OF_SITE_MAX)
            .map(|_| one.try_acquire().unwrap())
            .collect();
        let all: Vec<_> = (0..OF_SITE_MAX)
            .map(|_| checks.running.try_acquire().unwrap())
            .collect();
        assert!(checks.turns_of(SiteId(0)).try_acquire().is_err());
        assert!(other.try_acquire().is_ok() && checks.running.try_acquire().is_ok());
        drop((of_one, all));
    }

    #[test]
    fn a_connection_is_enough_for_a_tcp_check() {
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let tcp = config(CheckRequest::Tcp(BytesCheck::NOTHING));
            assert_eq!(check_at(address, &tcp).await, Some(CheckResult::Passed));
            drop(listener);
            let failed = CheckResult::Failed(CheckFailure::Connect);
            assert_eq!(check_at(address, &tcp).await, Some(failed));
        });
    }

    #[test]
    fn a_node_that_hangs_fails_in_time() {
        testing::runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let greeting = BytesCheck {
                expect: b"220".into(),
                ..BytesCheck::NOTHING
            };
            let hangs = CheckConfig {
                timeout: Duration::from_millis(20),
                ..config(CheckRequest::Tcp(greeting))
            };
            let failed = CheckResult::Failed(CheckFailure::Timeout);
            assert_eq!(check_at(address, &hangs).await, Some(failed));
        });
    }

    #[test]
    fn results_are_counted_by_what_was_wrong_and_in_a_row() {
        let checks = Checks::default();
        let node = NodeId(3);
        let configs = ["a", "b"].map(|label| CheckConfig {
            label: label.into(),
            ..config(CheckRequest::Smb)
        });
        let failed = CheckResult::Failed(CheckFailure::Status(503));
        for result in [CheckResult::Passed, failed, failed] {
            let ended = EndedCheck {
                at: testing::now(),
                result,
                took: Duration::from_millis(500),
            };
            checks.ended((node, 7), &configs, "b", ended);
        }
        let seen = checks.of(node, 7, "b").unwrap();
        assert_eq!(
            (seen.passed, seen.failed["status"], seen.seconds),
            (1, 2, 1.5)
        );
        assert_eq!(seen.last.unwrap().in_a_row, 2);
        assert_eq!(checks.of(node, 8, "b"), None, "another node's");
        assert_eq!(checks.of(node, 7, "a"), None, "another check's");
        let ended = EndedCheck {
            at: testing::now(),
            result: failed,
            took: Duration::ZERO,
        };
        checks.ended((node, 7), &configs[..1], "a", ended);
        assert_eq!(checks.of(node, 7, "b"), None, "it is made no more");
    }
}
