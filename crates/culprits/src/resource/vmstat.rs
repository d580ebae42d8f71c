//! `vmstat -t`: two lines of names, then a row for each interval with the time at its end.
//!
//! The first row tells means since the machine was started, and is left out. The last name is the
//! zone of the times, which counts if it is UTC. Source: the manual page of procps' vmstat.

use super::{Reader, Recording, row};
use crate::time::Stamp;

/// Words of a row that are looked at.
const WORDS_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Vmstat {
    columns: Vec<String>,
    utc: bool,
    last: Option<i64>,
}

impl Reader for Vmstat {
    fn name(&self) -> &'static str {
        "vmstat -t"
    }

    fn line(&mut self, line: &str, recording: &mut Recording) -> Result<bool, &'static str> {
        if line.starts_with("procs") {
            return Ok(false);
        }
        let words: Vec<&str> = line.split_ascii_whitespace().take(WORDS_MAX).collect();
        if words.first() == Some(&"r") {
            self.columns = words.iter().map(|word| (*word).to_owned()).collect();
            self.utc = words.last() == Some(&"UTC");
            return Ok(false);
        }
        let [values @ .., date, time] = words.as_slice() else {
            return Err("values, a date and a time");
        };
        // The zone stands above date and time.
        if self.columns.is_empty() || values.len() + 1 < self.columns.len() {
            return Err("as many values as there are names, and -t's time behind them");
        }
        let at = Stamp::iso(&format!("{date} {time}")).ok_or("a time as `vmstat -t` writes it")?;
        let Some(last) = self.last.replace(at.nanos) else {
            return Ok(false);
        };
        let at = Stamp {
            zoned: self.utc,
            ..at
        };
        let number = |name: &str| {
            let name = match name {
                "%idle" => "id",
                "%iowait" => "wa",
                "%steal" => "st",
                _ => return None,
            };
            let column = self.columns.iter().position(|column| column == name)?;
            values.get(column)?.parse().ok()
        };
        let switches = |name: &str| {
            let column = self.columns.iter().position(|column| column == "cs")?;
            (name == "cswch/s").then(|| values.get(column)?.parse().ok())?
        };
        let host = ("vmstat", None);
        let interval = (at, at.nanos - last);
        let cpu = row(recording, host, interval, "all", number);
        Ok(row(recording, host, interval, "", switches) || cpu)
    }
}
