//! What was learned of classes, for the next process: read at the start, or given by the process that this one succeeds;
//! handed to discovery when a class gets its name, noted each minute and once more when the front-end begins to drain, and
//! written by a thread of its own where there is a file.
//!
//! From then on nothing is noted: a front-end that drains has fewer and fewer of the requests that load the servers, and
//! what it would learn of them is wrong. Its successor may have learned more by then.
//!
//! A disk that is slow or full holds nothing up: while something is written, what comes next waits for its turn or is
//! left to the next minute.

mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::classes::ClassId;
use tidegate_core::culprits::{BYTES_MAX, Discovery, Learned, LearnedError};
use tidegate_core::time::Timestamp;

use super::front_end::{EventLog, KeptFile};
use super::watched::Watched;
use writer::{Trouble, Writer};

/// Name of the file in its folder.
pub const LEARNED_FILE: &str = "culprits.learned";
/// Time between two looks at what there is to write.
const EVERY: Duration = Duration::from_secs(60);
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
    /// None: it is not kept over a restart.
    writer: Option<Writer>,
    /// Since the Unix epoch.
    unix: fn() -> Duration,
    log: Arc<dyn EventLog>,
}

impl Memory {
    /// What the former process has handed over, or else what was kept in this file; the thread that writes it is started.
    pub(super) fn open(
        file: Option<Box<dyn KeptFile>>,
        handed_over: Option<&[u8]>,
        log: Arc<dyn EventLog>,
        unix: fn() -> Duration,
        now: Timestamp,
    ) -> Self {
        let given = handed_over.and_then(|bytes| given(bytes, unix().as_secs(), &*log));
        let (mut kept, mut writer) = (None, None);
        if let Some(mut file) = file {
            // The folder first: a front-end that has said what it read has the folder, or has said why not.
            let trouble = Trouble::of_start(&mut *file, &*log);
            kept = read(&mut *file, unix().as_secs(), &*log);
            writer = Some(Writer::start(file, trouble, Arc::clone(&log)));
        }
        Self {
            learned: given.or(kept).unwrap_or_default(),
            recalled: BTreeMap::new(),
            due: Some(now + EVERY),
            writer,
            unix,
            log,
        }
    }

    /// What a successor is given, in the bytes of the file.
    pub(super) fn handed_over<'a>(
        &mut self,
        watched: impl Iterator<Item = &'a Watched>,
        names: &[String],
        discovery: &Discovery,
    ) -> Vec<u8> {
        let unix = (self.unix)().as_secs();
        self.note(watched, names, discovery, unix);
        self.learned.encode(unix)
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

    /// A resource is watched no more: what is known of it stays for one of its name.
    pub(super) fn leave(&mut self, watched: &Watched, names: &[String], discovery: &Discovery) {
        self.recalled.retain(|(id, _), _| *id != watched.id.0);
        if self.due.is_some() {
            let unix = (self.unix)().as_secs();
            self.note(std::iter::once(watched), names, discovery, unix);
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
        let unix = (self.unix)().as_secs();
        let is_new = self.note(watched, names, discovery, unix);
        if let Some(writer) = self.writer.as_ref().filter(|_| is_new) {
            // Without room it is written a minute later.
            writer.write(self.learned.encode(unix));
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
        let unix = (self.unix)().as_secs();
        self.note(watched, names, discovery, unix);
        let Some(writer) = &mut self.writer else {
            return;
        };
        let is_known = self.learned != Learned::default();
        let is_kept = !is_known || writer.write(self.learned.encode(unix));
        writer.finish();
        if !is_kept {
            let path = writer.path.display();
            let text = format!("{path}: the last minute is not kept: no write before it has ended");
            self.log.event(EVENT, &text);
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

/// What the former process says; what became of it is said.
fn given(bytes: &[u8], unix: u64, log: &dyn EventLog) -> Option<Learned> {
    let what = "what requests cost";
    match Learned::decode(bytes, unix) {
        Ok((learned, _)) => {
            let (classes, resources) = learned.counts();
            let text = format!(
                "{what} is known from the former process: {classes} times a class and a resource, of {resources} resources"
            );
            log.event(EVENT, &text);
            Some(learned)
        }
        Err(why) => {
            let text = format!("{what} is not taken over from the former process: {why}");
            log.event(EVENT, &text);
            None
        }
    }
}

/// What the file says; what became of it is said.
fn read(file: &mut dyn KeptFile, unix: u64, log: &dyn EventLog) -> Option<Learned> {
    let path = file.path().display().to_string();
    let bytes = match file.read(BYTES_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            let text = format!("{path} is not there yet: what requests cost is not known yet");
            log.event(EVENT, &text);
            return None;
        }
        Err(why) => {
            refuse(file, &why, log);
            return None;
        }
    };
    match Learned::decode(&bytes, unix) {
        Ok((learned, age)) => {
            let (classes, resources) = learned.counts();
            let text = format!(
                "{path}: what requests cost is known from {age} s before: {classes} times a class and a resource, of \
                 {resources} resources"
            );
            log.event(EVENT, &text);
            Some(learned)
        }
        // Whatever it says is of no use to anybody.
        Err(why @ LearnedError::Old(_)) => {
            let text = format!(
                "{path} is not used: {why}; what requests cost is not known yet, and what is learned will replace it"
            );
            log.event(EVENT, &text);
            None
        }
        Err(why) => {
            refuse(file, &why.to_string(), log);
            None
        }
    }
}

/// Says that a file is not used, and has it kept for an operator to mend.
fn refuse(file: &mut dyn KeptFile, why: &str, log: &dyn EventLog) {
    let text = format!(
        "{} is not used: {why}; what requests cost is not known yet, and the file becomes {} once anything is learned",
        file.path().display(),
        file.aside().display()
    );
    log.event(EVENT, &text);
    file.spare();
}

#[cfg(test)]
mod tests;
