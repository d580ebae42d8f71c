//! The types of values: texts, numbers, addresses, durations, sizes, lists.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::units::{
    Size, UnitError, format_duration, format_size, parse_duration, parse_size, size_units,
    time_units,
};
use toml::de::DeValue;

use super::problem::{Problem, Problems};
use super::setting::{Encoded, LIST_OF, Raw, Setting, inline, quoted, wrong_type};

/// Longest list in the file: sites, nodes, hosts, names to watch.
const LIST_MAX: usize = 10_000;
/// Longest text in the file, bytes.
const TEXT_MAX: usize = 4096;

fn text<'a>(raw: &'a Raw<'_>, expected: &str, problems: &mut Problems) -> Option<&'a str> {
    let DeValue::String(text) = raw.get_ref() else {
        return wrong_type(raw, expected, problems);
    };
    if text.len() > TEXT_MAX {
        problems.push(Problem::new(
            raw.span(),
            format!("a text of more than {TEXT_MAX} bytes"),
            "too long",
        ));
        return None;
    }
    Some(text)
}

impl<T: Setting> Setting for Option<T> {
    fn kind() -> String {
        T::kind()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        T::decode(raw, problems).map(Some)
    }

    fn encode(&self) -> Encoded {
        self.as_ref().map_or(Encoded::Unset, T::encode)
    }
}

impl<T: Setting> Setting for Vec<T> {
    fn kind() -> String {
        format!("{LIST_OF}{}", T::kind())
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let DeValue::Array(items) = raw.get_ref() else {
            return wrong_type(raw, &Self::kind(), problems);
        };
        if items.len() > LIST_MAX {
            problems.push(Problem::new(
                raw.span(),
                format!("a list of more than {LIST_MAX}"),
                "too long",
            ));
            return None;
        }
        // All of them are looked at before one of them makes the list fail.
        let decoded: Vec<_> = items.iter().map(|raw| T::decode(raw, problems)).collect();
        decoded.into_iter().collect()
    }

    fn encode(&self) -> Encoded {
        let items: Vec<_> = self.iter().map(T::encode).collect();
        if items.iter().any(|item| matches!(item, Encoded::Table(_))) {
            return Encoded::Tables(items);
        }
        let items: Vec<_> = items.iter().filter_map(inline).collect();
        Encoded::Inline(format!("[{}]", items.join(", ")))
    }
}

impl Setting for String {
    fn kind() -> String {
        "a text".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        text(raw, &Self::kind(), problems).map(str::to_owned)
    }

    fn encode(&self) -> Encoded {
        quoted(self)
    }
}

impl Setting for PathBuf {
    fn kind() -> String {
        "a path".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let path = text(raw, &Self::kind(), problems)?;
        if path.is_empty() || path.contains('\0') {
            problems.push(Problem::new(raw.span(), "expected a path", "not a path"));
            return None;
        }
        Some(path.into())
    }

    fn encode(&self) -> Encoded {
        quoted(&self.to_string_lossy())
    }
}

impl Setting for bool {
    fn kind() -> String {
        "true or false".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        match raw.get_ref().as_bool() {
            Some(value) => Some(value),
            None => wrong_type(raw, &Self::kind(), problems),
        }
    }

    fn encode(&self) -> Encoded {
        Encoded::Inline(self.to_string())
    }
}

impl Setting for u32 {
    fn kind() -> String {
        "a whole number".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let DeValue::Integer(integer) = raw.get_ref() else {
            return wrong_type(raw, &Self::kind(), problems);
        };
        let number = Self::from_str_radix(integer.as_str(), integer.radix());
        if number.is_err() {
            problems.push(Problem::new(
                raw.span(),
                format!("expected a whole number from 0 to {}", Self::MAX),
                "out of range",
            ));
        }
        number.ok()
    }

    fn encode(&self) -> Encoded {
        Encoded::Inline(self.to_string())
    }
}

macro_rules! floats {
    ($($float:ident)*) => { $(
impl Setting for $float {
    fn kind() -> String {
        "a number".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let number = match raw.get_ref() {
            DeValue::Float(float) => float.as_str().replace('_', "").parse().ok(),
            DeValue::Integer(integer) => i16::from_str_radix(integer.as_str(), integer.radix())
                .ok()
                .map(Self::from),
            DeValue::String(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => return wrong_type(raw, &Self::kind(), problems),
        };
        if number.is_none() {
            problems.push(Problem::new(raw.span(), "expected a number", "too large"));
        }
        number
    }

    fn encode(&self) -> Encoded {
        Encoded::Inline(format!("{self:?}"))
    }
}
    )* };
}
floats! { f32 f64 }

impl Setting for SocketAddr {
    fn kind() -> String {
        "an address and port".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let text = text(raw, &Self::kind(), problems)?;
        let address = text.parse();
        if address.is_err() {
            let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
            let label = if text.parse::<std::net::IpAddr>().is_ok() {
                "the port is missing"
            } else if host.contains(|letter: char| letter.is_ascii_alphabetic())
                && !host.contains(':')
            {
                "a host name cannot be used here: write the address"
            } else {
                "not an address"
            };
            problems.push(
                Problem::new(raw.span(), format!("bad address `{text}`"), label)
                    .help("an IP address and a port, like \"10.0.0.11:80\" or \"[::1]:80\""),
            );
        }
        address.ok()
    }

    fn encode(&self) -> Encoded {
        quoted(&self.to_string())
    }
}

fn with_unit<T>(
    raw: &Raw<'_>,
    expected: &str,
    bare: (fn(u64) -> String, String),
    parse: impl Fn(&str) -> Result<T, UnitError>,
    problems: &mut Problems,
) -> Option<T> {
    if let DeValue::Integer(number) = raw.get_ref() {
        let (likely, units) = bare;
        let label = match number.as_str().parse() {
            Ok(number) => format!("write {}", likely(number)),
            Err(_) => "no unit".into(),
        };
        problems.push(
            Problem::new(
                raw.span(),
                format!("expected {expected}, found a number without a unit"),
                label,
            )
            .help(format!("units are {units}")),
        );
        return None;
    }
    let text = text(raw, expected, problems)?;
    match parse(text) {
        Ok(value) => Some(value),
        Err(error) => {
            problems.push(Problem::new(
                raw.span(),
                format!("`{text}` is not {expected}"),
                error.to_string(),
            ));
            None
        }
    }
}

impl Setting for Duration {
    fn kind() -> String {
        "a duration".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let bare: (fn(u64) -> String, _) = (
            |number| format!("\"{number}s\" or \"{number}ms\", whichever is meant"),
            time_units(),
        );
        with_unit(raw, &Self::kind(), bare, parse_duration, problems)
    }

    fn encode(&self) -> Encoded {
        quoted(&format_duration(*self))
    }
}

impl Setting for Size {
    fn kind() -> String {
        "a size".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let bare: (fn(u64) -> String, _) = (
            |number| format!("\"{}\" if bytes are meant", format_size(Self(number))),
            size_units(),
        );
        with_unit(raw, &Self::kind(), bare, parse_size, problems)
    }

    fn encode(&self) -> Encoded {
        quoted(&format_size(*self))
    }
}

/// A number that Tidegate can find by itself.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) enum Auto<T> {
    /// It finds it.
    Auto,
    /// It is this.
    Set(T),
}

impl<T: Setting> Setting for Auto<T> {
    fn kind() -> String {
        format!("\"auto\" or {}", T::kind())
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        match raw.get_ref() {
            DeValue::String(text) if text == "auto" => Some(Self::Auto),
            DeValue::String(_) => wrong_type(raw, &Self::kind(), problems),
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => T::decode(raw, problems).map(Self::Set),
        }
    }

    fn encode(&self) -> Encoded {
        match self {
            Self::Auto => quoted("auto"),
            Self::Set(value) => value.encode(),
        }
    }
}
