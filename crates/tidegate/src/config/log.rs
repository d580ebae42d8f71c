//! The access log: its form, its place, and the fields of its lines.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tidegate_proxy::{LogConfig, LogField, LogFieldError, LogFields, LogTarget};
use toml::de::DeValue;

use super::problem::{Problem, Problems};
use super::setting::{At, Encoded, Raw, Setting, names, quoted, table, unknown_name, wrong_type};
use super::validate::Checker;
use crate::journal;

/// Most fields of a line.
const FIELDS_MAX: usize = 100;
/// Longest name of a field, bytes.
const NAME_MAX: usize = 128;

table! {
    /// The access log.
    pub(crate) struct LogFile {
        /// How a line looks.
        access: LogFormat = LogFormat::Off;
        /// The fields of `json`, in their order: those of [access-log.md](access-log.md#fields), `request.header.NAME` and
        /// `response.header.NAME`; `{ took = "duration_us" }` writes one by a name of yours. At most 100. Not set: all but headers.
        fields: Option<Vec<FieldsFile>> = None;
        /// The file to append to; not set is standard output. Relative to this file.
        file: Option<PathBuf> = None;
        /// Lines go to systemd's journal, in place of standard output; each field of `json` is one of the entry: `TIDEGATE_SITE`.
        journal: bool = false;
        /// The last requests that each worker remembers for `tidegate why`.
        recent: u32 = 256, in 0..=65_536;
        /// Give each answer its request's `id` in the header `x-tidegate-request`: `tidegate why ID` finds what became of it,
        /// while it is among the last ones.
        id_header: bool = false;
    }
}

names! {
    /// Formats of the access log.
    pub(crate) enum LogFormat as "log format" {
        /// No access log.
        Off = "off",
        /// One JSON object a line.
        Json = "json",
        /// The combined log format of Apache and nginx, with Tidegate's fields behind it.
        Combined = "combined",
    }
}

/// A field by its own name, or fields by names of the operator's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FieldsFile {
    /// `"status"`.
    Own(At<String>),
    /// `{ http_status = "status" }`: names, and what is written by them.
    Named(Vec<(At<String>, At<String>)>),
}

impl Setting for FieldsFile {
    fn kind() -> String {
        "a field, or a table of names and fields".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        match raw.get_ref() {
            DeValue::String(_) => At::decode(raw, problems).map(Self::Own),
            DeValue::Table(table) => {
                let named = table.iter().map(|(name, field)| {
                    let name = At {
                        value: name.get_ref().to_string(),
                        at: Some(name.span()),
                    };
                    Some((name, At::<String>::decode(field, problems)?))
                });
                let mut named = named.collect::<Option<Vec<_>>>()?;
                // As they are written: the table has them by their names.
                named.sort_by_key(|(name, _)| name.place().start);
                Some(Self::Named(named))
            }
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => wrong_type(raw, &Self::kind(), problems),
        }
    }

    fn encode(&self) -> Encoded {
        match self {
            Self::Own(field) => quoted(field),
            Self::Named(named) => {
                let text = |text: &str| toml::Value::from(text).to_string();
                let named: Vec<_> = named
                    .iter()
                    .map(|(name, field)| format!("{} = {}", text(name), text(field)))
                    .collect();
                Encoded::Inline(format!("{{ {} }}", named.join(", ")))
            }
        }
    }
}

impl FieldsFile {
    /// Names and fields.
    fn pairs(&self) -> Vec<(&At<String>, &At<String>)> {
        match self {
            Self::Own(field) => vec![(field, field)],
            Self::Named(named) => named.iter().map(|(name, field)| (name, field)).collect(),
        }
    }
}

impl Checker<'_> {
    /// The access log that is wanted.
    pub(super) fn log(&mut self, file: &LogFile) -> Option<LogConfig> {
        Some(LogConfig {
            format: match file.access.value {
                LogFormat::Off => tidegate_proxy::LogFormat::Off,
                LogFormat::Json => tidegate_proxy::LogFormat::Json,
                LogFormat::Combined => tidegate_proxy::LogFormat::Combined,
            },
            fields: self.log_fields(file)?,
            target: self.log_target(file)?,
            recent: file.recent.value as usize,
            id_header: file.id_header.value,
        })
    }

    fn log_target(&mut self, file: &LogFile) -> Option<LogTarget> {
        match (&file.file.value, file.journal.value) {
            (None, false) => Some(LogTarget::Stdout),
            (None, true) => Some(LogTarget::Journal(journal::socket())),
            (Some(path), false) => Some(LogTarget::File(self.path(path))),
            (Some(_), true) => {
                let problem = Problem::new(
                    file.journal.place(),
                    "lines go to a file or to the journal",
                    "to the journal",
                );
                let problem = problem.context(file.file.place(), "to a file");
                self.problems.push(problem);
                None
            }
        }
    }

    fn log_fields(&mut self, file: &LogFile) -> Option<LogFields> {
        let Some(chosen) = &file.fields.value else {
            return Some(LogFields::default());
        };
        let place = file.fields.place();
        match file.access.value {
            LogFormat::Json => {}
            LogFormat::Off => self.notes.push(
                "[log] `fields` are chosen, and nothing is logged: `access` is \"off\"".into(),
            ),
            LogFormat::Combined => self.problem(
                place.clone(),
                "the fields of a combined line are given",
                "only with `access = \"json\"`",
            ),
        }
        let pairs: Vec<_> = chosen.iter().flat_map(FieldsFile::pairs).collect();
        if pairs.is_empty() || pairs.len() > FIELDS_MAX {
            let message = format!("a line has from 1 to {FIELDS_MAX} fields");
            self.problem(place, message, format!("{} of them", pairs.len()));
            return None;
        }
        let mut seen = BTreeMap::new();
        let fields = pairs.into_iter().map(|(name, field)| {
            if let Some(before) = seen.insert(name.value.as_str(), name) {
                self.problems.push(
                    Problem::new(
                        name.place(),
                        format!("two fields are named `{}`", name.value),
                        "here again",
                    )
                    .context(before.place(), "here first"),
                );
            }
            self.log_field(name, field)
        });
        // All of them are looked at.
        let fields: Vec<_> = fields.collect();
        Some(LogFields::new(fields.into_iter().collect::<Option<_>>()?))
    }

    fn log_field(&mut self, name: &At<String>, field: &At<String>) -> Option<LogField> {
        if name.is_empty() || name.len() > NAME_MAX {
            let message = format!("the name of a field has from 1 to {NAME_MAX} bytes");
            self.problem(name.place(), message, "this one has not");
            return None;
        }
        match LogField::new(name, field) {
            Ok(made) => {
                if made.is_secret() {
                    self.notes.push(format!(
                        "[log] `{}` writes what lets its bearer in: whoever reads the log has it",
                        field.value
                    ));
                }
                Some(made)
            }
            Err(LogFieldError::BadHeader) => {
                let message = format!("`{}` names no header", field.value);
                let label = "like \"request.header.user-agent\"";
                self.problem(field.place(), message, label);
                None
            }
            Err(LogFieldError::Unknown) => {
                let headers = ["request.header.NAME", "response.header.NAME"];
                let known = LogField::all().map(|(name, _)| name).chain(headers);
                let problem = unknown_name(field.place(), "field of the log", field, known);
                self.problems.push(problem);
                None
            }
        }
    }
}
