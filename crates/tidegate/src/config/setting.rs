//! How values of the file become values of the program, and back; and `table!`, by which a
//! table's keys, types, defaults, ranges and documentation are written down once.
//!
//! Decoding never stops at the first problem: each setting notes its own and the rest goes on.

use std::ops::{Deref, Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, Problems, did_you_mean};

/// A value as the file has it, and where.
pub(crate) type Raw<'a> = Spanned<DeValue<'a>>;

/// A value and where it stands; a default stands nowhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct At<T> {
    /// The value.
    pub(crate) value: T,
    /// Its bytes in the file.
    pub(crate) at: Option<Range<usize>>,
}

impl<T> At<T> {
    /// A value that is not in the file.
    pub(crate) fn default_of(value: T) -> Self {
        Self { value, at: None }
    }

    /// Its place, or the file's start for a default: problems are always somewhere.
    pub(crate) fn place(&self) -> Range<usize> {
        self.at.clone().unwrap_or(0..0)
    }
}

impl<T> Deref for At<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// A setting as text of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Encoded {
    /// Not set.
    Unset,
    /// A value in one line.
    Inline(String),
    /// A table: keys in the order of their definition.
    Table(Vec<(&'static str, Self)>),
    /// A list of tables.
    Tables(Vec<Self>),
}

/// One key's row in the documentation.
#[cfg(test)]
#[derive(Clone, Debug)]
pub(crate) struct KeyDocs {
    /// The key.
    pub(crate) name: &'static str,
    /// Its type, in words.
    pub(crate) kind: String,
    /// Its default; nothing if it is required.
    pub(crate) default: Option<Encoded>,
    /// The least and the greatest value.
    pub(crate) range: Option<(Encoded, Encoded)>,
    /// What it is for.
    pub(crate) about: &'static str,
}

/// A table's documentation.
#[cfg(test)]
#[derive(Clone, Debug)]
pub(crate) struct TableDocs {
    /// What the table is for.
    pub(crate) about: &'static str,
    /// Its keys.
    pub(crate) keys: Vec<KeyDocs>,
    /// Keys of later versions: the key and what is not there yet.
    pub(crate) later: &'static [(&'static str, &'static str)],
}

/// A type that a value of the file can have.
pub(crate) trait Setting: Sized {
    /// The type in words, as in "expected …".
    fn kind() -> String;

    /// The value, or nothing and a problem.
    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self>;

    /// The text that decodes to this value.
    fn encode(&self) -> Encoded;
}

/// A table of the file.
#[cfg(test)]
pub(crate) trait Table: Setting {
    /// Its documentation.
    fn docs() -> TableDocs;
}

/// Notes that a value is of another type than wanted.
pub(crate) fn wrong_type<T>(raw: &Raw<'_>, expected: &str, problems: &mut Problems) -> Option<T> {
    let found = match raw.get_ref() {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    problems.push(Problem::new(
        raw.span(),
        format!("expected {expected}, found {found}"),
        format!("this is {found}"),
    ));
    None
}

/// Notes that a text is none of the names.
pub(crate) fn unknown_name<'a>(
    at: Range<usize>,
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Problem {
    let mut names: Vec<_> = known.clone().collect();
    names.dedup();
    let label = match did_you_mean(name, known) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None => format!("no such {what}"),
    };
    Problem::new(at, format!("unknown {what} `{name}`"), label)
        .help(format!("one of: {}", names.join(", ")))
}

/// A name that a later version will know.
pub(crate) fn later_name<'a>(
    at: Range<usize>,
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> Problem {
    let names: Vec<_> = known.collect();
    Problem::new(
        at,
        format!("{what} `{name}` is not available in this version"),
        "not yet",
    )
    .help(format!("available: {}", names.join(", ")))
}

/// A text in quotes, as the file has it.
pub(crate) fn quoted(text: &str) -> Encoded {
    Encoded::Inline(toml::Value::from(text).to_string())
}

impl<T: Setting> Setting for At<T> {
    fn kind() -> String {
        T::kind()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        Some(Self {
            value: T::decode(raw, problems)?,
            at: Some(raw.span()),
        })
    }

    fn encode(&self) -> Encoded {
        self.value.encode()
    }
}

/// The setting in one line, where it is set.
pub(crate) fn inline(encoded: &Encoded) -> Option<String> {
    match encoded {
        Encoded::Unset => None,
        Encoded::Inline(text) => Some(text.clone()),
        Encoded::Table(keys) => {
            let keys: Vec<_> = keys
                .iter()
                .filter_map(|(name, value)| Some(format!("{name} = {}", inline(value)?)))
                .collect();
            Some(format!("{{ {} }}", keys.join(", ")))
        }
        Encoded::Tables(items) => {
            let items: Vec<_> = items.iter().filter_map(inline).collect();
            Some(format!("[{}]", items.join(", ")))
        }
    }
}

/// What lists are called before what is in them is named.
pub(crate) const LIST_OF: &str = "a list, each item ";
/// What tables are called where a type is named.
pub(crate) const TABLE: &str = "a table";

/// `[listener]` where there may be several of them, or `[[admin]]` where there is one.
fn wrong_brackets<T: Setting>(name: &str, raw: &Raw<'_>) -> Option<Problem> {
    let wanted = T::kind();
    let is_table = |raw: &Raw<'_>| matches!(raw.get_ref(), DeValue::Table(_));
    if is_table(raw) && wanted.strip_prefix(LIST_OF) == Some(TABLE) {
        let message =
            format!("there may be several of `{name}`: write [[{name}]], with two brackets");
        let problem = Problem::new(raw.span(), message, "a single table");
        return Some(problem.help(format!("each [[{name}]] begins one more of them")));
    }
    let items = raw.get_ref().as_array()?;
    let tables = wanted == TABLE && items.iter().all(is_table);
    let message = format!("there is one `{name}` only: write [{name}], with one bracket");
    tables.then(|| Problem::new(raw.span(), message, "a list of tables"))
}

/// Takes keys out of a table and notes what is missing, wrong or left.
#[derive(Debug)]
pub(crate) struct TableReader<'r, 'p> {
    table: &'r DeTable<'r>,
    at: Range<usize>,
    problems: &'p mut Problems,
}

impl<'r, 'p> TableReader<'r, 'p> {
    /// A reader of this value, if it is a table.
    pub(crate) fn new(raw: &'r Raw<'r>, problems: &'p mut Problems) -> Option<Self> {
        let DeValue::Table(table) = raw.get_ref() else {
            return wrong_type(raw, "a table", problems);
        };
        Some(Self {
            table,
            at: raw.span(),
            problems,
        })
    }

    /// The value of a key, or its default; nothing if that is a problem.
    pub(crate) fn take<T: Setting + PartialOrd>(
        &mut self,
        name: &str,
        default: Option<T>,
        range: Option<RangeInclusive<T>>,
    ) -> Option<At<T>> {
        let value: At<T> = self.take_any(name, default)?;
        // A NaN is in no range.
        match range {
            Some(range) if value.at.is_some() && !range.contains(&value.value) => {
                let text = |value: &T| inline(&value.encode()).unwrap_or_default();
                let (least, most) = (text(range.start()), text(range.end()));
                self.problems.push(Problem::new(
                    value.place(),
                    format!("`{name}` must be from {least} to {most}"),
                    "out of range",
                ));
                None
            }
            _ => Some(value),
        }
    }

    /// The same for types that have no order.
    pub(crate) fn take_any<T: Setting>(&mut self, name: &str, default: Option<T>) -> Option<At<T>> {
        if let Some(raw) = self.table.get(name)
            && let Some(problem) = wrong_brackets::<T>(name, raw)
        {
            self.problems.push(problem);
            return None;
        }
        match (self.table.get(name), default) {
            (Some(raw), _) => At::decode(raw, self.problems),
            (None, Some(default)) => Some(At::default_of(default)),
            (None, None) => {
                self.problems.push(Problem::new(
                    self.at.clone(),
                    format!("`{name}` is missing"),
                    format!("this needs `{name}`"),
                ));
                None
            }
        }
    }

    /// Notes keys that were not taken.
    pub(crate) fn finish(self, known: &[&str], later: &[(&str, &str)]) {
        for (key, _) in self.table {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            if let Some((_, what)) = later.iter().find(|(later, _)| *later == name) {
                self.problems.push(
                    Problem::new(
                        key.span(),
                        format!("`{name}` is not available in this version"),
                        format!("{what}: not yet"),
                    )
                    .help("leave it out"),
                );
                continue;
            }
            let label = match did_you_mean(name, known.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "no such key here".into(),
            };
            self.problems.push(
                Problem::new(key.span(), format!("unknown key `{name}`"), label)
                    .help(format!("keys here: {}", known.join(", "))),
            );
        }
    }
}

/// Defines a table of the file: its struct, decoder, encoder and documentation.
///
/// ```text
/// table! {
///     /// What the table is for.
///     pub(crate) struct Name {
///         /// What the key is for.
///         key: Type = default, in least..=greatest;   // default and range may be left out
///     }
///     later { key: "what is not there yet" }
/// }
/// ```
macro_rules! table {
    (
        $(#[doc = $about:literal])*
        pub(crate) struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $key:ident: $type:ty $(= $default:expr)? $(, in $range:expr)?;
            )*
        }
        $(later { $($later:ident: $what:literal),* $(,)? })?
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name {
            $( $(#[doc = $doc])* pub(crate) $key: $crate::config::setting::At<$type>, )*
        }

        impl $crate::config::setting::Setting for $name {
            fn kind() -> String {
                $crate::config::setting::TABLE.into()
            }

            fn decode(
                raw: &$crate::config::setting::Raw<'_>,
                problems: &mut $crate::config::problem::Problems,
            ) -> Option<Self> {
                let mut reader = $crate::config::setting::TableReader::new(raw, problems)?;
                $( let $key = table!(@take reader, $key, $type, [$($default)?], [$($range)?]); )*
                reader.finish(&[$(stringify!($key)),*], &[$($((stringify!($later), $what)),*)?]);
                Some(Self { $( $key: $key?, )* })
            }

            fn encode(&self) -> $crate::config::setting::Encoded {
                $crate::config::setting::Encoded::Table(vec![
                    $( (stringify!($key), $crate::config::setting::Setting::encode(&self.$key)), )*
                ])
            }
        }

        #[cfg(test)]
        impl $crate::config::setting::Table for $name {
            fn docs() -> $crate::config::setting::TableDocs {
                $crate::config::setting::TableDocs {
                    about: concat!($($about, "\n"),*),
                    keys: vec![ $( $crate::config::setting::KeyDocs {
                        name: stringify!($key),
                        kind: <$type as $crate::config::setting::Setting>::kind(),
                        default: table!(@default $type, [$($default)?]),
                        range: table!(@range $type, [$($range)?]),
                        about: concat!($($doc, "\n"),*),
                    }, )* ],
                    later: &[$($((stringify!($later), $what)),*)?],
                }
            }
        }
    };
    (@take $reader:ident, $key:ident, $type:ty, [$default:expr], [$range:expr]) => {
        $reader.take::<$type>(stringify!($key), Some($default), Some($range))
    };
    (@take $reader:ident, $key:ident, $type:ty, [], [$range:expr]) => {
        $reader.take::<$type>(stringify!($key), None, Some($range))
    };
    (@take $reader:ident, $key:ident, $type:ty, [$default:expr], []) => {
        $reader.take_any::<$type>(stringify!($key), Some($default))
    };
    (@take $reader:ident, $key:ident, $type:ty, [], []) => {
        $reader.take_any::<$type>(stringify!($key), None)
    };
    (@default $type:ty, [$default:expr]) => {{
        let default: $type = $default;
        Some($crate::config::setting::Setting::encode(&default))
    }};
    (@default $type:ty, []) => { None };
    (@range $type:ty, [$range:expr]) => {{
        let range: std::ops::RangeInclusive<$type> = $range;
        Some((
            $crate::config::setting::Setting::encode(range.start()),
            $crate::config::setting::Setting::encode(range.end()),
        ))
    }};
    (@range $type:ty, []) => { None };
}
pub(crate) use table;

/// Settings that are one of some names.
macro_rules! names {
    (
        $(#[doc = $about:literal])*
        pub(crate) enum $name:ident as $what:literal {
            $( $(#[doc = $doc:literal])* $variant:ident = $label:literal, )*
        }
        $(later { $($later:literal),* $(,)? })?
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $( $(#[doc = $doc])* $variant, )* }

        impl $name {
            /// Every one with its name.
            pub(crate) const ALL: &'static [(Self, &'static str)] =
                &[$((Self::$variant, $label)),*];

            /// Its name.
            pub(crate) fn label(self) -> &'static str {
                match self { $( Self::$variant => $label, )* }
            }
        }

        impl $crate::config::setting::Setting for $name {
            fn kind() -> String {
                let names: Vec<_> = Self::ALL.iter().map(|(_, name)| format!("\"{name}\"")).collect();
                names.join(" or ")
            }

            fn decode(
                raw: &$crate::config::setting::Raw<'_>,
                problems: &mut $crate::config::problem::Problems,
            ) -> Option<Self> {
                let toml::de::DeValue::String(text) = raw.get_ref() else {
                    return $crate::config::setting::wrong_type(raw, &Self::kind(), problems);
                };
                let found = Self::ALL.iter().find(|(_, name)| name == text);
                if found.is_none() {
                    let names = Self::ALL.iter().map(|(_, name)| *name);
                    let later: &[&str] = &[$($($later),*)?];
                    problems.push(if later.contains(&text.as_ref()) {
                        $crate::config::setting::later_name(raw.span(), $what, text, names)
                    } else {
                        $crate::config::setting::unknown_name(raw.span(), $what, text, names)
                    });
                }
                found.map(|(value, _)| *value)
            }

            fn encode(&self) -> $crate::config::setting::Encoded {
                $crate::config::setting::quoted(self.label())
            }
        }
    };
}
pub(crate) use names;
