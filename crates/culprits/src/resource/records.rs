//! Tidegate's own recordings: readings of a busy counter as CSV.
//!
//! ```text
//! time,busy_seconds,capacity[,resource]
//! 2024-05-31T10:00:00.000Z,1234.56,4,db1 cpu
//! ```
//!
//! `time` is RFC 3339 or seconds of the epoch, `busy_seconds` a counter that only grows (a
//! restart leaves a hole), `capacity` how many seconds it can grow in one. Values have no commas
//! and no quotes.

use std::collections::BTreeMap;

use super::{Reader, Recording, Unit};
use crate::time::{SECOND, Stamp};

/// What a resource without a name is called.
const UNNAMED: &str = "resource";
/// Resources of one file.
const RESOURCES_MAX: usize = 512;

/// Whether a file begins so.
pub(super) fn is_header(line: &str) -> bool {
    matches!(
        line.trim(),
        "time,busy_seconds,capacity" | "time,busy_seconds,capacity,resource"
    )
}

#[derive(Default)]
pub(super) struct Records {
    last: BTreeMap<String, (i64, f64)>,
}

impl Reader for Records {
    fn name(&self) -> &'static str {
        "time,busy_seconds,capacity"
    }

    fn line(&mut self, line: &str, recording: &mut Recording) -> Result<bool, &'static str> {
        if is_header(line) {
            return Ok(false);
        }
        let mut cells = line.split(',').map(str::trim);
        let (Some(time), Some(busy), Some(capacity)) = (cells.next(), cells.next(), cells.next())
        else {
            return Err("time,busy_seconds,capacity");
        };
        let name = cells
            .next()
            .filter(|name| !name.is_empty())
            .unwrap_or(UNNAMED);
        let at = Stamp::epoch(time, SECOND)
            .or_else(|| Stamp::iso(time))
            .ok_or("a time like 2024-05-31T10:00:00.000Z or seconds of the epoch")?;
        let positive = |text: &str| {
            text.parse()
                .ok()
                .filter(|it: &f64| it.is_finite() && *it >= 0.0)
        };
        let busy = positive(busy).ok_or("busy seconds, a number that is not negative")?;
        let capacity = positive(capacity).filter(|it| *it > 0.0);
        let capacity = capacity.ok_or("a capacity, a number above zero")?;
        if self.last.len() >= RESOURCES_MAX && !self.last.contains_key(name) {
            return Err("at most 512 resources");
        }
        let Some((last, was)) = self.last.insert(name.to_owned(), (at.nanos, busy)) else {
            return Ok(true);
        };
        let length = at.nanos - last;
        if length > 0 && busy >= was {
            let mean = (busy - was) / (length as f64 / SECOND as f64);
            recording.add(name, Unit::Busy { capacity }, at, length, mean);
        }
        Ok(true)
    }
}
