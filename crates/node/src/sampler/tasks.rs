//! The run queue of a control group: what its threads do.
//!
//! The kernel keeps no run-queue length per group that user space could read, so the states of
//! the group's threads are counted, and the integral is that of the counts; or for long
//! intervals the sum of the threads' run and waiting times (`/proc/PID/task/TID/schedstat`, ns),
//! see [`SAMPLED_INTERVAL_MAX`]. The times are exact but for threads that ended since they were
//! last looked at.
//!
//! Each thread costs some microseconds per look. A group with more than [`STATES_MAX`] threads
//! is looked at for the times only: its length is then the mean since the last look. [`Pace`]
//! stretches the period of large groups; a group whose threads cannot be looked at within
//! [`LOOK_PERIOD_MAX`], or with more than [`THREADS_MAX`], has no run queue here and says so.
//! Groups below the group are included, as many as [`GROUPS_MAX`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::record::Sources;
use tidegate_core::time::{Timestamp, nanos};

use super::Context;
use crate::config::{SAMPLED_INTERVAL_MAX, SamplerConfig};
use crate::counter::{Counter, Integral};
use crate::file::{KernelFile, Shape, under};
use crate::pace::Pace;
use crate::parse::process::{self, TaskState};
use crate::parse::{number32, saturated, words};

/// Most threads that are looked at; two open files each.
const THREADS_MAX: usize = 256;
/// Most threads whose states are looked at.
const STATES_MAX: usize = 64;
/// Most groups below the group.
const GROUPS_MAX: usize = 64;
/// Deepest group below the group.
const DEPTH_MAX: usize = 8;
/// The list of threads is read this often.
const LIST_PERIOD: Duration = Duration::from_millis(20);
/// Groups below are looked for this often.
const GROUPS_PERIOD: Duration = Duration::from_secs(1);
/// A length that is older than this is not "now".
const LOOK_PERIOD_MAX: Duration = Duration::from_millis(50);

struct Thread {
    id: u32,
    listed: bool,
    /// When it cannot have been there yet, if that is known.
    absent_at: Option<Timestamp>,
    stat: KernelFile,
    schedstat: KernelFile,
    time: Counter,
}

pub(super) struct Tasks {
    root: PathBuf,
    directory: Option<PathBuf>,
    list_name: &'static str,
    /// Version 1 gives an open file the same list again and again for as long as it is read
    /// more often than once a second.
    list_is_kept: bool,
    lists: Vec<KernelFile>,
    groups_pace: Pace,
    list_pace: Pace,
    look_pace: Pace,
    threads: Vec<Thread>,
    listed: usize,
    listed_at: Option<Timestamp>,
    looked_at: Option<Timestamp>,
    member: Option<u32>,
    sampled: Integral,
    uninterruptible: Integral,
    /// Whether the last look was at the threads' times too.
    timed: bool,
}

/// One look at all threads.
#[derive(Default)]
struct Look {
    states: bool,
    times: bool,
    seen: u32,
    runnable: u32,
    uninterruptible: u32,
    grown: u64,
    untimed: u32,
}

impl Tasks {
    pub(super) fn new(config: &SamplerConfig, group: Option<(u8, &Path)>) -> Self {
        Self {
            root: config.root.clone(),
            directory: group.map(|(_, directory)| directory.into()),
            list_name: match group {
                Some((1, _)) => "tasks",
                _ => "cgroup.threads",
            },
            list_is_kept: matches!(group, Some((1, _))),
            lists: Vec::new(),
            groups_pace: Pace::new(GROUPS_PERIOD, 0),
            list_pace: Pace::new(LIST_PERIOD, 0),
            look_pace: Pace::new(Duration::ZERO, 0),
            threads: Vec::new(),
            listed: 0,
            listed_at: None,
            looked_at: None,
            member: None,
            sampled: Integral::default(),
            uninterruptible: Integral::default(),
            timed: false,
        }
    }

    /// Some process of the group.
    pub(super) fn member(&self) -> Option<u32> {
        self.member
    }

    /// Threads of the group.
    pub(super) fn count(&self) -> u32 {
        saturated(self.listed as u64)
    }

    pub(super) fn sample(&mut self, context: &mut Context<'_>) {
        if self.directory.is_none() {
            return self.unmeasured(context, "the group has no list of threads");
        }
        if let Some(turn) = self.groups_pace.begin(context.now) {
            self.groups();
            self.groups_pace.end(turn);
        }
        if let Some(turn) = self.list_pace.begin(context.now) {
            self.list(context);
            self.list_pace.end(turn);
        }
        if self.listed > THREADS_MAX {
            return self.unmeasured(context, "the group has too many threads to look at each");
        }
        if let Some(turn) = self.look_pace.begin(context.now) {
            self.look(context);
            self.look_pace.end(turn);
        }
        // Looking goes on: the group may become smaller, or the machine faster.
        if self.look_pace.period() > LOOK_PERIOD_MAX {
            self.unmeasured(context, "the group's threads take too long to look at");
        }
    }

    fn unmeasured(&mut self, context: &mut Context<'_>, why: &'static str) {
        self.sampled.interrupt();
        self.uninterruptible.interrupt();
        for source in [
            Sources::RUNNABLE,
            Sources::RUNNABLE_INTEGRAL,
            Sources::UNINTERRUPTIBLE,
        ] {
            context.missing(source, why);
        }
    }

    /// Finds the groups below, breadth first.
    fn groups(&mut self) {
        let Some(directory) = &self.directory else {
            return;
        };
        let mut found = vec![(directory.clone(), 0)];
        let mut at = 0;
        while let Some((directory, depth)) = found.get(at).cloned() {
            at += 1;
            if depth >= DEPTH_MAX {
                continue;
            }
            let Ok(entries) = std::fs::read_dir(&directory) else {
                continue;
            };
            let below = entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| (entry.path(), depth + 1))
                .take((GROUPS_MAX + 1).saturating_sub(found.len()));
            found.extend(below);
        }
        let name = self.list_name;
        self.lists.retain(|list| {
            let holder = list.path().parent();
            found.iter().any(|(group, _)| holder == Some(group))
        });
        for (group, _) in found {
            let path = group.join(name);
            if self.lists.iter().all(|list| list.path() != path) {
                self.lists.push(KernelFile::new(path, Shape::Records));
            }
        }
    }

    /// Reads which threads there are.
    fn list(&mut self, context: &mut Context<'_>) {
        let own = rustix::thread::gettid().as_raw_pid().unsigned_abs();
        for thread in &mut self.threads {
            thread.listed = false;
        }
        self.listed = 0;
        let mut new = Vec::new();
        for list in &mut self.lists {
            if self.list_is_kept {
                list.close();
            }
            let Some(bytes) = list.read(context.now, context.buffer) else {
                continue;
            };
            for id in words(bytes).filter_map(number32) {
                if id == own {
                    continue;
                }
                self.listed += 1;
                match self.threads.iter_mut().find(|thread| thread.id == id) {
                    Some(thread) => thread.listed = true,
                    None if self.listed <= THREADS_MAX => new.push(id),
                    None => {}
                }
            }
        }
        self.threads.retain(|thread| thread.listed);
        for id in new {
            let directory = under(&self.root, format!("proc/{id}/task/{id}"));
            self.threads.push(Thread {
                id,
                listed: true,
                absent_at: self.listed_at,
                stat: KernelFile::new(directory.join("stat"), Shape::Whole),
                schedstat: KernelFile::new(directory.join("schedstat"), Shape::Whole),
                time: Counter::default(),
            });
        }
        self.listed_at = Some(context.now);
        let gone = |member: &u32| self.threads.iter().all(|thread| thread.id != *member);
        if self.member.as_ref().is_none_or(gone) {
            self.member = self.threads.first().map(|thread| thread.id);
        }
    }

    fn look(&mut self, context: &mut Context<'_>) {
        let states = self.threads.len() <= STATES_MAX;
        let seldom = self.look_pace.period().max(context.interval) > SAMPLED_INTERVAL_MAX;
        let mut look = Look {
            states,
            times: !states || seldom,
            ..Look::default()
        };
        for thread in &mut self.threads {
            thread.look(&mut look, context);
        }
        if look.seen == 0 && !self.threads.is_empty() {
            return self.unmeasured(context, "the files of the group's threads cannot be read");
        }
        let by_times = look.times && look.untimed == 0;
        // A first look at times shows no growth yet: that of the states stands in for it.
        let timed = std::mem::replace(&mut self.timed, by_times);
        let since = self.looked_at.replace(context.now);
        let mut sampled = 0;
        if states {
            self.states(context, &look);
            let runnable = context.record.runnable.into();
            sampled = self.sampled.grow(context.now, runnable);
        } else if by_times {
            self.sampled.interrupt();
            self.means(context, &look, since);
        } else {
            return self.unmeasured(context, "the group's many threads have no schedstat");
        }
        let how = match by_times {
            true => "as run and waiting times of the group's threads, less this agent",
            false => "by integrating the sampled run queue",
        };
        let grown = match by_times && (timed || !states) {
            true => look.grown,
            false => sampled,
        };
        context.record.runnable_ns = context.record.runnable_ns.saturating_add(grown);
        context.findings.measured(Sources::RUNNABLE_INTEGRAL, how);
    }

    fn states(&mut self, context: &mut Context<'_>, look: &Look) {
        context.record.runnable = look.runnable;
        context.findings.measured(
            Sources::RUNNABLE,
            "by the states of the group's threads, less this agent",
        );
        let asleep = look.uninterruptible;
        context.record.uninterruptible = asleep;
        context.record.uninterruptible_ns = self.uninterruptible.sample(context.now, asleep.into());
        context.findings.measured(
            Sources::UNINTERRUPTIBLE,
            "by the states of the group's threads",
        );
    }

    fn means(&mut self, context: &mut Context<'_>, look: &Look, since: Option<Timestamp>) {
        self.uninterruptible.interrupt();
        context.missing(
            Sources::UNINTERRUPTIBLE,
            "the group has too many threads to look at the state of each",
        );
        let Some(since) = since else { return };
        let elapsed = nanos(context.now.since(since)).max(1);
        let mean = look.grown.saturating_add(elapsed / 2) / elapsed;
        context.record.runnable = saturated(mean);
        context.findings.measured(
            Sources::RUNNABLE,
            "as the mean since the last look at the times of the group's many threads",
        );
    }
}

impl Thread {
    fn look(&mut self, look: &mut Look, context: &mut Context<'_>) {
        if look.states {
            // A thread that ended since it was listed does nothing any more.
            let state = self
                .stat
                .read(context.now, context.buffer)
                .and_then(process::state);
            match state {
                Some(TaskState::Runnable) => look.runnable += 1,
                Some(TaskState::Uninterruptible) => look.uninterruptible += 1,
                Some(TaskState::Other) => {}
                None => return,
            }
        }
        if !look.times {
            // Seen by its state. What it does until times are wanted is in no window of them.
            self.time.change_source();
            self.absent_at = None;
            look.seen += 1;
            return;
        }
        let times = self
            .schedstat
            .read(context.now, context.buffer)
            .and_then(process::run_and_wait);
        match times {
            Some((ran, waited)) => {
                look.seen += 1;
                let time = ran.saturating_add(waited);
                look.grown = look.grown.saturating_add(self.grown(time, context.now));
            }
            // With the state read, the thread is there and only its times are not.
            None if look.states => {
                look.seen += 1;
                look.untimed += 1;
            }
            None => {}
        }
    }

    /// How much the thread's time grew since it was last seen. A thread that came since the
    /// threads were last listed was born then, or moved here: it counts for no longer than that.
    fn grown(&mut self, time: u64, now: Timestamp) -> u64 {
        if self.time.started() {
            let before = self.time.total();
            return self.time.follow(time) - before;
        }
        self.time.follow(time);
        let longest = self.absent_at.map_or(0, |absent| nanos(now.since(absent)));
        time.min(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(absent_at: Option<Timestamp>) -> Thread {
        let file = || KernelFile::new("/nowhere".into(), Shape::Whole);
        Thread {
            id: 1,
            listed: true,
            absent_at,
            stat: file(),
            schedstat: file(),
            time: Counter::default(),
        }
    }

    #[test]
    fn a_thread_counts_from_when_it_can_have_come() {
        let now = Timestamp::from_nanos(1000);
        assert_eq!(thread(None).grown(700, now), 0, "there from the start");
        let at = |nanos| Some(Timestamp::from_nanos(nanos));
        assert_eq!(thread(at(900)).grown(70, now), 70, "born since");
        assert_eq!(thread(at(900)).grown(700, now), 100, "moved here");
        let mut old = thread(None);
        old.grown(700, now);
        assert_eq!(old.grown(750, now), 50);
        assert_eq!(old.grown(10, now), 0, "another thread of the same number");
    }
}
