//! `tidegate culprits`: which requests go with the load of which resource, from access logs and
//! recordings that are there already.
//!
//! Files are read as streams, by formats that are told by their lines; what is not understood is
//! counted and shown. Requests fold into classes in the core, which is then told all of it as if it
//! happened now (`replay`); what it says at every time is judged as a whole (`offline`). `picture` makes
//! one report of it, which a running front-end makes as well.

pub(crate) mod access;
pub(crate) mod causal;
pub(crate) mod command;
mod correlate;
pub(crate) mod evidence;
mod files;
mod input;
pub(crate) mod live;
mod offline;
mod order;
pub(crate) mod page;
pub(crate) mod picture;
#[cfg(test)]
mod recordings;
mod replay;
mod report;
mod requests;
pub(crate) mod resource;
pub(crate) mod time;

use std::path::Path;

use crate::failure::Failure;
use crate::output::Output;
use crate::replace::replace;
use access::Format;
use command::CulpritsArgs;
use evidence::{Evidence, Resource};
use files::FileReport;
use page::offline_page;
use picture::report::Report;
use report::{Inputs, Printed};
use requests::Requests;
use resource::Recording;

/// Does what the arguments ask for.
fn run(args: &CulpritsArgs, output: Output) -> Result<(), Failure> {
    let formats = LogFormats::parse(args)?;
    let twice = |path: &&std::path::PathBuf| path.as_path() == Path::new("-");
    let all = args.access_log.iter().chain(&args.resource);
    if all.filter(twice).count() > 1 {
        return Err(Failure::Usage(
            "standard input can be read only once".into(),
        ));
    }
    let ahead = args.utc_offset.unwrap_or(0);
    let mut requests = Requests::new(args.class.clone(), ahead);
    let mut recording = Recording::new(ahead);
    let mut logs = Vec::new();
    for path in &args.access_log {
        let mut report = FileReport::new(path);
        let read = requests.read(path, formats.of(path), &mut report);
        read.map_err(|error| unreadable(path, &error))?;
        logs.push(report);
    }
    let mut recordings = Vec::new();
    for path in &args.resource {
        let mut report = FileReport::new(path);
        let read = recording.read(path, &mut report);
        read.map_err(|error| unreadable(path, &error))?;
        recordings.push(report);
    }
    let unknown_cpus = recording.count_cpus(args.cpus);
    recording.finish();
    understood(&logs)?;
    understood(&recordings)?;
    let (not_sent, left_out) = (requests.not_sent, recording.left_out);
    let logs_zoned = requests.zoned;
    let mut evidence = gather(requests, recording);
    evidence.unknown_cpus = unknown_cpus;
    if !args.no_align {
        evidence.align(args.utc_offset.is_some(), logs_zoned);
    }
    let judged = offline::judge(&evidence);
    let report = offline::picture(&evidence, &judged);
    let inputs = Inputs {
        logs: &logs,
        recordings: &recordings,
        not_sent,
        left_out,
        evidence: &evidence,
    };
    let text = inputs.text() + &report.text(args.top);
    write_page(args, &report)?;
    let printed = Printed {
        report: &report,
        inputs: inputs.value(),
    };
    output.result(&text, &printed)?;
    logs.iter()
        .chain(&recordings)
        .try_for_each(mostly_understood)
}

/// What `--log-format` says: of one file each, and of all others.
struct LogFormats<'a> {
    of_files: Vec<(&'a Path, Format)>,
    others: Option<Format>,
}

impl<'a> LogFormats<'a> {
    fn parse(args: &'a CulpritsArgs) -> Result<Self, Failure> {
        let usage = |why: String| Failure::Usage(format!("--log-format: {why}"));
        let mut formats = Self {
            of_files: Vec::new(),
            others: None,
        };
        for text in &args.log_format {
            // A format may have an equals sign itself: only a file that is read is a file's name.
            let named = text.split_once('=').and_then(|(name, format)| {
                let file = args
                    .access_log
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

/// Shows what a running front-end knows.
fn show(args: &CulpritsArgs, report: &Report, output: Output) -> Result<(), Failure> {
    let text = match report.resources.is_empty() && report.classes.is_empty() {
        true => {
            let notes: String = report
                .notes
                .iter()
                .map(|note| format!("{note}\n"))
                .collect();
            notes + "not known yet: some seconds of requests and of nodes' load are needed\n"
        }
        false => report.text(args.top),
    };
    write_page(args, report)?;
    Ok(output.result(&text, report)?)
}

/// Writes the page, if it is wanted.
fn write_page(args: &CulpritsArgs, report: &Report) -> Result<(), Failure> {
    let Some(path) = &args.html else {
        return Ok(());
    };
    let json = serde_json::to_string(report).map_err(|error| Failure::Failed(error.to_string()))?;
    let page = offline_page(&json);
    replace(path, page.as_bytes())
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))
}

/// All that was read, as discovery takes it.
fn gather(requests: Requests, recording: Recording) -> Evidence {
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

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", path.display()))
}

/// That not one line of all files says anything is a mistake.
fn understood(files: &[FileReport]) -> Result<(), Failure> {
    if files.iter().any(|file| file.lines > 0) {
        return Ok(());
    }
    let told = |file: &FileReport| match file.bad_lines {
        0 if file.notes.is_empty() => format!("  {}: the file is empty\n", file.file),
        _ => file.text(),
    };
    let texts: String = files.iter().map(told).collect();
    Err(Failure::Failed(format!(
        "nothing was understood of\n{}",
        texts.trim_end()
    )))
}

/// What was not understood may have been what matters: then the result stands, and the command fails.
fn mostly_understood(file: &FileReport) -> Result<(), Failure> {
    let (bad, all) = (file.bad_lines, file.lines + file.bad_lines);
    if bad < BAD_LINES_MAX || bad * BAD_PART <= all {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{}: {bad} of {all} lines were not understood, so what is said above rests on a part of it",
        file.file
    )))
}

/// So many bad lines, and one in so many of all, are no accident.
const BAD_LINES_MAX: u64 = 20;
const BAD_PART: u64 = 10;
