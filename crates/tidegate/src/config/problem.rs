//! What is wrong with a configuration, and how it is shown: file, line, column and a caret.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;
use strsim::osa_distance;

/// Most problems that are shown; a file with more is likely not a configuration at all.
const PROBLEMS_MAX: usize = 20;
/// Longest name for which a likely meaning is looked for, letters.
const NAME_MAX: usize = 64;

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    message: String,
    at: Range<usize>,
    label: String,
    context: Option<(Range<usize>, String)>,
    help: Option<String>,
}

impl Problem {
    /// A problem at these bytes of the file; `label` stands beside the caret.
    pub(crate) fn new(
        at: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Self {
        Self {
            message: message.into(),
            at,
            label: label.into(),
            context: None,
            help: None,
        }
    }

    /// Another place that matters.
    pub(crate) fn context(mut self, at: Range<usize>, label: impl Into<String>) -> Self {
        self.context = Some((at, label.into()));
        self
    }

    /// What to do about it.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// The problems found so far.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    found: Vec<Problem>,
}

impl Problems {
    /// Notes one.
    pub(crate) fn push(&mut self, problem: Problem) {
        self.found.push(problem);
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All of them with their file, in the order of their places.
    pub(crate) fn into_error(mut self, file: &str, text: &str) -> ConfigError {
        self.found.sort_by_key(|problem| problem.at.start);
        ConfigError::Broken(Box::new(Broken {
            file: file.into(),
            text: text.into(),
            problems: self.found,
        }))
    }
}

/// Why there is no configuration.
#[derive(Debug)]
pub(crate) enum ConfigError {
    /// The file could not be read.
    Unreadable {
        /// Its path as given.
        file: String,
        /// Why.
        reason: String,
    },
    /// The file was read and something in it is wrong.
    Broken(Box<Broken>),
}

/// A file and what is wrong with it.
#[derive(Debug)]
pub(crate) struct Broken {
    file: String,
    text: String,
    problems: Vec<Problem>,
}

/// A problem for programs.
#[derive(Debug, Serialize)]
pub(crate) struct ProblemReport {
    file: String,
    line: usize,
    column: usize,
    message: String,
    label: String,
    help: Option<String>,
}

impl ConfigError {
    /// One thing that is wrong with another kind of file that is shown in the same way.
    pub(crate) fn in_file(file: &str, text: &str, problem: Problem) -> Self {
        let mut problems = Problems::default();
        problems.push(problem);
        problems.into_error(file, text)
    }

    /// The message for people, with colours if wanted.
    pub(crate) fn render(&self, colour: bool) -> String {
        match self {
            Self::Unreadable { file, reason } => format!("error: cannot read {file}: {reason}"),
            Self::Broken(broken) => broken.render(colour),
        }
    }

    /// The problems for programs.
    pub(crate) fn reports(&self) -> Vec<ProblemReport> {
        match self {
            Self::Unreadable { file, reason } => vec![ProblemReport {
                file: file.clone(),
                line: 0,
                column: 0,
                message: format!("cannot read: {reason}"),
                label: String::new(),
                help: None,
            }],
            Self::Broken(broken) => broken.reports(),
        }
    }
}

impl Broken {
    fn render(&self, colour: bool) -> String {
        let renderer = if colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let mut out = String::new();
        for problem in self.problems.iter().take(PROBLEMS_MAX) {
            out.push_str(&self.render_one(problem, &renderer));
            out.push_str("\n\n");
        }
        let count = self.problems.len();
        if count > PROBLEMS_MAX {
            out.push_str(&format!("… and {} more; ", count - PROBLEMS_MAX));
        }
        let plural = if count == 1 { "problem" } else { "problems" };
        out.push_str(&format!("{}: {count} {plural}", self.file));
        out
    }

    fn render_one(&self, problem: &Problem, renderer: &Renderer) -> String {
        let mut snippet = Snippet::source(self.text.as_str())
            .path(self.file.as_str())
            .annotation(
                AnnotationKind::Primary
                    .span(self.clamp(&problem.at))
                    .label(problem.label.as_str()),
            );
        if let Some((at, label)) = &problem.context {
            snippet = snippet.annotation(
                AnnotationKind::Context
                    .span(self.clamp(at))
                    .label(label.as_str()),
            );
        }
        let mut group = Level::ERROR
            .primary_title(problem.message.as_str())
            .element(snippet);
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        renderer.render(&[group])
    }

    fn reports(&self) -> Vec<ProblemReport> {
        let report = |problem: &Problem| {
            let (line, column) = self.place(problem.at.start);
            ProblemReport {
                file: self.file.clone(),
                line,
                column,
                message: problem.message.clone(),
                label: problem.label.clone(),
                help: problem.help.clone(),
            }
        };
        self.problems.iter().map(report).collect()
    }

    /// Line and column, from one, in characters.
    fn place(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (line, before[start..].chars().count() + 1)
    }

    /// A span that the renderer can draw, whatever the parser said.
    fn clamp(&self, at: &Range<usize>) -> Range<usize> {
        let start = self.text.floor_char_boundary(at.start);
        let end = self.text.ceil_char_boundary(at.end.max(start));
        start..end
    }
}

/// The known name that `name` was likely meant to be: at most a third of its letters differ.
pub(crate) fn did_you_mean<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if name.len() > NAME_MAX {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    known
        .into_iter()
        .map(|known| (osa_distance(&lower, &known.to_ascii_lowercase()), known))
        .filter(|(distance, known)| *distance * 3 <= known.chars().count().max(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["auto", "address", "policy"];
        assert_eq!(did_you_mean("auot", known), Some("auto"));
        assert_eq!(did_you_mean("adress", known), Some("address"));
        assert_eq!(did_you_mean("Policy", known), Some("policy"));
        assert_eq!(did_you_mean("colour", known), None);
    }

    #[test]
    fn places_are_lines_and_columns_in_characters() {
        let broken = Broken {
            file: "f".into(),
            text: "a\nbä = 1\n".into(),
            problems: Vec::new(),
        };
        assert_eq!(broken.place(0), (1, 1));
        assert_eq!(broken.place(6), (2, 4));
        assert_eq!(broken.clamp(&(4..4)), 3..5);
    }
}
