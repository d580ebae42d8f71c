//! The thread that follows the node's word: what it reads, and what it does with what the core makes of that.
//!
//! Connections are counted only while the node drains: the kernel walks its whole table for that.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::moves::agent::{
    AgentPart, AgentTurn, AgentView, HookEnd, HookOrder, KeptAssignment,
};
use tidegate_core::moves::lease::SILENT_AFTER;
use tidegate_core::moves::numbering::site_list;
use tidegate_core::moves::words::{
    AGENT_WORD, ASSIGNMENT_WORD, AgentStatus, AgentStep, Assignment, SITE_LIST_WORD, SiteNumber,
    WordError,
};
use tidegate_remote::privilege::{self, NONE};
use tidegate_remote::{RegionMemory, clock};

use super::hook::{HookDone, HookRun};
use super::kept::{Kept, KeptError, KeptFile};
use super::left::LeftCommand;
use crate::config::MovesConfig;
use crate::connections::ServiceConnections;

/// Between two looks at the node's word.
const PACE: Duration = Duration::from_millis(10);
/// Between two counts of connections: a front-end that reads the node at all has seen meanwhile that it drains.
const COUNT_PACE: Duration = SILENT_AFTER;
/// Events that wait to be taken; more are lost.
const EVENTS_MAX: usize = 256;

/// Something to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovesEvent {
    /// Its name.
    pub name: &'static str,
    /// In words.
    pub text: String,
}

/// Why moves are not followed.
#[derive(Debug, thiserror::Error)]
pub enum MovesError {
    /// What was kept cannot be used.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// No thread, or one with privileges.
    #[error("follow moves: {0}")]
    Thread(io::Error),
}

/// The thread. It ends when this is dropped, and ends a command that runs.
#[derive(Debug)]
pub struct MovesWatch {
    stop: Arc<AtomicBool>,
    events: Receiver<MovesEvent>,
    thread: Option<JoinHandle<()>>,
}

impl MovesWatch {
    /// Starts the thread.
    ///
    /// # Errors
    /// What was kept cannot be read, or the system gives no thread.
    pub fn spawn(config: MovesConfig, memory: Arc<RegionMemory>) -> Result<Self, MovesError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, events) = sync_channel(EVENTS_MAX);
        let watcher = Watcher::new(config.sorted(), memory, Arc::clone(&stop), sender)?;
        let (told, started) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("tidegate-moves".into())
            .spawn(move || {
                let kept = privilege::keep(NONE);
                let goes_on = kept.is_ok();
                // The thread that spawned this one waits for it.
                told.send(kept).ok();
                if goes_on {
                    watcher.run();
                }
            })
            .map_err(MovesError::Thread)?;
        started
            .recv()
            .unwrap_or_else(|_| Err(io::Error::other("the thread has ended")))
            .map_err(MovesError::Thread)?;
        Ok(Self {
            stop,
            events,
            thread: Some(thread),
        })
    }

    /// What has happened since the last time.
    pub fn events(&self) -> Vec<MovesEvent> {
        self.events.try_iter().collect()
    }

    /// Whether the thread runs: it ends before this by a panic only.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|it| !it.is_finished())
    }
}

impl Drop for MovesWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread itself.
            thread.join().ok();
        }
    }
}

/// A hook that runs.
struct RunningHook {
    site: String,
    thread: JoinHandle<HookDone>,
}

struct Watcher {
    config: MovesConfig,
    memory: Arc<RegionMemory>,
    stop: Arc<AtomicBool>,
    events: SyncSender<MovesEvent>,
    part: AgentPart,
    file: Option<KeptFile>,
    /// Where a command that runs is noted.
    left: Option<LeftCommand>,
    /// What a blank word A becomes.
    republished: Option<Assignment>,
    connections: ServiceConnections,
    hook: Option<RunningHook>,
    /// A hook that was ordered and did not begin.
    unbegun: Option<HookEnd>,
    /// What B says.
    told: Option<AgentStatus>,
    /// What B is to say and does not yet, since its word could not be changed.
    untold: Option<AgentStatus>,
    /// The list of other sites that was said last.
    other_list: Option<u64>,
    garbled: Option<WordError>,
}

impl Watcher {
    fn new(
        config: MovesConfig,
        memory: Arc<RegionMemory>,
        stop: Arc<AtomicBool>,
        events: SyncSender<MovesEvent>,
    ) -> Result<Self, KeptError> {
        let folder = config.state.as_deref().filter(|_| !config.sites.is_empty());
        let file = folder.map(KeptFile::of).transpose()?;
        let left = folder.map(LeftCommand::of);
        let ended = left.as_ref().map_or(Ok(None), LeftCommand::end)?;
        let kept = file.as_ref().map_or(Ok(None), KeptFile::read)?;
        let names = names(&config);
        let kept = kept.map(|it| it.assignment(&names));
        let has_hooks = !config.sites.is_empty();
        let watcher = Self {
            part: AgentPart::new(has_hooks, kept),
            republished: kept
                .filter(|it| it.is_sure)
                .map(KeptAssignment::republished),
            connections: ServiceConnections::new(config.port),
            config,
            memory,
            stop,
            events,
            file,
            left,
            hook: None,
            unbegun: None,
            told: None,
            untold: None,
            other_list: None,
            garbled: None,
        };
        if let Some(group) = ended {
            let text = format!(
                "a hook's command that an agent before this one has left running was ended: process group {group}"
            );
            watcher.say("hook_left", text);
        }
        Ok(watcher)
    }

    fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let pace = self.look();
            clock::sleep_until(clock::now() + pace);
        }
        if let Some(hook) = self.hook.take() {
            // It sees the same flag. That it was cut off is in the file since it began.
            hook.thread.join().ok();
        }
    }

    /// Looks once; how long until the next look.
    fn look(&mut self) -> Duration {
        if let Some(status) = self.untold {
            self.tell(status);
        }
        let assignment = self.assignment();
        let counts = assignment.is_some_and(|it| !it.is_serving() && !self.is_drained(it));
        let view = AgentView {
            assignment,
            connections: counts.then(|| self.connections.count()).flatten(),
            ended: self.ended(),
        };
        let turn = self.part.look(&view);
        match assignment.zip(turn.renumbered) {
            Some((held, new)) => self.renumber(held, new),
            None => self.carry_out(turn),
        }
        match counts {
            true => COUNT_PACE,
            false => PACE,
        }
    }

    /// Whether B says that a node is drained.
    fn is_drained(&self, assignment: Assignment) -> bool {
        let told = self
            .told
            .filter(|it| it.generation == assignment.generation);
        told.is_some_and(|it| it.step != AgentStep::Begun)
    }

    /// A, if there is one and its numbers are those of our sites.
    fn assignment(&mut self) -> Option<Assignment> {
        if !self.knows_sites() {
            return None;
        }
        let word = self.memory.word(ASSIGNMENT_WORD).ok()?;
        match Assignment::unpack(word) {
            Ok(Some(assignment)) if self.is_ours(assignment) => Some(assignment),
            Ok(Some(_)) => None,
            Ok(None) => {
                if let Some(first) = self.republished {
                    // If a front-end was first, it knew where the node was.
                    self.memory
                        .compare_and_swap(ASSIGNMENT_WORD, 0, first.pack())
                        .ok()?;
                }
                None
            }
            Err(error) => {
                if self.garbled.replace(error) != Some(error) {
                    self.say(
                        "moves_garbled",
                        format!("no front-end writes this: {error}"),
                    );
                }
                None
            }
        }
    }

    /// A word with a site beyond the list was written before the list was.
    fn is_ours(&self, assignment: Assignment) -> bool {
        let sites = [Some(assignment.site), assignment.from()];
        let known = |it: &SiteNumber| it.index() < self.config.sites.len();
        self.config.sites.is_empty() || sites.iter().flatten().all(known)
    }

    /// Whether front-ends number the sites that our file has. Without hooks numbers do not matter.
    fn knows_sites(&mut self) -> bool {
        if self.config.sites.is_empty() {
            return true;
        }
        let Ok(theirs) = self.memory.word(SITE_LIST_WORD) else {
            return false;
        };
        let ours = site_list(names(&self.config));
        if theirs != 0 && theirs != ours && self.other_list.replace(theirs) != Some(theirs) {
            let text = format!(
                "front-ends move nodes between {} sites that are not those of [[agent.moves.site]] ({}): no hook is run",
                theirs & 0xffff_ffff,
                names(&self.config).join(", ")
            );
            self.say("moves_other_sites", text);
        }
        theirs == ours
    }

    fn ended(&mut self) -> Option<HookEnd> {
        if let Some(end) = self.unbegun.take() {
            return Some(end);
        }
        if !self.hook.as_ref()?.thread.is_finished() {
            return None;
        }
        let RunningHook { site, thread } = self.hook.take()?;
        let done = thread.join().unwrap_or_else(|_| HookDone {
            end: HookEnd {
                exit_code: None,
                is_undone: false,
            },
            said: vec!["its thread has panicked".into()],
        });
        match done.end.exit_code {
            Some(0) => self.say(
                "hook_done",
                format!("hook has ended: the node's servers are set up for {site}"),
            ),
            Some(_) | None => {
                let why = done.said.join("; ");
                self.say("hook_failed", format!("hook of {site}: {why}"));
            }
        }
        Some(done.end)
    }

    /// A front-end that swaps it meanwhile is first.
    fn renumber(&self, held: Assignment, new: Assignment) {
        let swapped = self
            .memory
            .compare_and_swap(ASSIGNMENT_WORD, held.pack(), new.pack());
        match swapped {
            Ok(there) if there == held.pack() => self.say(
                "hook_cut_off",
                format!(
                    "an agent before this one was cut off while it set the node up in generation {}: it is set up in {}",
                    held.generation.get(),
                    new.generation.get()
                ),
            ),
            Ok(_) => {}
            Err(error) => self.say("moves_not_told", format!("word A: {error}")),
        }
    }

    /// Disk first, then the word, then the hook.
    fn carry_out(&mut self, turn: AgentTurn) {
        if let Some(keep) = turn.keep
            && let Err(error) = self.keep(keep)
        {
            self.say(
                "moves_not_kept",
                format!("this move is not followed: {error}"),
            );
            self.unbegun = turn.run.map(|_| HookEnd {
                exit_code: None,
                is_undone: true,
            });
            return;
        }
        if let Some(status) = turn.status {
            self.tell(status);
        }
        if let Some(order) = turn.run {
            self.begin(order);
        }
    }

    fn keep(&self, keep: KeptAssignment) -> Result<(), KeptError> {
        let kept = Kept::of(keep, &names(&self.config));
        match self.file.as_ref().zip(kept) {
            Some((file, kept)) => file.write(&kept),
            None => Ok(()),
        }
    }

    fn tell(&mut self, status: AgentStatus) {
        self.told = Some(status);
        // This agent alone writes it; a front-end that does is overwritten.
        let swapped = self.memory.word(AGENT_WORD).and_then(|held| {
            self.memory
                .compare_and_swap(AGENT_WORD, held, status.pack())
        });
        // A card that changes the words may not have answered.
        let was_told = self.untold.is_none();
        self.untold = swapped.is_err().then_some(status);
        if let Err(error) = swapped
            && was_told
        {
            self.say("moves_not_told", format!("word B: {error}"));
        }
    }

    fn begin(&mut self, order: HookOrder) {
        let unbegun = HookEnd {
            exit_code: None,
            is_undone: true,
        };
        let Some(hook) = self.config.sites.get(order.site.index()).cloned() else {
            self.unbegun = Some(unbegun);
            return;
        };
        let from = order.from.and_then(|it| self.config.sites.get(it.index()));
        let run = HookRun {
            from: from.map(|it| it.name.clone()),
            node: self.config.node.clone(),
            generation: order.generation.get(),
        };
        let site = hook.name.clone();
        let from = run.from.as_deref().unwrap_or("what is not known");
        self.say(
            "hook_begun",
            format!(
                "hook begins: from {from} to {site}, generation {}",
                run.generation
            ),
        );
        let (stop, left) = (Arc::clone(&self.stop), self.left.clone());
        let thread = std::thread::Builder::new().name("tidegate-hook".into());
        match thread.spawn(move || hook.run(&run, &stop, left.as_ref())) {
            Ok(thread) => self.hook = Some(RunningHook { site, thread }),
            Err(error) => {
                self.say("hook_failed", format!("hook of {site}: no thread: {error}"));
                self.unbegun = Some(unbegun);
            }
        }
    }

    fn say(&self, name: &'static str, text: String) {
        // Nothing waits for what does not fit.
        self.events.try_send(MovesEvent { name, text }).ok();
    }
}

/// Sites by number.
fn names(config: &MovesConfig) -> Vec<&str> {
    config.sites.iter().map(|it| it.name.as_str()).collect()
}
