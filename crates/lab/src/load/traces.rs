//! Recorded traffic, where it is at hand, and drawn traffic of the same shape where not.
//!
//! Two traces: the World Cup's site of 1998 (arrivals of 105 minutes of day 53, that is 142,166
//! requests whose rate grows tenfold before a match) and NASA's site of 1995 (a night, 9,999
//! requests with URL and size). They are looked for in the folder that `TIDEGATE_TRACES` names, or
//! in `../shared/traces`. Neither is part of the repository.
//!
//! What is recorded and what is not is said in [`Trace::said`], and goes into every report. Times
//! are kept as shares of the whole trace, since every use presses it into the length of a run.
//!
//! Limits: [`BYTES_MAX`] of text and [`LINES_MAX`] lines of a file are read.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use tidegate_core::prng::Prng;
use tidegate_sim::model::Demand;

use super::files::Zipf;

/// Uncompressed text of a trace at most.
const BYTES_MAX: u64 = 64 << 20;
/// Lines of a trace at most.
const LINES_MAX: usize = 2_000_000;
const WORLD_CUP_FILE: &str = "wc98_day53_105min_interarrivals.delta.gz";
/// The archive's own sample of requests, in the common log format.
const WORLD_CUP_LOG: &str = "wc98_test_log_1000.clf.gz";
const NASA_FILE: &str = "nasa_19950701_first10k.tsv.gz";
/// Of the modelled ones, so that they are the same in every run and every arm.
const SHAPE_SEED: u64 = 0x1998;
/// Requests, different URLs and their skew in the NASA log, and its sizes: log-normal with this
/// mean and coefficient of variation (fitted to the log's mean of the logarithm 8.5, deviation 1.9).
const NASA_REQUESTS: usize = 9_999;
const NASA_URLS: u32 = 1_165;
const NASA_ALPHA: f64 = 1.05;
const NASA_SIZE_MEAN: f64 = 24_650.0;
const NASA_SIZE_CV: f64 = 4.0;
const NASA_SIZE_MAX: f64 = 1_300_000.0;
/// Points of a modelled rate curve.
const POINTS: usize = 10_000;

/// Traffic of one site: when requests came, and for some also what they asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trace {
    /// Arrivals, ascending, as shares of the trace's length.
    pub(super) times: Vec<f64>,
    /// What each asked for; empty if the trace does not know.
    pub(super) requests: Vec<Recorded>,
    /// Which part of it is real, as a sentence.
    pub(super) said: String,
}

/// One recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Rank of its URL by first appearance.
    pub file: u32,
    /// Size of the answer.
    pub bytes: u32,
}

/// A trace that is there and cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("trace {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is not what it should be.
    #[error("trace {path}, line {line}: expected {expected}, found {found:?}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What was expected.
        expected: &'static str,
        /// What stood there, shortened.
        found: String,
    },
}

/// Where traces are looked for.
pub(super) fn folder() -> PathBuf {
    std::env::var_os("TIDEGATE_TRACES")
        .map_or_else(|| PathBuf::from("../shared/traces"), PathBuf::from)
}

/// The recorded arrivals of the World Cup's site, or why they are not at hand.
///
/// # Errors
/// A sentence that says where they were looked for.
pub fn recorded_world_cup() -> Result<PathBuf, String> {
    let path = folder().join(WORLD_CUP_FILE);
    match path.is_file() {
        true => Ok(path),
        false => Err(format!(
            "the recorded trace is not at hand: there is no {}",
            path.display()
        )),
    }
}

/// A thousand recorded requests of the World Cup's site, in their order, or why they are not at hand.
///
/// # Errors
/// A sentence that says where they were looked for, or what is wrong with them.
pub fn recorded_requests() -> Result<Vec<Recorded>, String> {
    let path = folder().join(WORLD_CUP_LOG);
    let read = requests_of_log(&path).map_err(|error| error.to_string())?;
    read.ok_or_else(|| {
        let path = path.display();
        format!("the recorded requests are not at hand: there is no {path}")
    })
}

/// The requests of a log in the common format; none without the file.
fn requests_of_log(path: &Path) -> Result<Option<Vec<Recorded>>, TraceError> {
    let Some(lines) = lines(path)? else {
        return Ok(None);
    };
    let mut ranks = std::collections::BTreeMap::new();
    let mut requests = Vec::new();
    for (index, line) in lines.text.iter().enumerate() {
        let quoted: Vec<_> = line.splitn(3, '"').collect();
        let &[_, request, rest] = quoted.as_slice() else {
            return Err(lines.wrong(index, "a request in quotes"));
        };
        let url = request.split(' ').nth(1);
        let url = url.ok_or_else(|| lines.wrong(index, "method and URL in quotes"))?;
        let bytes = rest.split_whitespace().nth(1);
        let bytes = bytes.ok_or_else(|| lines.wrong(index, "status and bytes at its end"))?;
        let next = ranks.len() as u32;
        requests.push(Recorded {
            file: *ranks.entry(url.to_owned()).or_insert(next),
            bytes: bytes.parse().unwrap_or(0), // "-" stands for none
        });
    }
    Ok(Some(requests))
}

/// The World Cup's arrivals.
pub(super) fn world_cup(folder: &Path) -> Result<Trace, TraceError> {
    let Some(lines) = lines(&folder.join(WORLD_CUP_FILE))? else {
        return Ok(world_cup_model());
    };
    let mut sum = 0.0;
    let mut times = Vec::with_capacity(lines.text.len());
    for (index, line) in lines.text.iter().enumerate() {
        let gap: f64 = line
            .trim()
            .parse()
            .ok()
            .filter(|gap: &f64| gap.is_finite() && *gap >= 0.0)
            .ok_or_else(|| lines.wrong(index, "a gap in seconds"))?;
        sum += gap;
        times.push(sum);
    }
    Ok(Trace {
        said: format!(
            "World Cup arrivals: the course of the rate is recorded (day 53, {} requests in {:.0} \
             minutes, pressed into the run); single arrivals are drawn from it; URLs and sizes are \
             modelled",
            times.len(),
            sum / 60.0
        ),
        times: shares(times),
        requests: Vec::new(),
    })
}

/// NASA's log.
pub(super) fn nasa(folder: &Path) -> Result<Trace, TraceError> {
    let Some(lines) = lines(&folder.join(NASA_FILE))? else {
        return Ok(nasa_model());
    };
    let mut ranks = std::collections::BTreeMap::new();
    let mut seconds = Vec::new();
    let mut requests = Vec::new();
    for (index, line) in lines.text.iter().enumerate().skip(1) {
        let columns: Vec<_> = line.split('\t').collect();
        let &[time, _client, _method, url, _status, bytes] = columns.as_slice() else {
            return Err(lines.wrong(index, "six columns"));
        };
        let time: u32 = time
            .parse()
            .ok()
            .filter(|time| seconds.last().is_none_or(|last| last <= time))
            .ok_or_else(|| lines.wrong(index, "ascending whole seconds"))?;
        let next = ranks.len() as u32;
        seconds.push(time);
        requests.push(Recorded {
            file: *ranks.entry(url.to_owned()).or_insert(next),
            bytes: bytes.parse().unwrap_or(0), // "-" stands for none
        });
    }
    Ok(Trace {
        said: format!(
            "NASA replay: the course of the rate, URLs and sizes are recorded (1 July 1995, {} \
             requests, pressed into the run); arrivals within a second are drawn",
            requests.len()
        ),
        times: shares(within_seconds(&seconds)),
        requests,
    })
}

struct Lines {
    path: PathBuf,
    text: Vec<String>,
}

impl Lines {
    fn wrong(&self, index: usize, expected: &'static str) -> TraceError {
        TraceError::Line {
            path: self.path.clone(),
            line: index + 1,
            expected,
            found: self.text[index].chars().take(80).collect(),
        }
    }
}

/// The lines of a compressed file, or nothing if there is no such file.
fn lines(path: &Path) -> Result<Option<Lines>, TraceError> {
    let failed = |source| TraceError::Read {
        path: path.to_owned(),
        source,
    };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let text = BufReader::new(flate2::read::GzDecoder::new(file).take(BYTES_MAX))
        .lines()
        .take(LINES_MAX)
        .filter(|line| !line.as_ref().is_ok_and(String::is_empty))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    let path = path.to_owned();
    Ok(Some(Lines { path, text }))
}

/// Seconds to shares of the last one.
fn shares(mut times: Vec<f64>) -> Vec<f64> {
    let end = times.last().copied().unwrap_or(1.0).max(f64::MIN_POSITIVE);
    times.iter_mut().for_each(|time| *time /= end);
    times
}

/// Requests that share a second are spread evenly over it.
fn within_seconds(seconds: &[u32]) -> Vec<f64> {
    let mut times = Vec::with_capacity(seconds.len());
    for second in seconds.chunk_by(|a, b| a == b) {
        let count = second.len() as f64;
        let spread = |(index, second): (usize, &u32)| f64::from(*second) + index as f64 / count;
        times.extend(second.iter().enumerate().map(spread));
    }
    times
}

/// A rate that is flat for half of the time and then grows about eightfold, with a dip before
/// the end: what an evening with a match looks like.
fn world_cup_model() -> Trace {
    let rate = |at: f64| {
        let growth = ((at - 0.5) / 0.4).clamp(0.0, 1.0);
        let dip = if (0.85..0.9).contains(&at) { 0.6 } else { 1.0 };
        (1.0 + 7.0 * growth * growth) * dip
    };
    Trace {
        times: from_rate(rate),
        requests: Vec::new(),
        said: "World Cup arrivals: all modelled (the recorded trace is not at hand): a rate that \
               grows eightfold in the second half of the run"
            .to_owned(),
    }
}

/// A night: a rate that falls to less than half; URLs and sizes as the log's in the mean.
fn nasa_model() -> Trace {
    let mut prng = Prng::new(SHAPE_SEED);
    let zipf = Zipf::new(NASA_ALPHA, NASA_URLS);
    let size = Demand::LogNormal { cv: NASA_SIZE_CV };
    let sizes: Vec<u32> = (0..NASA_URLS)
        .map(|_| size.draw(NASA_SIZE_MEAN, &mut prng).min(NASA_SIZE_MAX) as u32)
        .collect();
    let requests = (0..NASA_REQUESTS).map(|_| {
        let file = zipf.draw(&mut prng);
        let bytes = sizes[file as usize];
        Recorded { file, bytes }
    });
    Trace {
        requests: requests.collect(),
        times: from_rate(|at| 1.0 - 0.6 * at),
        said: "NASA replay: all modelled (the recorded log is not at hand): a rate that falls by \
               60 %, Zipf popularity and log-normal sizes"
            .to_owned(),
    }
}

/// Times whose density follows a rate.
fn from_rate(rate: impl Fn(f64) -> f64) -> Vec<f64> {
    let steps = POINTS * 10;
    let at = |step: usize| step as f64 / steps as f64;
    let whole: f64 = (0..steps).map(|step| rate(at(step))).sum();
    let mut times = Vec::with_capacity(POINTS);
    let mut sum = 0.0;
    for step in 0..steps {
        sum += rate(at(step)) / whole * POINTS as f64;
        while times.len() < sum as usize {
            times.push(at(step + 1));
        }
    }
    shares(times)
}

#[cfg(test)]
#[path = "traces_tests.rs"]
mod tests;
