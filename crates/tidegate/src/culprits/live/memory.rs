//! What was learned of classes over a restart: read at the start, handed to discovery when a class gets its name, noted
//! each minute and once more when the front-end begins to drain, and written by a thread of its own.
//!
//! From then on nothing is noted: a front-end that drains has fewer and fewer of the requests that load the servers, and
//! what it would learn of them is wrong. Its successor may have learned more by then.
//!
//! A disk that is slow or full holds nothing up: while something is written, what comes next waits for its turn or is
//! left to the next minute.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tidegate_core::classes::ClassId;
use tidegate_core::culprits::{BYTES_MAX, Discovery, Learned, LearnedError};
use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use super::watched::Watched;
use crate::output::Output;
use crate::state::StateFile;

/// Name of the file in the folder.
const FILE: &str = "culprits.learned";
/// Time between two looks at what there is to write.
const EVERY: Duration = Duration::from_secs(60);
/// Time between two tries to have the folder, while another front-end has it.
const FOLDER_EVERY: Duration = Duration::from_millis(250);
/// Longest wait for the last write at the end.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Event of all that is said of it.
const EVENT: &str = "state";

/// See the module.
#[derive(Debug)]
pub(super) struct Memory {
    learned: Learned,
    /// By resource and class: the name under which it was recalled.
    recalled: BTreeMap<(u16, ClassId), String>,
    /// When there is something to be noted again; none once it has ended.
    due: Option<Timestamp>,
    writer: Writer,
    output: Output,
}

impl Memory {
    /// What was kept in this folder; the thread that writes there is started.
    pub(super) fn open(folder: PathBuf, output: Output, now: Timestamp) -> Self {
        let mut file = StateFile::new(folder, FILE);
        // The folder first: a front-end that has said what it read has the folder, or has said why not.
        let trouble = Trouble::of_start(&mut file, output);
        let learned = read(&mut file, output).unwrap_or_default();
        Self {
            learned,
            recalled: BTreeMap::new(),
            due: Some(now + EVERY),
            writer: Writer::start(file, trouble, output),
            output,
        }
    }

    /// Tells discovery what was known of a resource's classes before the start, of each once it has a name.
    pub(super) fn recall(&mut self, watched: &Watched, names: &[String], to: &mut Discovery) {
        let Some(known) = self.learned.of(&watched.name, watched.capacity()) else {
            return;
        };
        // A number without a name, or with another one, is another class's by now or will be.
        self.recalled
            .retain(|(_, class), name| names.get(class.index()) == Some(name));
        for (class, name) in named(names) {
            let key = (watched.id.0, class);
            if self.recalled.get(&key).is_none_or(|it| it != name) {
                self.recalled.insert(key, name.clone());
                if let Some(class_learned) = known(name) {
                    to.recall(watched.id, class, class_learned);
                }
            }
        }
    }

    /// Whether a minute is over.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    /// Takes in what is known now, and has it written if there is anything new.
    pub(super) fn keep<'a>(
        &mut self,
        watched: impl Iterator<Item = &'a Watched>,
        names: &[String],
        discovery: &Discovery,
        now: Timestamp,
    ) {
        self.due = Some(now + EVERY);
        let unix = unix_seconds();
        if self.note(watched, names, discovery, unix) {
            // Without room it is written a minute later.
            self.writer.write(self.learned.encode(unix));
        }
    }

    /// The last time: writes if anything is known, and lets go of the folder.
    pub(super) fn end<'a>(
        &mut self,
        watched: impl Iterator<Item = &'a Watched>,
        names: &[String],
        discovery: &Discovery,
    ) {
        if self.due.take().is_none() {
            return;
        }
        let unix = unix_seconds();
        self.note(watched, names, discovery, unix);
        let is_known = self.learned != Learned::default();
        let is_kept = !is_known || self.writer.write(self.learned.encode(unix));
        self.writer.finish();
        if !is_kept {
            let path = self.writer.path.display();
            let text = format!("{path}: the last minute is not kept: no write before it has ended");
            self.output.event(EVENT, &text);
        }
    }

    fn note<'a>(
        &mut self,
        watched: impl Iterator<Item = &'a Watched>,
        names: &[String],
        discovery: &Discovery,
        unix: u64,
    ) -> bool {
        let mut is_new = false;
        let names: BTreeMap<ClassId, &String> = named(names).collect();
        for watched in watched.filter(|it| it.explains() && it.capacity() > 0.0) {
            let learned = discovery.learned(watched.id).into_iter();
            let by_name = learned.filter_map(|(class, learned)| {
                let name = names.get(&class)?;
                Some(((*name).clone(), learned))
            });
            is_new |= self
                .learned
                .note(&watched.name, watched.capacity(), by_name, unix);
        }
        is_new
    }
}

/// Classes with a name of their own: what is without one is another mixture at each time.
fn named(names: &[String]) -> impl Iterator<Item = (ClassId, &String)> {
    let classes = (0..).map(ClassId).zip(names);
    classes.filter(|(class, name)| *class != ClassId::OTHER && !name.is_empty())
}

fn unix_seconds() -> u64 {
    clock::unix().as_secs()
}

/// What the file says; what became of it is said.
fn read(file: &mut StateFile, output: Output) -> Option<Learned> {
    let path = file.path().display().to_string();
    let bytes = match file.read(BYTES_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            let text = format!("{path} is not there yet: what requests cost is not known yet");
            output.event(EVENT, &text);
            return None;
        }
        Err(why) => {
            refuse(file, &why, output);
            return None;
        }
    };
    match Learned::decode(&bytes, unix_seconds()) {
        Ok((learned, age)) => {
            let (classes, resources) = learned.counts();
            let text = format!(
                "{path}: what requests cost is known from {age} s before: {classes} times a class and a resource, of \
                 {resources} resources"
            );
            output.event(EVENT, &text);
            Some(learned)
        }
        // Whatever it says is of no use to anybody.
        Err(why @ LearnedError::Old(_)) => {
            let text = format!(
                "{path} is not used: {why}; what requests cost is not known yet, and what is learned will replace it"
            );
            output.event(EVENT, &text);
            None
        }
        Err(why) => {
            refuse(file, &why.to_string(), output);
            None
        }
    }
}

/// Says that a file is not used, and has it kept for an operator to mend.
fn refuse(file: &mut StateFile, why: &str, output: Output) {
    let text = format!(
        "{} is not used: {why}; what requests cost is not known yet, and the file becomes {} once anything is learned",
        file.path().display(),
        file.aside().display()
    );
    output.event(EVENT, &text);
    file.spare();
}

/// The thread that writes. Dropping it waits for what is under way, though not for ever.
#[derive(Debug)]
struct Writer {
    path: PathBuf,
    /// None once it is to end.
    jobs: Option<SyncSender<Vec<u8>>>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
    output: Output,
}

impl Writer {
    fn start(file: StateFile, trouble: Trouble, output: Output) -> Self {
        // One is written, one waits.
        let (jobs, waiting) = sync_channel(1);
        let (ending, ended) = sync_channel::<()>(1);
        let writer = Self {
            path: file.path().to_owned(),
            jobs: Some(jobs),
            ended,
            output,
        };
        let thread = std::thread::Builder::new().name("state".into());
        let write = move || {
            write_all(file, &waiting, trouble, output);
            drop(ending);
        };
        if let Err(error) = thread.spawn(write) {
            let path = writer.path.display();
            let text = format!("{path} is not written: no thread for it: {error}");
            output.event(EVENT, &text);
        }
        writer
    }

    /// Has this written; false if there is no room for it to wait.
    fn write(&self, bytes: Vec<u8>) -> bool {
        let jobs = self.jobs.as_ref();
        jobs.is_some_and(|jobs| jobs.try_send(bytes).is_ok())
    }

    /// Nothing more will be written: once what waits is, the folder is free for the next front-end.
    fn finish(&mut self) {
        self.jobs = None;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if self.ended.recv_timeout(END_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            let path = self.path.display();
            let text = format!("{path}: the last write has not ended and is not waited for");
            self.output.event(EVENT, &text);
        }
    }
}

/// Writes what comes until there is no more to come, and then gives the folder up. While it is another front-end's it is
/// asked for again and again: the successor of one that ends has it from then on.
fn write_all(
    mut file: StateFile,
    waiting: &Receiver<Vec<u8>>,
    mut trouble: Trouble,
    output: Output,
) {
    loop {
        let next = match file.has_folder() {
            true => waiting.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => waiting.recv_timeout(FOLDER_EVERY),
        };
        let had_folder = file.has_folder();
        let done = match next {
            Ok(bytes) => file.write(&bytes),
            Err(RecvTimeoutError::Timeout) => file.take_folder(),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let is_taken = file.has_folder() && !had_folder;
        if let Some(text) = trouble.news(&file, done, is_taken) {
            output.event(EVENT, &text);
        }
    }
}

/// Why nothing can be written, as far as that was said: once when it begins, when it changes and when it ends.
#[derive(Debug, Default)]
struct Trouble(Option<String>);

impl Trouble {
    /// What keeps this front-end from the folder at its start.
    fn of_start(file: &mut StateFile, output: Output) -> Self {
        let mut trouble = Self::default();
        let taken = file.take_folder();
        if let Some(text) = trouble.news(file, taken, false) {
            output.event(EVENT, &text);
        }
        trouble
    }

    /// What is to be said.
    fn news(
        &mut self,
        file: &StateFile,
        done: Result<(), String>,
        is_taken: bool,
    ) -> Option<String> {
        let before = std::mem::replace(&mut self.0, done.err());
        match (&before, &self.0) {
            (before, Some(why)) if before.as_ref() != Some(why) => Some(format!(
                "{why}; until that changes, what is learned of requests is not kept over a restart"
            )),
            (Some(_), None) if is_taken => Some(format!(
                "this front-end has taken over {}: what is learned of requests is kept there from now on",
                file.folder().display()
            )),
            (Some(_), None) => Some(format!("{}: written again", file.path().display())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::sync::Arc;

    use tidegate_core::culprits::{Basis, Limits, Request, ResourceId};
    use tidegate_core::load::Counters;
    use tidegate_core::prng::Prng;
    use tidegate_core::topology::NodeId;

    use super::super::watched::WatchedAll;
    use super::*;
    use crate::testing;

    const CPU: ResourceId = ResourceId(0);
    /// Two classes, and "other" before them.
    const NAMES: [&str; 3] = ["other", "shop GET /", "shop GET /report/{n}"];

    fn names() -> Vec<String> {
        NAMES.map(str::to_owned).to_vec()
    }

    fn scratch(name: &str) -> PathBuf {
        let name = format!("tidegate-memory-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
        folder
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(100_000 + millis)
    }

    fn open(folder: &Path) -> Memory {
        Memory::open(folder.to_owned(), Output::QUIET, at(0))
    }

    /// A front-end before one server: pages that cost next to nothing, and reports of 75 ms.
    struct Life {
        watched: WatchedAll,
        discovery: Discovery,
    }

    impl Life {
        fn of(memory: &mut Memory, millis: u64) -> Self {
            let (_driver, shared) = testing::driver();
            let sites = ["shop".to_owned(), "blog".to_owned()];
            let mut life = Self {
                watched: WatchedAll::new(&shared, Arc::default(), &sites),
                discovery: Discovery::new(Limits::default()),
            };
            let mut prng = Prng::new(1);
            let mut busy_ns = 0;
            for ms in (0..millis).step_by(20) {
                let mut request = |class, life_ms, cost_ns| {
                    busy_ns += cost_ns;
                    let sent = at(ms);
                    let ended = Some(sent + Duration::from_millis(life_ms));
                    let class = ClassId(class);
                    life.discovery.on_request(&Request { class, sent, ended });
                };
                request(1, 20, 100_000);
                if prng.unit() < 0.06 {
                    request(2, 20, 75_000_000);
                }
                let counters = Counters {
                    at: at(ms + 20),
                    generation: 1,
                    cores: 1.0,
                    busy_ns: Some(busy_ns),
                    fine: true,
                    disk_ns: None,
                    network: None,
                    context_switches: None,
                };
                shared.table.store_counters(NodeId(0), &counters);
                let now = at(ms + 20);
                life.watched.read(&shared, &mut life.discovery, now);
                if let Some(due) = life.watched.due(now) {
                    memory.recall(life.watched.get(due), &names(), &mut life.discovery);
                    let then = life.watched.known_until();
                    life.watched.evaluate(due, &mut life.discovery, then, now);
                }
            }
            life
        }

        fn basis(&self) -> Basis {
            self.discovery.basis(self.watched.known_until(), CPU)
        }

        fn end(&self, memory: &mut Memory) {
            memory.end(self.watched.iter(), &names(), &self.discovery);
        }
    }

    #[test]
    fn the_next_process_begins_with_what_this_one_has_learned() {
        let folder = scratch("next");
        let mut memory = open(&folder);
        assert_eq!(Life::of(&mut memory, 10_000).basis(), Basis::NotYet);
        let life = Life::of(&mut memory, 60_000);
        assert_eq!(life.basis(), Basis::Seen);
        life.end(&mut memory);
        let learned = memory.learned.clone();
        assert_eq!(learned.counts(), (2, 1));
        drop(memory);
        let mode = |file| std::fs::metadata(file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(folder.join(FILE)), 0o600);
        let mut memory = open(&folder);
        assert_eq!(memory.learned, learned);
        let mut next = Life::of(&mut memory, 10_000);
        assert_eq!(next.basis(), Basis::BeforeStart);
        // A life that was too short for a look at the long window forgets nothing of it.
        next.end(&mut memory);
        drop(memory);
        assert_eq!(open(&folder).learned.counts(), learned.counts());
        let mut third = open(&folder);
        assert_eq!(Life::of(&mut third, 10_000).basis(), Basis::BeforeStart);
        drop(third);
        // A class that has its number anew has what belongs to its name.
        let mut memory = open(&folder);
        let watched = next.watched.get(0);
        memory.recall(watched, &names(), &mut next.discovery);
        assert_eq!(memory.recalled.len(), 2);
        memory.recall(watched, &["other".into(), "b".into()], &mut next.discovery);
        assert_eq!(memory.recalled[&(0, ClassId(1))], "b");
        // And so it has after a while without one, when discovery has forgotten what was the number's.
        memory.recall(
            watched,
            &["other".into(), String::new()],
            &mut next.discovery,
        );
        assert_eq!(memory.recalled.len(), 0);
        next.discovery.forget(ClassId(1));
        assert_eq!(next.discovery.learned(CPU).get(&ClassId(1)), None);
        memory.recall(watched, &names(), &mut next.discovery);
        assert!(!next.discovery.learned(CPU)[&ClassId(1)].is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn it_is_written_each_minute_if_there_is_anything_new() {
        let folder = scratch("minutes");
        let mut memory = open(&folder);
        assert!(!memory.is_due(at(59_999)) && memory.is_due(at(60_000)));
        let life = Life::of(&mut memory, 60_000);
        let keep = |memory: &mut Memory| {
            memory.keep(life.watched.iter(), &names(), &life.discovery, at(60_000));
        };
        keep(&mut memory);
        assert!(!memory.is_due(at(119_999)) && memory.is_due(at(120_000)));
        drop(memory);
        let mut memory = open(&folder);
        assert_eq!(memory.learned.counts(), (2, 1));
        std::fs::remove_file(folder.join(FILE)).unwrap();
        keep(&mut memory);
        drop(memory);
        assert!(!folder.join(FILE).exists(), "nothing is new");
        let mut memory = open(&folder);
        life.end(&mut memory);
        assert!(!memory.is_due(at(u64::MAX >> 24)), "it has ended");
        drop(memory);
        assert!(folder.join(FILE).exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_is_of_no_use_stays_until_there_is_a_better_one() {
        let folder = scratch("broken");
        let path = folder.join(FILE);
        let aside = StateFile::new(folder.clone(), FILE).aside();
        let old = Learned::default().encode(1_000_000_000);
        for (bytes, is_precious) in [(&b"damaged"[..], true), (&old, false)] {
            StateFile::new(folder.clone(), FILE).write(bytes).unwrap();
            let mut memory = open(&folder);
            assert_eq!(memory.learned, Learned::default());
            Life::of(&mut memory, 100).end(&mut memory);
            drop(memory);
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "nothing was learned");
            let mut memory = open(&folder);
            let life = Life::of(&mut memory, 60_000);
            life.end(&mut memory);
            let learned = memory.learned.clone();
            drop(memory);
            assert_eq!(open(&folder).learned, learned);
            assert_eq!(aside.exists(), is_precious);
            if is_precious {
                assert_eq!(std::fs::read(&aside).unwrap(), bytes);
                std::fs::remove_file(&aside).unwrap();
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn one_that_has_ended_leaves_the_folder_to_its_successor_before_it_is_gone() {
        let folder = scratch("successor");
        let mut first = open(&folder);
        let life = Life::of(&mut first, 60_000);
        let mut second = open(&folder);
        life.end(&mut second);
        drop(second);
        assert!(!folder.join(FILE).exists(), "the first one has the folder");
        life.end(&mut first);
        // Closed when the thread has ended.
        assert!(first.writer.ended.recv().is_err());
        let mut next = open(&folder);
        assert_eq!(next.learned.counts(), (2, 1));
        std::fs::remove_file(folder.join(FILE)).unwrap();
        life.end(&mut next);
        drop(next);
        assert!(folder.join(FILE).exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn that_nothing_can_be_written_is_told_once() {
        let file = StateFile::new("/s".into(), "f");
        let mut trouble = Trouble::default();
        let mut news =
            |written: Result<(), &str>| trouble.news(&file, written.map_err(str::to_owned), false);
        assert_eq!(news(Ok(())), None);
        let full = news(Err("cannot write /s/f: full")).unwrap();
        assert!(
            full.starts_with("cannot write /s/f: full; until that"),
            "{full}"
        );
        assert_eq!(news(Err("cannot write /s/f: full")), None);
        assert!(news(Err("cannot write /s/f: gone")).is_some());
        assert_eq!(news(Ok(())), Some("/s/f: written again".into()));
        assert_eq!(news(Ok(())), None);
    }
}
