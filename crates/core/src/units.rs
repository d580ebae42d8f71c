//! Durations and sizes as people write them: a whole number and a unit, "50ms", "64KiB".
//!
//! A bare number is refused: whether 30 means seconds or milliseconds has cost enough nights.
//! Configuration, command line and scenario files share this one reader.

use std::time::Duration;

/// Units of time in nanoseconds, from the largest to the smallest.
const TIMES: &[(&str, u64)] = &[
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// Units of size in bytes, from the largest to the smallest.
const SIZES: &[(&str, u64)] = &[
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// So many KiB.
    pub const fn kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    /// As a length in memory.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Why a text is neither a duration nor a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// It does not begin with a whole number.
    #[error("a whole number and a unit are needed, like \"{example}\"")]
    Number {
        /// One that would do.
        example: &'static str,
    },
    /// A bare number.
    #[error("the unit is missing, like \"{number}{unit}\"; units are {units}")]
    Missing {
        /// The number.
        number: u64,
        /// The unit that is likely meant.
        unit: &'static str,
        /// All units.
        units: String,
    },
    /// No such unit.
    #[error("unknown unit `{unit}`; units are {units}")]
    Unknown {
        /// What stands in its place.
        unit: String,
        /// All units.
        units: String,
    },
    /// Beyond 64 bits of the smallest unit.
    #[error("the number is too large")]
    Large,
}

/// Reads a duration.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    parse(text, TIMES, "50ms", "ms").map(Duration::from_nanos)
}

/// Reads a size.
pub fn parse_size(text: &str) -> Result<Size, UnitError> {
    parse(text, SIZES, "64KiB", "KiB").map(Size)
}

/// Writes a duration in the largest unit that holds it exactly.
pub fn format_duration(duration: Duration) -> String {
    format(crate::time::nanos(duration), TIMES, "us")
}

/// Writes a size in the largest unit that holds it exactly.
pub fn format_size(size: Size) -> String {
    format(size.0, SIZES, "B")
}

/// The units of time, for messages.
pub fn time_units() -> String {
    names(TIMES)
}

/// The units of size, for messages.
pub fn size_units() -> String {
    names(SIZES)
}

fn names(units: &[(&str, u64)]) -> String {
    let names: Vec<_> = units.iter().rev().map(|(name, _)| *name).collect();
    names.join(", ")
}

fn parse(
    text: &str,
    units: &[(&str, u64)],
    example: &'static str,
    usual: &'static str,
) -> Result<u64, UnitError> {
    let text = text.trim();
    let end = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = (&text[..end], text[end..].trim_start());
    if digits.is_empty() || unit.starts_with('.') {
        return Err(UnitError::Number { example });
    }
    let number: u64 = digits.parse().map_err(|_| UnitError::Large)?;
    if unit.is_empty() {
        return Err(UnitError::Missing {
            number,
            unit: usual,
            units: names(units),
        });
    }
    let Some((_, worth)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(UnitError::Unknown {
            unit: unit.into(),
            units: names(units),
        });
    };
    number.checked_mul(*worth).ok_or(UnitError::Large)
}

fn format(number: u64, units: &[(&str, u64)], smallest: &str) -> String {
    let exact = units
        .iter()
        .find(|(_, worth)| number != 0 && number.is_multiple_of(*worth));
    match exact {
        Some((name, worth)) => format!("{}{name}", number / worth),
        None => {
            let worth = units.last().map_or(1, |(_, worth)| *worth);
            format!("{}{smallest}", number / worth)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in ["1us", "50ms", "1s", "90s", "2m", "3h", "1d", "0us"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
        for text in ["0B", "100B", "64KiB", "3MiB", "1GiB"] {
            assert_eq!(format_size(parse_size(text).unwrap()), text);
        }
        assert_eq!(format_duration(Duration::from_millis(1500)), "1500ms");
    }

    #[test]
    fn a_bare_number_and_an_unknown_unit_are_told_apart() {
        assert!(matches!(
            parse_duration("50"),
            Err(UnitError::Missing { number: 50, .. })
        ));
        assert!(matches!(parse_size("64KB"), Err(UnitError::Unknown { .. })));
        for text in ["", "ms", "-1s", "1.5s", "0x10s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(parse_duration("99999999999d"), Err(UnitError::Large));
        assert_eq!(
            parse_duration("99999999999999999999999s"),
            Err(UnitError::Large)
        );
    }
}
