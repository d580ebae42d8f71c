//! What one request asks for: the parameters of `/work`, their units and limits.
//!
//! | parameter | example | meaning |
//! |---|---|---|
//! | `cpu` | `1500us` | CPU time of the worker, half of it before the sleep |
//! | `mem` | `64KiB` | memory that is written to and held until the end |
//! | `sleep` | `5ms` | time in which the worker does nothing, as if it waited for a database |
//! | `bytes` | `1024` | length of the answer |
//! | `fds` | `3` | file descriptors that are open until the end |
//! | `file` | `17` | a file of the cache: adds the CPU time of a hit or of a miss |
//!
//! All are optional. Durations and sizes carry units, but for `bytes`, which needs none.

use std::time::Duration;

use tidegate_core::units::{UnitError, parse_duration, parse_size};

/// Most CPU time, and longest sleep.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Most memory.
const MEMORY_MAX: u64 = 1 << 30;
/// Longest answer.
const BYTES_MAX: u64 = 64 << 20;
/// Most file descriptors of one request.
const FDS_MAX: u32 = 4096;
/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// CPU time.
    pub cpu: Duration,
    /// Memory held, bytes.
    pub memory: u64,
    /// Time asleep.
    pub sleep: Duration,
    /// Length of the answer.
    pub bytes: u64,
    /// File descriptors held.
    pub fds: u32,
    /// A file of the cache.
    pub file: Option<u64>,
}

/// Why a request cannot be done: one sentence, which is the answer's body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// An unknown name.
    #[error("unknown parameter `{0}`: cpu, mem, sleep, bytes, fds and file are known")]
    Unknown(String),
    /// A duration or size that is none.
    #[error("`{name}={value}`: {error}")]
    Unit {
        /// The parameter.
        name: String,
        /// Its value.
        value: String,
        /// Why not.
        error: UnitError,
    },
    /// A number that is none.
    #[error("`{name}={value}`: a whole number is needed")]
    Number {
        /// The parameter.
        name: String,
        /// Its value.
        value: String,
    },
    /// Too much.
    #[error("`{name}={value}` is more than {most}")]
    Much {
        /// The parameter.
        name: String,
        /// Its value.
        value: String,
        /// The limit.
        most: String,
    },
}

impl Work {
    /// The part of a URL behind the question mark.
    pub fn parse(query: &str) -> Result<Self, WorkError> {
        let mut work = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "cpu" => work.cpu = time(name, value)?,
                "sleep" => work.sleep = time(name, value)?,
                "mem" => work.memory = size(name, value, MEMORY_MAX)?,
                "bytes" => work.bytes = size(name, value, BYTES_MAX)?,
                "fds" => work.fds = whole(name, value, FDS_MAX.into())? as u32,
                "file" => work.file = Some(whole(name, value, u64::MAX)?),
                _ => return Err(WorkError::Unknown(name.to_owned())),
            }
        }
        Ok(work)
    }
}

fn time(name: &str, value: &str) -> Result<Duration, WorkError> {
    let time = parse_duration(value).map_err(wrong(name, value))?;
    if time > TIME_MAX {
        return Err(much(name, value, format!("{TIME_MAX:?}")));
    }
    Ok(time)
}

fn size(name: &str, value: &str, most: u64) -> Result<u64, WorkError> {
    let bytes = match value.parse() {
        Ok(bytes) => bytes,
        Err(_) => parse_size(value).map_err(wrong(name, value))?.0,
    };
    if bytes > most {
        return Err(much(name, value, format!("{most} bytes")));
    }
    Ok(bytes)
}

fn whole(name: &str, value: &str, most: u64) -> Result<u64, WorkError> {
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(WorkError::Number {
            name: name.to_owned(),
            value: value.to_owned(),
        });
    }
    match value.parse() {
        Ok(number) if number <= most => Ok(number),
        _ => Err(much(name, value, most.to_string())),
    }
}

fn wrong(name: &str, value: &str) -> impl FnOnce(UnitError) -> WorkError {
    let (name, value) = (name.to_owned(), value.to_owned());
    move |error| WorkError::Unit { name, value, error }
}

fn much(name: &str, value: &str, most: String) -> WorkError {
    WorkError::Much {
        name: name.to_owned(),
        value: value.to_owned(),
        most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_understood_and_none_is_needed() {
        let work = Work::parse("cpu=1500us&mem=64KiB&sleep=5ms&bytes=1024&fds=3&file=17").unwrap();
        let expected = Work {
            cpu: Duration::from_micros(1500),
            memory: 65_536,
            sleep: Duration::from_millis(5),
            bytes: 1024,
            fds: 3,
            file: Some(17),
        };
        assert_eq!(work, expected);
        assert_eq!(Work::parse("").unwrap(), Work::default());
        assert_eq!(
            Work::parse("&cpu=7ms&").unwrap().cpu,
            Duration::from_millis(7)
        );
        assert_eq!(Work::parse("bytes=2MiB").unwrap().bytes, 2 << 20);
    }

    #[test]
    fn limits_are_kept_to_the_last_one() {
        for fine in [
            "cpu=60s",
            "sleep=60000ms",
            "mem=1GiB",
            "bytes=64MiB",
            "fds=4096",
            "file=18446744073709551615",
        ] {
            Work::parse(fine).unwrap_or_else(|error| panic!("{fine}: {error}"));
        }
        for beyond in [
            "cpu=60001ms",
            "sleep=1000000s",
            "mem=1025MiB",
            "bytes=67108865",
            "fds=4097",
            "file=18446744073709551616",
        ] {
            let error = Work::parse(beyond).unwrap_err();
            assert!(matches!(error, WorkError::Much { .. }), "{beyond}: {error}");
            assert!(error.to_string().contains(beyond), "{error}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_sentence() {
        for (nonsense, says) in [
            ("cpu=5", "the unit is missing"),
            ("cpu=", "a whole number and a unit"),
            ("cpu", "a whole number and a unit"),
            ("cpu=-1ms", "a whole number and a unit"),
            ("cpu=1.5ms", "a whole number and a unit"),
            ("cpu=99999999999999999999999s", "too large"),
            ("mem=5ms", "unknown unit"),
            ("fds=1.5", "a whole number"),
            ("fds=+1", "a whole number"),
            ("colour=red", "unknown parameter"),
        ] {
            let error = Work::parse(nonsense).unwrap_err().to_string();
            assert!(error.contains(says), "{nonsense}: {error}");
        }
    }
}
