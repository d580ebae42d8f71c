//! Finding scenarios: files, and those that are part of the binary.

use std::path::Path;

use serde_json::json;
use tidegate_culprits::table;
use tidegate_sim::file::ScenarioFile;
use tidegate_sim::matrix::built_in;

use crate::config::ConfigError;
use crate::config::problem::{Problem, did_you_mean};
use crate::failure::Failure;
use crate::output::Output;

/// Largest scenario file, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The scenario of this path, or the built-in one of this name.
pub(super) fn load(name: &str) -> Result<ScenarioFile, Failure> {
    let path = Path::new(name);
    if path.is_file() {
        let text = read(path).map_err(|reason| ConfigError::Unreadable {
            file: name.to_owned(),
            reason,
        })?;
        return parse(name, &text);
    }
    if let Some(text) = built_in::text(name) {
        return parse(name, text);
    }
    // Tables show the name that stands in the file.
    let all = all()?;
    if let Some((_, file)) = all.into_iter().find(|(_, file)| file.name == name) {
        return Ok(file);
    }
    let names = built_in::ALL.iter().map(|(name, _)| *name);
    let hint = match did_you_mean(name, names) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "see `tidegate simulate list`".into(),
    };
    Err(Failure::Usage(format!(
        "`{name}` is neither a file nor a built-in scenario; {hint}"
    )))
}

fn read(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if size.len() > FILE_BYTES_MAX {
        return Err(format!("larger than {FILE_BYTES_MAX} bytes"));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

fn parse(name: &str, text: &str) -> Result<ScenarioFile, Failure> {
    ScenarioFile::parse(text).map_err(|error| {
        let mut problem = Problem::new(error.at, error.message, error.label);
        if let Some(help) = error.help {
            problem = problem.help(help);
        }
        ConfigError::in_file(name, text, problem).into()
    })
}

/// Every built-in scenario with its name.
pub(super) fn all() -> Result<Vec<(&'static str, ScenarioFile)>, Failure> {
    let files = built_in::ALL.iter();
    let files = files.map(|(name, text)| Ok((*name, parse(name, text)?)));
    files.collect()
}

/// `tidegate simulate list`.
pub(super) fn list(output: Output) -> Result<(), Failure> {
    let all = all()?;
    let mut rows = vec![vec![
        "name".into(),
        "half".into(),
        "what it is about".into(),
    ]];
    let mut values = Vec::new();
    for (name, file) in &all {
        let half = file.half.label();
        rows.push(vec![(*name).into(), half.into(), file.description.clone()]);
        values.push(json!({
            "name": name,
            "title": file.name,
            "family": file.family,
            "half": half,
            "description": file.description,
            "source": file.source,
            "guessed": file.guessed,
            "requests": file.scenario.requests,
            "nodes": file.scenario.nodes.len(),
            "front_ends": file.scenario.front_ends.count,
        }));
    }
    let text = table::left(&rows);
    Ok(output.result(&text, &values)?)
}
