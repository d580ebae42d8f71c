//! The agent's best rungs: let the kernel answer, or at least make the record.
//!
//! ```text
//! rung 1, 2, 3   packet ──> XDP or TC program ──> answer          the agent adds what only a
//! rung 4         packet ──> responder ──> record of a timer       process can see, each 50 ms
//! rung 5, 6      packet ──> responder ──> record of the sampler
//! ```
//!
//! Each rung is tried from the top, and each refusal is kept as a sentence. A program that
//! is removed at run time is noticed ([`Kernel::look`]); the responder behind it, which
//! listens on the same port all the time, answers from then on.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_core::time::Timestamp;
use tidegate_remote::kernel::{
    KernelError, KernelOptions, KernelPublisher, KernelResponder, KernelScope, SlowHalf,
    clear_left_over,
};
use tidegate_remote::udp::{BeforeRead, CarryOut, ResponderStats};
use tidegate_remote::{KernelWords, RegionMemory};

use crate::config::{AgentConfig, Scope};
use crate::sampler::cpu_group;

/// Between two samples of what changes slowly, while the kernel tells the rest.
pub(crate) const SLOW_INTERVAL: Duration = Duration::from_millis(50);
/// Shortest time between two copies of the timer's record.
const COPY_EVERY: Duration = Duration::from_micros(50);

/// Rungs on which the kernel answers, and keeps the words: no card serves these then.
pub const PACKETS: [Rung; 3] = [Rung::XdpNative, Rung::XdpGeneric, Rung::Tc];
/// Why they are not tried.
const NO_PACKETS: &str =
    "The kernel does not answer: it would keep words of its own, and those are served over RDMA.";

/// What the kernel does for an agent.
#[derive(Debug)]
pub(crate) enum Kernel {
    /// It answers.
    Answers(KernelResponder),
    /// It makes the record.
    Publishes(KernelPublisher),
    /// Nothing.
    Nothing,
}

impl Kernel {
    /// The best of the agent's kernel rungs that this kernel grants, and why not a better one. `card_has_words`: a card
    /// serves the node's words, and the kernel must not keep others.
    pub(crate) fn start(
        config: &AgentConfig,
        listen: SocketAddr,
        card_has_words: bool,
    ) -> (Self, Vec<String>) {
        let mut why = Vec::new();
        let wants = |rung: &Rung| config.rungs.contains(rung);
        let packets: &[Rung] = match card_has_words {
            false => &PACKETS,
            true => &[],
        };
        if card_has_words && PACKETS.iter().any(wants) {
            why.push(NO_PACKETS.into());
        }
        // Front-ends that map the region want the record there, where a timer cannot put it.
        let timer = wants(&Rung::KernelRecord) && config.shm.is_none();
        // A filter of before would answer in this agent's place, whatever its rung is.
        let stays = clear_left_over(listen).into_iter();
        why.extend(stays.map(|it| format!("Not alone: {it}.")));
        if !packets.iter().any(wants) && !wants(&Rung::KernelRecord) {
            return (Self::Nothing, why);
        }
        let options = match options(config, listen) {
            Ok(options) => options,
            Err(error) => {
                why.push(format!("The kernel cannot be asked: {error}."));
                return (Self::Nothing, why);
            }
        };
        if packets.iter().any(wants) {
            match KernelResponder::attach(&options) {
                Ok(responder) => {
                    why.extend(
                        responder
                            .refusals()
                            .iter()
                            .map(|it| format!("Not better: {it}.")),
                    );
                    return (Self::Answers(responder), why);
                }
                Err(error) => why.push(format!("The kernel does not answer: {error}.")),
            }
        }
        if !timer && wants(&Rung::KernelRecord) {
            let text = "A timer's record does not get into the memory that front-ends map.";
            why.push(text.into());
        }
        if timer {
            match KernelPublisher::start(&options, config.interval) {
                Ok(publisher) => return (Self::Publishes(publisher), why),
                Err(error) => why.push(format!("The kernel makes no record: {error}.")),
            }
        }
        (Self::Nothing, why)
    }

    /// The rung that it gives, if it gives one.
    pub(crate) fn rung(&self) -> Option<Rung> {
        match self {
            Self::Answers(responder) => responder.rungs().map(|(_, rung)| rung).max(),
            Self::Publishes(_) => Some(Rung::KernelRecord),
            Self::Nothing => None,
        }
    }

    /// Where the sampler tells what only it can see.
    pub(crate) fn slow_half(&self) -> Result<Option<SlowHalf>, KernelError> {
        match self {
            Self::Answers(responder) => responder.slow_half().map(Some),
            Self::Publishes(publisher) => publisher.slow_half().map(Some),
            Self::Nothing => Ok(None),
        }
    }

    /// The words that it keeps, if it does.
    pub(crate) fn words(&self) -> Result<Option<KernelWords>, KernelError> {
        match self {
            Self::Answers(responder) => responder.words().map(Some),
            Self::Publishes(_) | Self::Nothing => Ok(None),
        }
    }

    /// What carries atomics out on those words.
    pub(crate) fn atomics(&self) -> Result<Option<Box<dyn CarryOut>>, KernelError> {
        match self {
            Self::Answers(responder) => Ok(Some(Box::new(responder.atomics()?))),
            Self::Publishes(_) | Self::Nothing => Ok(None),
        }
    }

    /// Takes the timer's record over at the moment of a read.
    pub(crate) fn before_read(
        &self,
        memory: &std::sync::Arc<RegionMemory>,
    ) -> Result<Option<BeforeRead>, KernelError> {
        let Self::Publishes(publisher) = self else {
            return Ok(None);
        };
        let record = publisher.record()?;
        let memory = std::sync::Arc::clone(memory);
        let mut last = 0;
        let hook = move |_: Timestamp| {
            // One that is torn each time is followed by another within a millisecond.
            if let Ok((record, lines)) = record.read()
                && record.sequence != last
            {
                last = record.sequence;
                memory.publish(&record, &lines);
            }
        };
        Ok(Some(BeforeRead {
            every: COPY_EVERY,
            hook: Box::new(hook),
        }))
    }

    /// What was lost since the last look, a sentence each.
    pub(crate) fn look(&mut self) -> Vec<String> {
        match self {
            Self::Answers(responder) => {
                let mut news = responder.lost();
                news.extend(responder.follow_addresses());
                news
            }
            Self::Publishes(_) | Self::Nothing => Vec::new(),
        }
    }

    /// What the kernel has answered.
    pub(crate) fn stats(&self) -> Option<ResponderStats> {
        match self {
            Self::Answers(responder) => responder.stats().ok(),
            Self::Publishes(_) | Self::Nothing => None,
        }
    }

    /// Where it answers, for people.
    pub(crate) fn describe(&self) -> Vec<String> {
        match self {
            Self::Answers(responder) => responder
                .rungs()
                .map(|(interface, rung)| {
                    format!(
                        "The kernel answers at {} ({}).",
                        interface.name,
                        rung.label()
                    )
                })
                .collect(),
            Self::Publishes(_) => vec!["A timer in the kernel makes the record.".into()],
            Self::Nothing => Vec::new(),
        }
    }
}

/// What the kernel is asked for.
pub fn options(config: &AgentConfig, listen: SocketAddr) -> Result<KernelOptions, String> {
    let scope = match &config.scope {
        Scope::Host => KernelScope::Host,
        Scope::Cgroup(path) => group(&config.root, path)?,
    };
    Ok(KernelOptions {
        allow: config.allow.clone(),
        scope,
        rungs: config.rungs.clone(),
        veth_native: config.veth_native,
        ..KernelOptions::new(listen, config.plain_keys())
    })
}

fn group(root: &Path, path: &Path) -> Result<KernelScope, String> {
    let (version, directory) = cpu_group(root, path).map_err(|error| error.to_string())?;
    Ok(KernelScope::Group { version, directory })
}
