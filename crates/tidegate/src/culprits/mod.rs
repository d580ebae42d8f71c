//! `tidegate culprits`: which requests go with the load of which resource, from access logs and
//! recordings that are there already.
//!
//! Files are read as streams, by formats that are told by their lines; what is not understood is
//! counted and shown. Requests fold into classes in the core. The first view is Pearson's r and p
//! for every class and resource. `causal` is the test of one class, for the live front-end.

mod access;
#[cfg_attr(
    not(test),
    expect(
        dead_code,
        reason = "for the live thread, which does not run tests yet"
    )
)]
mod causal;
mod correlate;
mod evidence;
mod files;
mod input;
mod order;
mod report;
mod requests;
mod resource;
pub(crate) mod time;

use std::path::Path;

use tidegate_core::classes::Pattern;

use crate::cli::Failure;
use crate::cli::culprits::CulpritsArgs;
use crate::output::Output;
use access::Format;
use evidence::{Evidence, Resource};
use files::FileReport;
use report::Report;
use requests::Requests;
use resource::Recording;

/// Does what the arguments ask for.
pub(crate) fn run(args: &CulpritsArgs, output: Output) -> Result<(), Failure> {
    let format = args.log_format.as_deref().map(Format::parse).transpose();
    let format = format.map_err(|why| Failure::Usage(format!("--log-format: {why}")))?;
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
        let read = requests.read(path, format.as_ref(), &mut report);
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
    recording.finish();
    understood(&logs)?;
    understood(&recordings)?;
    let (not_sent, left_out) = (requests.not_sent, recording.left_out);
    let logs_zoned = requests.zoned;
    let mut evidence = gather(requests, recording);
    if !args.no_align {
        evidence.align(args.utc_offset.is_some(), logs_zoned);
    }
    let view = |resource: &Resource| correlate::view(&evidence, resource);
    let report = Report {
        logs: &logs,
        recordings: &recordings,
        not_sent,
        left_out,
        views: &evidence.resources.iter().map(view).collect::<Vec<_>>(),
        evidence: &evidence,
        top: args.top,
    };
    Ok(output.result(&report.text(), &report.value())?)
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
        0 => format!("  {}: the file is empty\n", file.file),
        _ => file.text(),
    };
    let texts: String = files.iter().map(told).collect();
    Err(Failure::Failed(format!(
        "nothing was understood of\n{}",
        texts.trim_end()
    )))
}

/// What `--class` takes: `/search/*`, or `name=/search/*`.
pub(crate) fn class_pattern(text: &str) -> Result<Pattern, String> {
    let (name, pattern) = match text.split_once('=') {
        Some((name, pattern)) if !name.contains('/') => (Some(name), pattern),
        Some(_) | None => (None, text),
    };
    Pattern::new(pattern, name).map_err(|error| error.to_string())
}
