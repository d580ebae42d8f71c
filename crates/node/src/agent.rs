//! The agent: samples and publishes as often as it is read, though not more often than is set, and answers reads.
//!
//! ```text
//!  sampling thread                    responder thread
//!  Sampler ── publish ──> RegionMemory ──> UDP reads
//!                              └─────────> mappings on this host (shm)
//! ```
//!
//! Deadlines are absolute: a sample that takes long delays no later one. A deadline that has
//! passed before its turn is skipped and counted as an overrun, because two samples in a row
//! would tell nothing new.
//!
//! The kernel answers instead where it does that (see `kernel.rs`); the sampler then adds what
//! only a process can see, and the responder stands by.
//!
//! **Rung.** Without the kernel, and with both threads at `SCHED_FIFO` the agent is on rung `agent_realtime`, else on
//! `agent`, the user-level monitoring of KLM-2005: then other load on the machine delays
//! samples or answers by milliseconds, just when they matter most. Which one it is goes into
//! every record, and why is said in [`AgentStatus::why`].

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::load::{Rung, Services};
use tidegate_core::record::{LoadRecord, Sources};
use tidegate_core::time::{Timestamp, nanos};
use tidegate_remote::kernel::{KernelError, SlowHalf, show};
use tidegate_remote::privilege::{self, CapabilitySet};
use tidegate_remote::rdma::{RdmaDemand, RdmaRefusals};
use tidegate_remote::realtime::{PRIORITY, RealtimeRefused, try_fifo};
use tidegate_remote::udp::{Connect, Responder, ResponderOptions, ResponderStats};
use tidegate_remote::{RegionError, RegionMemory, clock};

use crate::config::{AgentConfig, INTERVAL_MAX, INTERVAL_MIN, MovesConfig, USER_RUNGS};
use crate::demand::{Demand, REST, WAKE_FROM};
use crate::kernel::{Kernel, PACKETS, SLOW_INTERVAL};
use crate::moves::{MovesError, MovesEvent, MovesWatch};
use crate::privilege::{SAMPLING, looking_after};
use crate::rdma;
use crate::sampler::{CpuLines, Sampler, SamplerError, own_cpu_time};

/// Longest sleep at once, so that an agent with a long interval stops soon.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The thread looks at its own CPU time once in so many samples: the clock is a system call.
const CPU_TIME_SAMPLES: u64 = 32;

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The interval is out of bounds.
    #[error("interval {0:?} is not between {INTERVAL_MIN:?} and {INTERVAL_MAX:?}")]
    Interval(Duration),
    /// Nothing to sample.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// No region, or nowhere to answer.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// None of the rungs that it may try can be had; every refusal.
    #[error("none of the rungs that may be tried ({tried}) can be had here. {}", .why.join(" "))]
    Rungs {
        /// Their labels.
        tried: String,
        /// A sentence each.
        why: Vec<String>,
    },
    /// The kernel answers already, without any process.
    #[error(
        "the kernel answers on port {0} already, as `tidegate agent install` left it: no agent is needed; \
         `tidegate agent uninstall` removes it"
    )]
    Installed(u16),
    /// The kernel that answers does not take the agent's part.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The sampling thread keeps capabilities that it does not need.
    #[error("give privileges away: {0}")]
    Privileges(std::io::Error),
    /// Moves cannot be followed.
    #[error(transparent)]
    Moves(#[from] MovesError),
    /// No thread.
    #[error("start the sampling thread: {0}")]
    Thread(std::io::Error),
}

/// What an agent is and has done.
#[derive(Clone, Debug)]
pub struct AgentStatus {
    /// How the records are made.
    pub rung: Rung,
    /// Why this rung, what is measured, what is not and why: plain sentences.
    pub why: Vec<String>,
    /// Whether the threads that sample and that follow moves run; they end before their handle only by a panic.
    pub running: bool,
    /// The publication interval while it is read often.
    pub interval: Duration,
    /// Records published.
    pub samples: u64,
    /// Deadlines that passed before their turn came.
    pub overruns: u64,
    /// Mean time that a sample and its publication take.
    pub cost_mean: Duration,
    /// The longest.
    pub cost_max: Duration,
    /// CPU time of the sampling thread; a little behind.
    pub cpu_time: Duration,
    /// Time since the first sample.
    pub elapsed: Duration,
    /// What the responder has done.
    pub responder: ResponderStats,
    /// What the kernel has answered, if it answers.
    pub kernel: Option<ResponderStats>,
}

impl AgentStatus {
    /// Share of one CPU that sampling takes.
    pub fn cpu_share(&self) -> f64 {
        self.cpu_time.as_secs_f64() / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// What the sampling thread publishes. It alone writes, but for its orders.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Shortest time between two samples, ns. The handle writes it.
    interval_ns: AtomicU64,
    /// Longest time, ns; also the handle's.
    rest_ns: AtomicU64,
    started_ns: AtomicU64,
    samples: AtomicU64,
    overruns: AtomicU64,
    cost_ns: AtomicU64,
    cost_max_ns: AtomicU64,
    cpu_ns: AtomicU64,
    findings: Mutex<Vec<String>>,
    /// What service checks have shown, and whether anything is known of them.
    services: AtomicU32,
    /// The last sample.
    last: Mutex<(LoadRecord, CpuLines)>,
}

/// In [`Shared::services`]: something is known. Below it the checks that there are, and those that fail, a byte each.
const SERVICES_KNOWN: u32 = 1 << 16;

impl Shared {
    /// Adds to a record what service checks have shown.
    fn put_services(&self, record: &mut LoadRecord) {
        let word = self.services.load(Ordering::Relaxed);
        if word & SERVICES_KNOWN == 0 {
            return;
        }
        let (checked, failing) = (word >> 8 & 0xff, word & 0xff);
        record.services_checked = checked;
        record.services = u64::from(checked & !failing);
        record.sources = record.sources.with(Sources::SERVICES);
    }
}

/// Where service checks say what they have shown: it is in each record from then on.
#[derive(Clone, Debug)]
pub struct ServicesBoard(Arc<Shared>);

impl ServicesBoard {
    /// What is known of all of them.
    pub fn set(&self, services: Services) {
        let (checked, failing) = (services.checked.bits(), services.failing.bits());
        let word = SERVICES_KNOWN | u32::from(checked) << 8 | u32::from(failing);
        self.0.services.store(word, Ordering::Relaxed);
    }
}

/// Starts agents.
#[derive(Debug)]
pub struct Agent;

/// A running agent; ends when dropped.
#[derive(Debug)]
pub struct AgentHandle {
    shared: Arc<Shared>,
    responder: Responder,
    thread: Option<JoinHandle<()>>,
    kernel: Kernel,
    /// The rung without the kernel.
    user_rung: Rung,
    reasons: Vec<String>,
    rdma_fault: Option<String>,
    rdma_refusals: Option<RdmaRefusals>,
    interval: Duration,
    memory: Arc<RegionMemory>,
    moves: Option<MovesWatch>,
}

impl Agent {
    /// Starts the two threads. The first record is published when this returns.
    pub fn spawn(config: &AgentConfig) -> Result<AgentHandle, AgentError> {
        if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&config.interval) {
            return Err(AgentError::Interval(config.interval));
        }
        let sampler = Sampler::new(config)?;
        let listen = with_port(config.listen)?;
        let words = rdma::words(config, listen);
        let (kernel, mut reasons) = start_kernel(config, listen, words == Some(Ok(())))?;
        let shm = config.shm.as_deref();
        let memory = Arc::new(region(shm, &kernel)?);
        let slow = kernel.slow_half()?;
        let rdma = rdma::serve(config, listen, &kernel, &memory, words);
        let options = ResponderOptions {
            realtime: config.wants_realtime(),
            realtime_share: config.realtime_share,
            allow: config.allow.clone(),
            before_read: kernel.before_read(&memory)?,
            atomics: kernel.atomics()?,
            connect: rdma.node.map(|it| Box::new(it) as Box<dyn Connect>),
            ..ResponderOptions::new(listen, config.plain_keys())
        };
        let responder = Responder::spawn(Arc::clone(&memory), options)?;
        let answers = responder.realtime().map_err(Clone::clone);
        let interval = match kernel {
            // What the kernel does not answer is read where it is mapped.
            Kernel::Nothing => config.interval,
            _ if config.shm.is_some() => config.interval,
            Kernel::Answers(_) if rdma.demand.is_some() => config.interval,
            Kernel::Answers(_) | Kernel::Publishes(_) => config.interval.max(SLOW_INTERVAL),
        };
        let rest = match kernel {
            Kernel::Nothing => REST,
            // Reads that the kernel answers are not seen here.
            Kernel::Answers(_) | Kernel::Publishes(_) => SLOW_INTERVAL,
        };
        let shared = Arc::new(Shared {
            interval_ns: AtomicU64::new(nanos(interval)),
            rest_ns: AtomicU64::new(nanos(rest)),
            ..Shared::default()
        });
        let (thread, sampling) = Sampling {
            sampler,
            memory: Arc::clone(&memory),
            publishes: !matches!(kernel, Kernel::Publishes(_)),
            one_sided: rdma.demand,
            slow,
            shared: Arc::clone(&shared),
            realtime: config.wants_realtime(),
            answers_at_once: answers.is_ok(),
        }
        .start()?;
        let user_rung = rung(sampling.is_ok() && answers.is_ok());
        reasons.splice(0..0, kernel.describe());
        let on = kernel.rung().unwrap_or(user_rung);
        let address = responder.address();
        reasons.extend(explain(on, &sampling, &answers, address, shm));
        reasons.extend(rdma.said);
        reasons.extend(config.moves.iter().flat_map(MovesConfig::describe));
        let moves = config.moves.clone();
        let moves = moves.map(|it| MovesWatch::spawn(it, Arc::clone(&memory)));
        Ok(AgentHandle {
            moves: moves.transpose()?,
            shared,
            thread: Some(thread),
            kernel,
            user_rung,
            reasons,
            rdma_fault: rdma.fault,
            rdma_refusals: rdma.refusals,
            responder,
            interval: config.interval,
            memory,
        })
    }
}

/// The region, with the kernel's words where it keeps them.
fn region(shm: Option<&Path>, kernel: &Kernel) -> Result<RegionMemory, AgentError> {
    let region = match (kernel.words()?, shm) {
        (Some(words), shm) => RegionMemory::beside_kernel(shm, words),
        (None, Some(path)) => RegionMemory::create(path),
        (None, None) => RegionMemory::anonymous(),
    };
    Ok(region?)
}

/// The kernel's part, unless it is all that may be tried and cannot be had.
fn start_kernel(
    config: &AgentConfig,
    listen: SocketAddr,
    card_has_words: bool,
) -> Result<(Kernel, Vec<String>), AgentError> {
    // Beside it an agent would keep words of its own. Where there are no pins nothing is installed.
    if let Ok(Some(_)) = show(listen.port()) {
        return Err(AgentError::Installed(listen.port()));
    }
    let (kernel, why) = Kernel::start(config, listen, card_has_words);
    let tried = &config.rungs;
    if kernel.rung().is_some() || tried.iter().any(|rung| USER_RUNGS.contains(rung)) {
        return Ok((kernel, why));
    }
    let labels: Vec<_> = tried.iter().map(|rung| rung.label()).collect();
    let tried = labels.join(", ");
    Err(AgentError::Rungs { tried, why })
}

impl AgentHandle {
    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.responder.address()
    }

    /// Why nothing is served over RDMA, if that is wanted.
    pub fn rdma_fault(&self) -> Option<&str> {
        self.rdma_fault.as_deref()
    }

    /// Why a front-end could not be connected over RDMA, the last one since this was asked.
    pub fn rdma_refusal(&self) -> Option<String> {
        self.rdma_refusals.as_ref()?.take()
    }

    /// The region that it publishes in.
    pub fn memory(&self) -> &Arc<RegionMemory> {
        &self.memory
    }

    /// The last sample, on the rung on which front-ends get theirs. Where the kernel makes the record, this one lacks what
    /// only the kernel sees. It counts as a read: samples are made as often as they are asked for.
    pub fn last_sample(&self) -> (LoadRecord, CpuLines) {
        self.memory.note_read();
        let last = self.shared.last.lock();
        let (mut record, lines) = *last.unwrap_or_else(PoisonError::into_inner);
        record.rung = self.kernel.rung().unwrap_or(self.user_rung) as u8;
        (record, lines)
    }

    /// Where service checks say what they have shown.
    pub fn services(&self) -> ServicesBoard {
        ServicesBoard(Arc::clone(&self.shared))
    }

    /// What the calling thread needs to look after this agent and to end it.
    pub fn capabilities(&self) -> CapabilitySet {
        looking_after(&self.kernel)
    }

    /// Looks whether the kernel still answers; what has changed, a sentence each. To be called
    /// about once a second.
    pub fn look(&mut self) -> Vec<String> {
        let mut lost = self.kernel.look();
        if !lost.is_empty() && self.kernel.rung().is_none() {
            let interval = nanos(self.interval);
            self.shared.interval_ns.store(interval, Ordering::Relaxed);
            self.shared.rest_ns.store(nanos(REST), Ordering::Relaxed);
            let rung = self.user_rung.label();
            lost.push(format!("This agent answers on rung {rung} from now on"));
        }
        lost
    }

    /// What has happened to moves since the last time.
    pub fn moves_events(&self) -> Vec<MovesEvent> {
        self.moves
            .as_ref()
            .map_or_else(Vec::new, MovesWatch::events)
    }

    /// How it stands.
    pub fn status(&self) -> AgentStatus {
        let shared = &self.shared;
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let samples = read(&shared.samples);
        let started = Timestamp::from_nanos(read(&shared.started_ns));
        let mut why = self.reasons.clone();
        let findings = shared.findings.lock();
        why.extend_from_slice(&findings.unwrap_or_else(PoisonError::into_inner));
        AgentStatus {
            rung: self.kernel.rung().unwrap_or(self.user_rung),
            why,
            running: self
                .thread
                .as_ref()
                .is_some_and(|thread| !thread.is_finished())
                && self.moves.as_ref().is_none_or(MovesWatch::is_running),
            interval: Duration::from_nanos(read(&shared.interval_ns)),
            samples,
            overruns: read(&shared.overruns),
            cost_mean: Duration::from_nanos(
                read(&shared.cost_ns) / samples.saturating_sub(1).max(1),
            ),
            cost_max: Duration::from_nanos(read(&shared.cost_max_ns)),
            cpu_time: Duration::from_nanos(read(&shared.cpu_ns)),
            elapsed: clock::now().since(started),
            responder: self.responder.stats(),
            kernel: self.kernel.stats(),
        }
    }
}

impl Drop for AgentHandle {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself; there is nothing to add.
            thread.join().ok();
        }
    }
}

/// What the sampling thread is made from.
struct Sampling {
    sampler: Sampler,
    memory: Arc<RegionMemory>,
    publishes: bool,
    one_sided: Option<RdmaDemand>,
    slow: Option<SlowHalf>,
    shared: Arc<Shared>,
    realtime: bool,
    /// The responder is at real-time priority.
    answers_at_once: bool,
}

impl Sampling {
    /// Starts the thread, and waits for its first record; says whether it is at real-time priority.
    fn start(self) -> Result<(JoinHandle<()>, Result<(), RealtimeRefused>), AgentError> {
        let (told, first) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("tidegate-sample".to_owned())
            .spawn(move || {
                let sampling = realtime(self.realtime);
                if let Err(error) = privilege::keep(SAMPLING) {
                    // The thread that spawned this one waits for it.
                    told.send(Err(error)).ok();
                    return;
                }
                let mut sampler = self.sampler;
                let mut publisher = Publisher {
                    sampler: &mut sampler,
                    memory: &self.memory,
                    publishes: self.publishes,
                    demand: Demand::default(),
                    one_sided: self.one_sided,
                    slow: self.slow,
                    shared: &self.shared,
                    rung: rung(sampling.is_ok() && self.answers_at_once),
                    why_version: None,
                };
                publisher.publish();
                told.send(Ok(sampling)).ok();
                publisher.run();
            })
            .map_err(AgentError::Thread)?;
        let sampling = first.recv().unwrap_or(Ok(Err(RealtimeRefused::Unwanted)));
        Ok((thread, sampling.map_err(AgentError::Privileges)?))
    }
}

/// What the sampling thread works with.
struct Publisher<'a> {
    sampler: &'a mut Sampler,
    memory: &'a RegionMemory,
    /// Not if the kernel's own record goes there.
    publishes: bool,
    demand: Demand,
    /// Front-ends that read unseen.
    one_sided: Option<RdmaDemand>,
    slow: Option<SlowHalf>,
    shared: &'a Shared,
    rung: Rung,
    why_version: Option<u64>,
}

impl Publisher<'_> {
    fn run(&mut self) {
        let mut next = clock::now();
        self.shared
            .started_ns
            .store(next.nanos(), Ordering::Relaxed);
        loop {
            let (now, reads) = (clock::now(), self.memory.reads());
            let interval = self.interval(now, reads);
            let (deadline, missed) = following(next, now, interval);
            self.shared.overruns.fetch_add(missed, Ordering::Relaxed);
            next = deadline;
            if !self.sleep(&mut next, (interval >= WAKE_FROM).then_some(reads)) {
                return;
            }
            let cost = self.publish();
            let shared = self.shared;
            shared.cost_ns.fetch_add(cost, Ordering::Relaxed);
            shared.cost_max_ns.fetch_max(cost, Ordering::Relaxed);
        }
    }

    /// How long the next record may be away.
    fn interval(&mut self, now: Timestamp, reads: u64) -> Duration {
        let of = |ns: &AtomicU64| Duration::from_nanos(ns.load(Ordering::Relaxed));
        let (shortest, rest) = (of(&self.shared.interval_ns), of(&self.shared.rest_ns));
        let interval = self.demand.interval(now, reads, shortest, rest);
        // What reads over RDMA cannot be counted, and may read that often.
        let unseen = self.one_sided.as_ref().is_some_and(|it| it.is_there(now));
        let interval = if unseen { shortest } else { interval };
        self.sampler.set_interval(interval);
        interval
    }

    /// Sleeps until the deadline, or a read that is not among the first `seen` makes it pass early; not if it is to stop.
    fn sleep(&self, deadline: &mut Timestamp, seen: Option<u64>) -> bool {
        loop {
            if self.shared.stop.load(Ordering::Acquire) {
                return false;
            }
            let now = clock::now();
            if now >= *deadline {
                return true;
            }
            let until = (*deadline).min(now + SLEEP_MAX);
            let Some(seen) = seen else {
                clock::sleep_until(until);
                continue;
            };
            self.memory.sleep_until_read(seen, until);
            if self.memory.reads() != seen {
                *deadline = (*deadline).min(clock::now());
            }
        }
    }

    /// Makes and publishes a record; returns what it took, ns. The first one, which opens all
    /// files, is in no mean.
    fn publish(&mut self) -> u64 {
        let began = clock::now();
        let (mut record, lines) = self.sampler.sample();
        record.rung = self.rung as u8;
        self.shared.put_services(&mut record);
        if self.publishes {
            self.memory.publish(&record, &lines);
        }
        if let Some(slow) = &mut self.slow {
            slow.publish(&record);
        }
        self.tell();
        let shared = self.shared;
        // A reader that has it now takes the next one.
        if let Ok(mut last) = shared.last.try_lock() {
            *last = (record, lines);
        }
        let samples = shared.samples.fetch_add(1, Ordering::Relaxed);
        if samples.is_multiple_of(CPU_TIME_SAMPLES) {
            shared
                .cpu_ns
                .store(nanos(own_cpu_time()), Ordering::Relaxed);
        }
        nanos(clock::now().since(began))
    }

    /// Writes the findings down if they changed and no thread is reading them: this thread does
    /// not wait for one of lower priority.
    fn tell(&mut self) {
        let version = Some(self.sampler.why_version());
        if version == self.why_version {
            return;
        }
        if let Ok(mut findings) = self.shared.findings.try_lock() {
            *findings = self.sampler.why();
            self.why_version = version;
        }
    }
}

/// The deadline after `last` that lies ahead, and how many passed unused.
fn following(last: Timestamp, now: Timestamp, interval: Duration) -> (Timestamp, u64) {
    let next = last + interval;
    if now < next {
        return (next, 0);
    }
    let interval = nanos(interval).max(1);
    let missed = (now.nanos() - next.nanos()) / interval + 1;
    let ahead = next + Duration::from_nanos(missed.saturating_mul(interval));
    (ahead, missed)
}

fn realtime(wanted: bool) -> Result<(), RealtimeRefused> {
    if wanted {
        try_fifo(PRIORITY)
    } else {
        Err(RealtimeRefused::Unwanted)
    }
}

fn rung(realtime: bool) -> Rung {
    if realtime {
        Rung::AgentRealtime
    } else {
        Rung::Agent
    }
}

/// The address with a port that is free, if it has none.
fn with_port(listen: SocketAddr) -> Result<SocketAddr, AgentError> {
    if listen.port() != 0 {
        return Ok(listen);
    }
    // The programs have to know the port before the responder takes it.
    let free = std::net::UdpSocket::bind(listen).and_then(|socket| socket.local_addr());
    free.map_err(|error| {
        AgentError::Region(RegionError::Io {
            what: "find a free port",
            error,
        })
    })
}

/// Why this rung and where it is read.
fn explain(
    on: Rung,
    sampling: &Result<(), RealtimeRefused>,
    answers: &Result<(), RealtimeRefused>,
    address: SocketAddr,
    shm: Option<&Path>,
) -> Vec<String> {
    let priority = |who: &str, how: &Result<(), RealtimeRefused>| match how {
        Ok(()) => format!("{who} has real-time priority (SCHED_FIFO {PRIORITY})."),
        Err(why) => format!("{who} has normal priority: {why}."),
    };
    let how = if PACKETS.contains(&on) {
        "the kernel answers, a process adds to it"
    } else if on == Rung::KernelRecord {
        "the kernel makes the record, a process sends it"
    } else {
        "a user process samples and answers"
    };
    let mut reasons = vec![
        format!("This agent is on rung {}: {how}.", on.label()),
        priority("The sampling thread", sampling),
        priority("The responder thread", answers),
        format!("Front-ends read it over UDP at {address}."),
    ];
    if let Some(path) = shm {
        let shared = Rung::SharedMemory.label();
        reasons.push(format!(
            "Front-ends on this host read it from {}, rung {shared}.",
            path.display()
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use tidegate_core::topology::CheckSet;

    use super::*;

    #[test]
    fn passed_deadlines_are_skipped_and_counted() {
        let ms = Timestamp::from_millis;
        let interval = Duration::from_millis(10);
        let table = [
            (100, 101, 110, 0),
            (100, 109, 110, 0),
            (100, 110, 120, 1),
            (100, 119, 120, 1),
            (100, 135, 140, 3),
            (100, 90, 110, 0),
        ];
        for (last, now, next, missed) in table {
            assert_eq!(following(ms(last), ms(now), interval), (ms(next), missed));
        }
    }

    #[test]
    fn services_are_in_records_once_something_is_known() {
        let board = ServicesBoard(Arc::default());
        let record = || {
            let mut record = LoadRecord::default();
            board.0.put_services(&mut record);
            record
        };
        assert_eq!(record(), LoadRecord::default());
        board.set(Services {
            checked: CheckSet::from_bits(0b1011),
            failing: CheckSet::from_bits(0b1000),
        });
        let said = record();
        assert!(said.sources.has(Sources::SERVICES));
        assert_eq!((said.services_checked, said.services), (0b1011, 0b11));
    }

    #[test]
    fn the_rung_is_explained() {
        let refused = Err(RealtimeRefused::Unwanted);
        let address = ([127, 0, 0, 1], 9901).into();
        let text = explain(
            Rung::Agent,
            &Ok(()),
            &refused,
            address,
            Some(Path::new("/run/t")),
        )
        .join("\n");
        assert!(text.contains("on rung agent:"), "{text}");
        assert!(text.contains("The responder thread has normal priority: not asked for."));
        assert!(text.contains("/run/t, rung shm"), "{text}");
        let text = explain(Rung::AgentRealtime, &Ok(()), &Ok(()), address, None).join("\n");
        assert!(text.contains("on rung agent_realtime:"), "{text}");
    }
}
