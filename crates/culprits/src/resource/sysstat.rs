//! sysstat: `sadf -d`, `sadf -p` and what `sar` prints.
//!
//! All three are rows of named columns; `row` knows the names. Source: the manual pages of sadf and
//! sar, and what releases 11 to 12 write.

use std::collections::BTreeMap;

use super::{Reader, Recording, row};
use crate::time::{SECOND, Stamp, decimal};

/// Names of columns that say which CPU, disk or interface a row is of.
const DEVICES: [&str; 3] = ["CPU", "DEV", "IFACE"];
/// Columns that are looked at.
const COLUMNS_MAX: usize = 256;

/// How many CPUs stand in brackets: `(4 CPU)`.
fn cpus(line: &str) -> Option<f64> {
    let (_, rest) = line.rsplit_once('(')?;
    let number: u32 = rest.split_once(" CPU)")?.0.parse().ok()?;
    (number > 0).then(|| f64::from(number))
}

/// `sadf -d`: `# hostname;interval;timestamp;CPU;%user;…` and rows of it.
pub(super) struct Table {
    name: &'static str,
    separator: &'static str,
    columns: Vec<String>,
    cpus: Option<f64>,
}

impl Table {
    pub(super) fn new(name: &'static str, separator: &'static str) -> Self {
        Self {
            name,
            separator,
            columns: Vec::new(),
            cpus: None,
        }
    }
}

impl Reader for Table {
    fn name(&self) -> &'static str {
        self.name
    }

    fn line(&mut self, line: &str, recording: &mut Recording) -> Result<bool, &'static str> {
        if let Some(header) = line.strip_prefix("# ") {
            let columns = header.split(self.separator).take(COLUMNS_MAX);
            self.columns = columns.map(str::to_owned).collect();
            return Ok(false);
        }
        if line.contains("LINUX-RESTART") || line.contains(";COM ") {
            self.cpus = cpus(line).or(self.cpus);
            return Ok(false);
        }
        let cells: Vec<&str> = line.split(self.separator).take(COLUMNS_MAX).collect();
        if self.columns.is_empty() || cells.len() != self.columns.len() {
            return Err("as many values as the header has names");
        }
        let text = |name: &str| {
            let at = self.columns.iter().position(|column| column == name)?;
            cells.get(at).copied()
        };
        let host = text("hostname").ok_or("a column hostname")?;
        let (_, interval) = text("interval")
            .and_then(interval)
            .ok_or("an interval in seconds")?;
        let end = text("timestamp").and_then(timestamp).ok_or("a timestamp")?;
        let device = DEVICES
            .iter()
            .find_map(|name| text(name))
            .unwrap_or_default();
        let number = |name: &str| text(name)?.parse().ok();
        Ok(row(
            recording,
            (host, self.cpus),
            (end, interval),
            device,
            number,
        ))
    }
}

/// Seconds, and nanoseconds.
fn interval(text: &str) -> Option<(f64, i64)> {
    let (nanos, _) = decimal(text, SECOND)?;
    Some((nanos as f64 / SECOND as f64, nanos))
}

/// `2024-05-31 10:00:01 UTC`, without the zone if it was asked for, or seconds of the epoch.
fn timestamp(text: &str) -> Option<Stamp> {
    Stamp::iso(text).or_else(|| Stamp::epoch(text, SECOND))
}

/// `sadf -p`: host, interval, timestamp, device, name and value, with tabs between.
#[derive(Default)]
pub(super) struct Pairs {
    key: Option<(String, i64, Stamp, String)>,
    values: BTreeMap<String, f64>,
    cpus: Option<f64>,
}

impl Pairs {
    fn put(&mut self, recording: &mut Recording) -> bool {
        let values = std::mem::take(&mut self.values);
        let Some((host, interval, end, device)) = self.key.take() else {
            return false;
        };
        let number = |name: &str| values.get(name).copied();
        row(
            recording,
            (&host, self.cpus),
            (end, interval),
            &device,
            number,
        )
    }
}

impl Reader for Pairs {
    fn name(&self) -> &'static str {
        "sadf -p"
    }

    fn line(&mut self, line: &str, recording: &mut Recording) -> Result<bool, &'static str> {
        if line.contains("LINUX-RESTART") {
            self.cpus = cpus(line).or(self.cpus);
            return Ok(false);
        }
        let cells: Vec<&str> = line.split('\t').take(7).collect();
        let [host, length, at, device, name, value] = cells[..] else {
            return Err("host, interval, timestamp, device, name and value with tabs between");
        };
        let (_, length) = interval(length).ok_or("an interval in seconds")?;
        let end = timestamp(at).ok_or("a timestamp")?;
        let value: f64 = value.parse().map_err(|_| "a number at the end")?;
        let key = (host.to_owned(), length, end, device.to_owned());
        // Names come once for each row: one that is there already begins the next.
        let next = self.key.as_ref() != Some(&key) || self.values.contains_key(name);
        let had_values = next && self.put(recording);
        self.key = Some(key);
        if self.values.len() < COLUMNS_MAX {
            self.values.insert(name.to_owned(), value);
        }
        Ok(had_values)
    }

    fn end(&mut self, recording: &mut Recording) {
        self.put(recording);
    }
}

/// What `sar` prints: the date in the first line, tables of times.
pub(super) struct Sar {
    host: String,
    cpus: Option<f64>,
    /// Midnight before the times, nanoseconds.
    day: Option<i64>,
    columns: Vec<String>,
    /// The time of the last row, and when its interval began.
    last: Option<i64>,
    begun: Option<i64>,
}

impl Sar {
    pub(super) fn new() -> Self {
        Self {
            host: String::new(),
            cpus: None,
            day: None,
            columns: Vec::new(),
            last: None,
            begun: None,
        }
    }

    /// `Linux 6.1.0 (db1) 05/31/2024 _x86_64_ (4 CPU)`.
    fn first_line(&mut self, line: &str) -> Result<bool, &'static str> {
        let name = line
            .split_once('(')
            .and_then(|(_, rest)| rest.split_once(')'));
        let (host, rest) = name.ok_or("a host's name in brackets")?;
        let date = rest.split_ascii_whitespace().next().and_then(date);
        self.host = host.to_owned();
        self.cpus = cpus(line);
        self.day = Some(date.ok_or("a date like 2024-05-31 or 05/31/2024")?);
        self.last = None;
        Ok(false)
    }

    /// The time of a row, and what follows it.
    fn time<'a>(&mut self, words: &[&'a str]) -> Option<(i64, Vec<&'a str>)> {
        let (clock, rest) = words.split_first()?;
        let (half, rest) = match rest.split_first() {
            Some((&"AM", rest)) => (Some(0), rest),
            Some((&"PM", rest)) => (Some(12), rest),
            Some(_) | None => (None, rest),
        };
        let mut parts = clock.split(':').map(str::parse::<i64>);
        let mut part = |most: i64| parts.next()?.ok().filter(|it| (0..=most).contains(it));
        let (hours, minutes, seconds) = (part(23)?, part(59)?, part(60)?);
        let hours = half.map_or(hours, |half| hours % 12 + half);
        let mut at = self.day? + (hours * 3600 + minutes * 60 + seconds) * SECOND;
        // Tables begin anew, and days do not go back: only a jump by most of a day is midnight.
        if let Some(last) = self.last
            && at < last - HALF_DAY
        {
            self.day = self.day.map(|day| day + 2 * HALF_DAY);
            at += 2 * HALF_DAY;
        }
        Some((at, rest.to_vec()))
    }
}

/// Half a day, nanoseconds.
const HALF_DAY: i64 = 12 * 3600 * SECOND;

impl Reader for Sar {
    fn name(&self) -> &'static str {
        "sar"
    }

    fn line(&mut self, line: &str, recording: &mut Recording) -> Result<bool, &'static str> {
        if line.starts_with("Linux ") {
            return self.first_line(line);
        }
        // Averages of all come last and in any language; restarts have no values.
        let words: Vec<&str> = line.split_ascii_whitespace().take(COLUMNS_MAX).collect();
        if line.contains("LINUX RESTART") {
            self.cpus = cpus(line).or(self.cpus);
            self.last = None;
            return Ok(false);
        }
        if words.first().is_some_and(|word| word.ends_with(':')) {
            return Ok(false);
        }
        let (at, words) = self
            .time(&words)
            .ok_or("a time like 10:00:01 at the beginning")?;
        let is_name =
            |word: &&str| word.starts_with('%') || word.contains("/s") || DEVICES.contains(word);
        if words.iter().any(is_name) {
            self.columns = words.iter().map(|word| (*word).to_owned()).collect();
            // A header has the time of the sample before its first row.
            self.last = Some(at);
            return Ok(false);
        }
        if words.len() != self.columns.len() {
            return Err("as many values as the header has names");
        }
        // Rows of one time are of several devices, and of one interval.
        if self.last != Some(at) {
            self.begun = self.last.replace(at);
        }
        let length = self.begun.map_or(0, |begun| at - begun);
        let text = |name: &str| {
            let column = self.columns.iter().position(|column| column == name)?;
            words.get(column).copied()
        };
        let device = DEVICES
            .iter()
            .find_map(|name| text(name))
            .unwrap_or_default();
        let number = |name: &str| text(name)?.parse().ok();
        let end = Stamp {
            nanos: at,
            resolution: SECOND,
            zoned: false,
        };
        Ok(row(
            recording,
            (&self.host, self.cpus),
            (end, length),
            device,
            number,
        ))
    }
}

/// `2024-05-31`, `05/31/2024`, `05/31/24` (month first, as sysstat writes it in the C locale) or
/// `31.05.2024`; midnight in nanoseconds.
fn date(text: &str) -> Option<i64> {
    let formats = ["%Y-%m-%d", "%m/%d/%Y", "%m/%d/%y", "%d.%m.%Y"];
    formats.iter().find_map(|format| {
        let date = jiff::civil::Date::strptime(format, text).ok()?;
        Some(Stamp::iso(&date.to_string())?.nanos)
    })
}
