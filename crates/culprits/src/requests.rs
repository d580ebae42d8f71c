//! All requests of the access logs: where they belong, and when they were at a server.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::Path;

use tidegate_core::classes::{
    ClassId, Folder, NAMED_MAX, Pattern, Place, Request, TreeConfig, Weight,
};
use tidegate_core::time::Timestamp;

use super::access::formats::Formats;
use super::access::{Entry, Format, Moment, SAMPLE_LINES, Wrong};
use super::evidence::{Class, Lived};
use super::files::FileReport;
use super::input::{Line, Lines};
use super::order::{Placed, place};
use super::time::SECOND;

/// Most requests of all files; those beyond are not read.
const REQUESTS_MAX: usize = 8_000_000;
/// Nodes of the tree of paths: an access log is read once, and memory is less dear than in a
/// front-end.
const NODES_MAX: usize = 1 << 18;
/// Times that are known better than this are taken as they are, nanoseconds.
const GOOD_RESOLUTION: i64 = SECOND / 50;

/// The logs so far.
pub(super) struct Requests {
    folder: Folder,
    held: Vec<Held>,
    ahead_of_utc: i64,
    /// Whether all times say which zone they are of.
    pub(super) zoned: bool,
    /// Whether any line says how long its request took.
    pub(super) with_durations: bool,
    /// Requests that got to no server.
    pub(super) not_sent: u64,
    /// How each file begins.
    beginnings: BTreeMap<u64, String>,
}

/// A request.
struct Held {
    place: Place,
    /// Nanoseconds of the Unix epoch.
    sent: i64,
    ended: i64,
}

/// What lines of one file have in common.
#[derive(Default)]
struct OfFile {
    /// The earliest end of each line as logged, where times are coarse.
    lows: Vec<i64>,
    resolution: i64,
    moments: [u64; 2],
    empty: u64,
    without_duration: u64,
    unzoned: bool,
}

impl Requests {
    pub(super) fn new(patterns: Vec<Pattern>, ahead_of_utc: i64) -> Self {
        let tree = TreeConfig {
            nodes_max: NODES_MAX,
            ..TreeConfig::default()
        };
        Self {
            folder: Folder::new(patterns, tree),
            held: Vec::new(),
            ahead_of_utc,
            zoned: true,
            with_durations: false,
            not_sent: 0,
            beginnings: BTreeMap::new(),
        }
    }

    /// Reads a file; `format` is what the user says it is.
    pub(super) fn read(
        &mut self,
        path: &Path,
        format: Option<&Format>,
        report: &mut FileReport,
    ) -> io::Result<()> {
        let mut lines = Lines::open(path)?;
        let mut sample = Vec::new();
        // Numbers of lines differ from their places where some are too long.
        while sample.len() < SAMPLE_LINES {
            match lines.next()? {
                Some(Line::Text(number, text)) => sample.push((number, text.into_owned())),
                Some(Line::Long(number, text)) => report.bad(number, TOO_LONG, &text),
                None => break,
            }
        }
        sample.retain(|(_, text)| !text.trim().is_empty());
        let texts: Vec<String> = sample.iter().map(|(_, text)| text.clone()).collect();
        self.is_new(&texts, report)?;
        let Some(mut formats) = Formats::of(format, &texts) else {
            for (number, text) in &sample {
                report.bad(*number, KNOWN, text);
            }
            report.notes.extend(lines.broken());
            return Ok(());
        };
        report.format = formats.current().name();
        let from = self.held.len();
        let mut of_file = OfFile::default();
        for (number, text) in &sample {
            self.line(&mut formats, *number, text, &mut of_file, report);
        }
        while let Some(line) = lines.next()? {
            if self.held.len() >= REQUESTS_MAX {
                report
                    .notes
                    .push(format!("only the first {REQUESTS_MAX} requests were read"));
                break;
            }
            match line {
                Line::Text(_, text) if text.trim().is_empty() => {}
                Line::Text(number, text) => {
                    self.line(&mut formats, number, &text, &mut of_file, report);
                }
                Line::Long(number, text) => report.bad(number, TOO_LONG, &text),
            }
        }
        self.settle(&mut formats, &mut of_file, report);
        report.notes.extend(lines.broken());
        self.place_ends(from, &of_file, report);
        of_file.tell(report);
        self.zoned &= !of_file.unzoned;
        Ok(())
    }

    /// The same log twice would count each request twice: files that begin with the same lines are one.
    fn is_new(&mut self, sample: &[String], report: &FileReport) -> io::Result<()> {
        if sample.is_empty() {
            return Ok(());
        }
        let mut hasher = DefaultHasher::new();
        sample.hash(&mut hasher);
        let other = self.beginnings.insert(hasher.finish(), report.file.clone());
        let same = |other| format!("it begins with the same lines as {other}; name each log once");
        other.map_or(Ok(()), |other| Err(io::Error::other(same(other))))
    }

    /// Takes a line, by whichever format of the file it is of.
    fn line(
        &mut self,
        formats: &mut Formats,
        number: u64,
        text: &str,
        of_file: &mut OfFile,
        report: &mut FileReport,
    ) {
        if self.take(formats, number, text, of_file, report).is_err() {
            formats.keep(number, text);
            if formats.is_settled() {
                self.settle(formats, of_file, report);
            }
        }
    }

    /// Finds out what those lines are that no format of the file has understood.
    fn settle(&mut self, formats: &mut Formats, of_file: &mut OfFile, report: &mut FileReport) {
        let kept = formats.settle();
        if let Some((number, _)) = kept.first().filter(|_| formats.has_changed()) {
            let name = formats.current().name();
            report.notes.push(format!("from line {number} on: {name}"));
        }
        for (number, text) in kept {
            if let Err(wrong) = self.take(formats, number, &text, of_file, report) {
                report.bad(number, &wrong.0, &text);
            }
        }
    }

    fn take(
        &mut self,
        formats: &mut Formats,
        number: u64,
        text: &str,
        of_file: &mut OfFile,
        report: &mut FileReport,
    ) -> Result<(), Wrong> {
        match formats.read(text)? {
            Some(entry) if !entry.is_plausible() => {
                let expected = "a time after 1970 and durations below a month";
                report.bad(number, expected, text);
                return Ok(());
            }
            Some(entry) => self.add(&entry, of_file),
            None => of_file.empty += 1,
        }
        report.lines += 1;
        Ok(())
    }

    fn add(&mut self, entry: &Entry<'_>, of_file: &mut OfFile) {
        of_file.unzoned |= !entry.at.zoned;
        if !entry.sent {
            self.not_sent += 1;
            return;
        }
        let life = entry.life();
        self.with_durations |= life.is_some();
        of_file.without_duration += u64::from(life.is_none());
        let life = life.unwrap_or(0);
        let request = Request {
            site: &entry.site,
            method: &entry.method,
            target: &entry.target,
        };
        let weight = Weight::finished(life as f64 / SECOND as f64);
        let place = self.folder.add(&request, weight);
        let at = entry.at.in_zone(self.ahead_of_utc).nanos;
        let ended = at.saturating_add(entry.to_end());
        let logged = match entry.moment {
            Moment::Start => at.saturating_add(entry.total.unwrap_or(0)),
            Moment::End => at,
        };
        of_file.moments[usize::from(entry.moment == Moment::End)] += 1;
        of_file.resolution = of_file.resolution.max(entry.at.resolution);
        of_file.lows.push(logged);
        self.held.push(Held {
            place,
            sent: ended.saturating_sub(life),
            ended,
        });
    }

    /// Finds places within the second for the requests of one file.
    fn place_ends(&mut self, from: usize, of_file: &OfFile, report: &mut FileReport) {
        if of_file.resolution <= GOOD_RESOLUTION {
            return;
        }
        let (adds, placed) = place(&of_file.lows, of_file.resolution);
        for (held, add) in self.held[from..].iter_mut().zip(adds) {
            held.sent = held.sent.saturating_add(add);
            held.ended = held.ended.saturating_add(add);
        }
        let how = match placed {
            Placed::Ordered => "placed within it by the order of lines",
            Placed::Middle => "taken as its middle, since lines are in no order of time",
        };
        let seconds = of_file.resolution as f64 / SECOND as f64;
        report
            .notes
            .push(format!("times are known to {seconds} s, {how}"));
    }

    /// All requests by class, and the classes: number 0 is all that have no name.
    pub(super) fn finish(self) -> (Vec<Class>, Vec<Lived>) {
        let mut classes = vec![Class::default()];
        classes[0].name = "other".into();
        let mut numbers = BTreeMap::new();
        for (place, _) in self.folder.heaviest(NAMED_MAX) {
            numbers.insert(place, ClassId(classes.len() as u16));
            classes.push(Class {
                name: self.folder.name(place),
                pattern: self.folder.class_pattern(place),
                ..Class::default()
            });
        }
        let mut lived: Vec<Lived> = Vec::with_capacity(self.held.len());
        for held in self.held {
            let place = self.folder.resolve(held.place);
            let number = place.and_then(|place| numbers.get(&place)).copied();
            let class = number.unwrap_or(ClassId::OTHER);
            let sum = &mut classes[class.index()];
            sum.requests += 1;
            sum.seconds += (held.ended - held.sent) as f64 / SECOND as f64;
            let at = |nanos: i64| Timestamp::from_nanos(nanos.max(0) as u64);
            lived.push(Lived {
                class,
                sent: at(held.sent),
                ended: at(held.ended),
            });
        }
        lived.sort_by_key(|lived| (lived.class, lived.ended));
        (classes, lived)
    }
}

impl OfFile {
    fn tell(&self, report: &mut FileReport) {
        let what = match self.moments {
            [0, 0] => None,
            [_, 0] => Some("the start"),
            [0, _] => Some("the end"),
            [_, _] => Some("start or end"),
        };
        if let Some(what) = what {
            report
                .notes
                .push(format!("the time of a line is {what} of its request"));
        }
        if self.without_duration > 0 {
            let count = self.without_duration;
            report.notes.push(format!(
                "{count} requests without a duration: only that they were there counts"
            ));
        }
        if self.empty > 0 {
            report
                .notes
                .push(format!("{} lines without a request", self.empty));
        }
        if self.unzoned {
            report
                .notes
                .push("times have no zone: see --utc-offset".into());
        }
    }
}

/// What a line may be.
const KNOWN: &str =
    "an access log of Apache, nginx, HAProxy or Tidegate, or JSON; --log-format tells another";
const TOO_LONG: &str = "a line of at most 64 KiB";
