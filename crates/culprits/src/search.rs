//! From access logs and recordings to what is printed.
//!
//! Files are read as streams, by formats that their lines show; what is not understood is counted and
//! shown. Requests fold into classes in the core, which then sees all of it as if it happened now
//! (`replay`); what it says at every time is judged as a whole (`offline`). `picture` makes one report of it, which a
//! running front-end makes as well.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tidegate_core::classes::Pattern;

use crate::access::Format;
use crate::evidence::{Evidence, Resource};
use crate::files::FileReport;
use crate::offline;
use crate::picture::report::Report;
use crate::report::{Inputs, Printed};
use crate::requests::Requests;
use crate::resource::Recording;

/// So many bad lines, and one in so many of all, are no accident.
const BAD_LINES_MAX: u64 = 20;
const BAD_PART: u64 = 10;

/// What is read, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Access logs; `-` is standard input.
    pub access_logs: Vec<PathBuf>,
    /// What resources did meanwhile; `-` is standard input.
    pub recordings: Vec<PathBuf>,
    /// Formats of access logs as a server's configuration has them; `FILE=FORMAT` is for one of the files.
    pub log_formats: Vec<String>,
    /// How far times without a zone are ahead of UTC, seconds.
    pub utc_offset: Option<i64>,
    /// CPUs of hosts whose recordings do not say it.
    pub cpus: Option<u32>,
    /// Clocks are taken as they are, even if load and requests fit better otherwise.
    pub keeps_clocks: bool,
    /// Classes that the operator names; the first that fits counts.
    pub classes: Vec<Pattern>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The options make no sense.
    #[error("{0}")]
    Usage(String),
    /// A file cannot be read, or nothing was understood.
    #[error("{0}")]
    Failed(String),
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// The picture.
    pub report: Report,
    read: String,
    inputs: Value,
    doubt: Option<String>,
}

impl Found {
    /// What was read and what was found, for people, with so many classes of each resource.
    pub fn text(&self, top: usize) -> String {
        self.read.clone() + &self.report.text(top)
    }

    /// The same for programs.
    pub fn printed(&self) -> Printed<'_> {
        Printed {
            report: &self.report,
            inputs: &self.inputs,
        }
    }

    /// Why the result rests on a part of a file, if it does.
    pub fn doubt(&self) -> Option<&str> {
        self.doubt.as_deref()
    }
}

/// Reads all files and judges them.
///
/// # Errors
/// The options make no sense, a file cannot be read, or no line of all logs or of all recordings is understood.
pub fn search(options: &Options) -> Result<Found, SearchError> {
    let formats = LogFormats::parse(options)?;
    let is_input = |path: &&PathBuf| path.as_path() == Path::new("-");
    let all = options.access_logs.iter().chain(&options.recordings);
    if all.filter(is_input).count() > 1 {
        return Err(SearchError::Usage(
            "standard input can be read only once".into(),
        ));
    }
    let ahead = options.utc_offset.unwrap_or(0);
    let mut requests = Requests::new(options.classes.clone(), ahead);
    let mut recording = Recording::new(ahead);
    let logs = read_each(&options.access_logs, |path, report| {
        requests.read(path, formats.of(path), report)
    })?;
    let recordings = read_each(&options.recordings, |path, report| {
        recording.read(path, report)
    })?;
    let unknown_cpus = recording.count_cpus(options.cpus);
    recording.finish();
    understood(&logs)?;
    understood(&recordings)?;
    let (not_sent, left_out) = (requests.not_sent, recording.left_out);
    let logs_zoned = requests.zoned;
    let mut evidence = gather(requests, recording);
    evidence.unknown_cpus = unknown_cpus;
    if !options.keeps_clocks {
        evidence.align(options.utc_offset.is_some(), logs_zoned);
    }
    let judged = offline::judge(&evidence);
    let inputs = Inputs {
        logs: &logs,
        recordings: &recordings,
        not_sent,
        left_out,
        evidence: &evidence,
    };
    Ok(Found {
        report: offline::picture(&evidence, &judged),
        read: inputs.text(),
        inputs: inputs.value(),
        doubt: logs.iter().chain(&recordings).find_map(doubt),
    })
}

/// Reads files one after the other, and says what became of each.
fn read_each(
    paths: &[PathBuf],
    mut read: impl FnMut(&Path, &mut FileReport) -> std::io::Result<()>,
) -> Result<Vec<FileReport>, SearchError> {
    let one = |path: &PathBuf| {
        let mut report = FileReport::new(path);
        let read = read(path, &mut report);
        read.map_err(|error| SearchError::Failed(format!("{}: {error}", path.display())))?;
        Ok(report)
    };
    paths.iter().map(one).collect()
}

/// What `--log-format` says: of one file each, and of all others.
struct LogFormats<'a> {
    of_files: Vec<(&'a Path, Format)>,
    others: Option<Format>,
}

impl<'a> LogFormats<'a> {
    fn parse(options: &'a Options) -> Result<Self, SearchError> {
        let usage = |why: String| SearchError::Usage(format!("--log-format: {why}"));
        let mut formats = Self {
            of_files: Vec::new(),
            others: None,
        };
        for text in &options.log_formats {
            // A format may have an equals sign itself: only a file that is read is a file's name.
            let named = text.split_once('=').and_then(|(name, format)| {
                let file = options
                    .access_logs
                    .iter()
                    .find(|it| it.as_path() == Path::new(name));
                Some((file?.as_path(), format))
            });
            match named {
                Some((file, format)) => {
                    let format = Format::parse(format).map_err(usage)?;
                    formats.of_files.push((file, format));
                }
                None if formats.others.is_some() => {
                    return Err(usage("of several, each needs its file: FILE=FORMAT".into()));
                }
                None => formats.others = Some(Format::parse(text).map_err(usage)?),
            }
        }
        Ok(formats)
    }

    fn of(&self, path: &Path) -> Option<&Format> {
        let own = self.of_files.iter().find(|(file, _)| *file == path);
        own.map(|(_, format)| format).or(self.others.as_ref())
    }
}

/// All that was read, as discovery takes it.
pub(crate) fn gather(requests: Requests, recording: Recording) -> Evidence {
    let (classes, requests) = requests.finish();
    let resource = |(name, series)| Resource {
        name,
        series,
        alignment: None,
    };
    Evidence {
        classes,
        requests,
        resources: recording.series.into_iter().map(resource).collect(),
        unknown_cpus: Vec::new(),
    }
}

/// That not one line of all files says anything is a mistake.
fn understood(files: &[FileReport]) -> Result<(), SearchError> {
    if files.iter().any(|file| file.lines > 0) {
        return Ok(());
    }
    let told = |file: &FileReport| match file.bad_lines {
        0 if file.notes.is_empty() => format!("  {}: the file is empty\n", file.file),
        _ => file.text(),
    };
    let texts: String = files.iter().map(told).collect();
    Err(SearchError::Failed(format!(
        "nothing was understood of\n{}",
        texts.trim_end()
    )))
}

/// What was not understood may have been what matters: the result stands, and this is said of it.
fn doubt(file: &FileReport) -> Option<String> {
    let (bad, all) = (file.bad_lines, file.lines + file.bad_lines);
    let few = bad < BAD_LINES_MAX || bad * BAD_PART <= all;
    (!few).then(|| {
        format!(
            "{}: {bad} of {all} lines were not understood, so what is said above rests on a part of it",
            file.file
        )
    })
}
