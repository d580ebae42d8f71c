//! A site's hook: a file made from a template, then commands. One that fails is undone.
//!
//! ```text
//! check      programs, template and the target's folder are root's or ours, and others cannot write to them
//! set up     target := template with {site} {from} {node} {generation};  each command in turn, all within `timeout`
//! failed     target := what it was;  the commands once more, within `timeout` again, TIDEGATE_SITE and TIDEGATE_FROM exchanged
//!            -> undone, if all end with 0
//! ```
//!
//! Inputs: the agent's file, names of sites. A `{word}` behind `$` or `%` is not ours: servers' own variables look like that.
//! Failure case: commands that do something else than have servers read the target are not undone by running them once more.
//! Source: none; nginx and Apache are set up like this by hand.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use tidegate_core::moves::agent::HookEnd;
use tidegate_remote::clock;

use super::command::{CommandEnd, Limits, run};
use super::left::LeftCommand;
use super::{kept, trust};
use crate::config::{HookTemplate, SiteHook};

/// Longest template, and longest target that is put back.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Mode of a target that was not there before.
const TARGET_MODE: u32 = 0o644;
/// What templates may have in braces.
const PLACEHOLDERS: [&str; 4] = ["site", "from", "node", "generation"];

/// Which part of a hook is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookPart {
    /// The template.
    Template,
    /// The target.
    Target,
    /// This command.
    Command(usize),
}

/// What is wrong with a hook.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct HookError {
    /// With which part of it.
    pub part: HookPart,
    /// Why, in words.
    pub why: String,
}

/// For which move a hook runs.
#[derive(Clone, Debug)]
pub(super) struct HookRun {
    pub(super) from: Option<String>,
    pub(super) node: String,
    pub(super) generation: u32,
}

/// A hook that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HookDone {
    pub(super) end: HookEnd,
    /// What happened, a line each.
    pub(super) said: Vec<String>,
}

impl SiteHook {
    /// All that is wrong with it on this machine, now.
    pub fn check(&self) -> Vec<HookError> {
        let mut found = Vec::new();
        let mut note = |part, checked: Result<(), String>| {
            found.extend(checked.err().map(|why| HookError { part, why }));
        };
        if let Some(HookTemplate { template, target }) = &self.template {
            note(
                HookPart::Template,
                text_of(template).and_then(|it| unknown_placeholder(template, &it)),
            );
            note(HookPart::Target, check_target(target));
        }
        for (place, command) in self.commands.iter().enumerate() {
            let none = || "a command without a program".to_owned();
            let program = command.first().filter(|it| !it.is_empty()).ok_or_else(none);
            let checked = program.and_then(|it| trust::program(Path::new(it)));
            note(HookPart::Command(place), checked);
        }
        found
    }

    /// Sets the node's servers up for the site.
    pub(super) fn run(
        &self,
        of: &HookRun,
        stop: &AtomicBool,
        left: Option<&LeftCommand>,
    ) -> HookDone {
        let mut said = Vec::new();
        let failed = |end: Option<u8>, is_undone, said| HookDone {
            end: HookEnd {
                exit_code: end,
                is_undone,
            },
            said,
        };
        // Files may be others' by now.
        let wrong = self.check();
        if !wrong.is_empty() {
            said.extend(wrong.iter().map(HookError::to_string));
            return failed(None, true, said);
        }
        let undo = match self.write_target(of) {
            Ok(undo) => undo,
            Err(why) => {
                said.push(why);
                return failed(None, true, said);
            }
        };
        let (from, to) = (of.from.clone().unwrap_or_default(), self.name.clone());
        let Err(end) = self.run_commands(of, [&from, &to], (stop, left), &mut said) else {
            return failed(Some(0), true, said);
        };
        let undone = undo.map_or(Ok(()), Undo::put_back);
        if let Err(why) = &undone {
            said.push(why.clone());
        }
        let again = match end {
            CommandEnd::Stopped => Err(CommandEnd::Stopped),
            CommandEnd::Exit(_)
            | CommandEnd::Signal(_)
            | CommandEnd::TimedOut
            | CommandEnd::NotStarted(_) => {
                self.run_commands(of, [&to, &from], (stop, left), &mut said)
            }
        };
        let is_undone = undone.is_ok() && again.is_ok();
        said.push(match is_undone {
            true => "it is undone".into(),
            false => {
                "it could not be undone: the node's servers may be set up for neither site".into()
            }
        });
        failed(end.exit_code(), is_undone, said)
    }

    /// From a site to another. The first command that does not end well ends it.
    fn run_commands(
        &self,
        of: &HookRun,
        [from, to]: [&str; 2],
        (stop, left): (&AtomicBool, Option<&LeftCommand>),
        said: &mut Vec<String>,
    ) -> Result<(), CommandEnd> {
        let environment = [
            ("TIDEGATE_SITE", to.to_owned()),
            ("TIDEGATE_FROM", from.to_owned()),
            ("TIDEGATE_NODE", of.node.clone()),
            ("TIDEGATE_GENERATION", of.generation.to_string()),
        ];
        let limits = Limits {
            deadline: clock::now() + self.timeout,
            stop,
            left,
        };
        for command in &self.commands {
            let ended = run(command, &environment, limits);
            if ended.end.is_well() {
                continue;
            }
            let mut line = format!("{} {}", command.join(" "), ended.end.text());
            if !ended.output.is_empty() {
                // Writing to a String cannot fail.
                write!(line, ": {}", printable(&ended.output)).unwrap_or_default();
            }
            said.push(line);
            return Err(ended.end);
        }
        Ok(())
    }

    fn write_target(&self, of: &HookRun) -> Result<Option<Undo>, String> {
        let Some(HookTemplate { template, target }) = &self.template else {
            return Ok(None);
        };
        let text = text_of(template)?;
        let filled = fill(&text, |name| match name {
            "site" => Some(self.name.clone()),
            "from" => Some(of.from.clone().unwrap_or_default()),
            "node" => Some(of.node.clone()),
            "generation" => Some(of.generation.to_string()),
            _ => None,
        });
        let undo = Undo::of(target)?;
        let mode = undo.before.as_ref().map_or(TARGET_MODE, |it| it.1);
        write_file(target, filled.as_bytes(), mode)?;
        Ok(Some(undo))
    }
}

/// What a target was.
struct Undo {
    target: PathBuf,
    /// Its bytes and mode; none: it was not there.
    before: Option<(Vec<u8>, u32)>,
}

impl Undo {
    fn of(target: &Path) -> Result<Self, String> {
        use std::os::unix::fs::MetadataExt as _;
        let before = match std::fs::symlink_metadata(target) {
            Ok(about) => Some((read(target)?, about.mode() & 0o777)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(said(target, &error)),
        };
        let target = target.to_owned();
        Ok(Self { target, before })
    }

    fn put_back(self) -> Result<(), String> {
        match self.before {
            Some((bytes, mode)) => write_file(&self.target, &bytes, mode),
            None => std::fs::remove_file(&self.target).map_err(|error| said(&self.target, &error)),
        }
    }
}

fn write_file(target: &Path, bytes: &[u8], mode: u32) -> Result<(), String> {
    kept::replace(target, bytes, mode).map_err(|error| said(target, &error))
}

fn check_target(target: &Path) -> Result<(), String> {
    let folder = target.parent().filter(|_| target.is_absolute());
    let folder = folder.ok_or_else(|| format!("{} is not an absolute path", target.display()))?;
    trust::folder(folder)?;
    match std::fs::symlink_metadata(target) {
        Ok(about) if about.is_file() => Ok(()),
        Ok(_) => Err(format!("{} is no file, or a link to one", target.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(said(target, &error)),
    }
}

fn text_of(template: &Path) -> Result<String, String> {
    trust::file(template)?;
    let bytes = read(template)?;
    String::from_utf8(bytes).map_err(|_| format!("{} is not text", template.display()))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| said(path, &error))?;
    match bytes.len() as u64 > TEXT_BYTES_MAX {
        true => Err(format!(
            "{} is larger than {TEXT_BYTES_MAX} bytes",
            path.display()
        )),
        false => Ok(bytes),
    }
}

fn said(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// An error for the first placeholder that does not exist, with its line.
fn unknown_placeholder(template: &Path, text: &str) -> Result<(), String> {
    for (number, line) in text.lines().enumerate() {
        let mut unknown = None;
        fill(line, |name| {
            if !PLACEHOLDERS.contains(&name) {
                unknown.get_or_insert(name.to_owned());
            }
            None
        });
        if let Some(name) = unknown {
            let known = PLACEHOLDERS.map(|it| format!("{{{it}}}")).join(", ");
            return Err(format!(
                "{}, line {}: unknown placeholder {{{name}}}; expected one of {known}",
                template.display(),
                number + 1
            ));
        }
    }
    Ok(())
}

/// The text with each `{word}` replaced by its value; without a value it stays.
fn fill(text: &str, mut value: impl FnMut(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, at) = rest.split_at(open);
        filled.push_str(before);
        let name = word_in_braces(at).filter(|_| !before.ends_with(['$', '%']));
        let value = name.and_then(|name| Some((name.len() + 2, value(name)?)));
        match value {
            Some((length, value)) => {
                filled.push_str(&value);
                rest = &at[length..];
            }
            None => {
                filled.push('{');
                rest = &at[1..];
            }
        }
    }
    filled.push_str(rest);
    filled
}

/// The word of `{word}` at the beginning of a text.
fn word_in_braces(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix('{')?.split_once('}')?;
    let is_word = !name.is_empty() && name.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
    is_word.then_some(name)
}

/// Output of a command in one line of a log.
fn printable(output: &str) -> String {
    let lines = output
        .lines()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" | ");
    lines
        .chars()
        .map(|it| if it.is_control() { '?' } else { it })
        .collect()
}

#[cfg(test)]
#[path = "hook_tests.rs"]
mod tests;
