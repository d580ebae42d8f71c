//! Where reports are written and read: a folder of `NAME.json`, `NAME.md` and `NAME.svg`, of
//! `NAME.raw` with every run as JSON, and `index.html` over all of them.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::html::page;
use super::markdown::markdown;
use super::raw::{BYTES_MAX, bound};
use super::report::Report;
use super::svg;

/// A file that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system says no.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no report.
    #[error("{path}: expected the report of an experiment: {source}")]
    Json {
        /// Which one.
        path: PathBuf,
        /// Where it goes wrong.
        source: serde_json::Error,
    },
    /// The experiment's name would be no file name.
    #[error("{0:?} is not the name of an experiment: expected letters, digits, - and _")]
    Name(String),
}

/// Writes a report's files into a folder, which is made if it is not there; tells which.
///
/// # Errors
/// If a file cannot be written.
pub fn write(report: &Report, folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let name = &report.experiment;
    let fine = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
    if name.is_empty() || !name.chars().all(fine) {
        return Err(FileError::Name(name.clone()));
    }
    let mut report = report.clone();
    let (raw, said) = bound(&report.raw, BYTES_MAX);
    report.notes.extend(said);
    let json = json(&report)?;
    // A number read from JSON may be another one in its last bit, and round to another digit.
    let shown: Report = serde_json::from_str(&json).map_err(no_report(name.into()))?;
    let mut written = Vec::new();
    for (ending, text) in [
        ("md", markdown(&shown)),
        ("svg", svg::figure(&shown.plots)),
        ("json", json),
        ("raw", format!("{raw}\n")),
    ] {
        let path = folder.join(format!("{name}.{ending}"));
        put(&path, &text)?;
        written.push(path);
    }
    Ok(written)
}

/// Reads a report back, without its raw data.
///
/// # Errors
/// If it cannot be read or is none.
pub fn read(path: &Path) -> Result<Report, FileError> {
    let text = std::fs::read(path).map_err(file(path))?;
    serde_json::from_slice(&text).map_err(no_report(path.to_owned()))
}

/// Writes `index.html` over all reports of a folder, by name; tells where it is.
///
/// # Errors
/// If a report cannot be read or the page not be written.
pub fn write_index(folder: &Path) -> Result<PathBuf, FileError> {
    let entries = std::fs::read_dir(folder).map_err(file(folder))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(file(folder))?.path();
        if path.extension().is_some_and(|it| it == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    let reports = paths
        .iter()
        .map(|path| read(path))
        .collect::<Result<Vec<_>, _>>()?;
    let index = folder.join("index.html");
    put(&index, &page(&reports))?;
    Ok(index)
}

/// One line per field: readable, and of few lines.
fn json(report: &Report) -> Result<String, FileError> {
    let failed = no_report(format!("{}.json", report.experiment).into());
    let Value::Object(fields) = serde_json::to_value(report).map_err(failed)? else {
        return Ok(String::new()); // a structure is an object
    };
    let lines = fields
        .iter()
        .map(|(name, value)| format!("{name:?}: {value}"));
    Ok(format!(
        "{{\n{}\n}}\n",
        lines.collect::<Vec<_>>().join(",\n")
    ))
}

/// Whole or not at all: a reader never sees half a file.
fn put(path: &Path, text: &str) -> Result<(), FileError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(file(folder))?;
    }
    let mut half = path.as_os_str().to_owned();
    half.push(format!(".{}", std::process::id()));
    let half = PathBuf::from(half);
    std::fs::write(&half, text).map_err(file(&half))?;
    std::fs::rename(&half, path).map_err(file(path))
}

fn no_report(path: PathBuf) -> impl FnOnce(serde_json::Error) -> FileError {
    |source| FileError::Json { path, source }
}

fn file(path: &Path) -> impl Fn(io::Error) -> FileError {
    move |source| FileError::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Range;
    use crate::results::sample::report;

    #[test]
    fn what_is_written_can_be_read_and_makes_a_page() {
        let folder =
            std::env::temp_dir().join(format!("tglab-test-{}-results", std::process::id()));
        let written = write(&report(), &folder).unwrap();
        assert_eq!(written.len(), 4);
        let expected = Report {
            raw: Value::Null,
            ..report()
        };
        let json = folder.join("sample.json");
        assert_eq!(read(&json).unwrap(), expected);
        let raw = std::fs::read(&written[3]).unwrap();
        let raw: Value = serde_json::from_slice(&raw).unwrap();
        assert_eq!(raw, report().raw, "every run has a file of its own");
        let page = std::fs::read_to_string(write_index(&folder).unwrap()).unwrap();
        assert!(page.contains("id=\"sample\"") && page.contains("<svg"));
        let left = std::fs::read_dir(&folder).unwrap().count();
        assert_eq!(left, 5, "no half-written file is left");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_shown_is_what_the_json_says_to_the_last_digit() {
        let folder = std::env::temp_dir().join(format!("tglab-test-{}-digits", std::process::id()));
        let mut report = report();
        // Medians that end in 5: rounded up or down by their last bit.
        let median = |number: u32| f64::from(number * 2 + 1) * 0.005 + f64::from(number) * 1e-4;
        let metric = |number| (format!("m{number}"), Range::of(vec![median(number)]));
        report.arms[0].metrics.extend((0..5000).map(metric));
        write(&report, &folder).unwrap();
        let again = read(&folder.join("sample.json")).unwrap();
        let written = std::fs::read_to_string(folder.join("sample.md")).unwrap();
        assert!(
            written == markdown(&again),
            "the page is not what its JSON gives"
        );
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_name_stays_in_its_folder() {
        let mut report = report();
        report.experiment = "../sample".to_owned();
        let refused = write(&report, Path::new("/nonexistent")).unwrap_err();
        assert!(matches!(refused, FileError::Name(_)));
    }
}
