//! Ranges of values, checked where they stand.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate_core::units::format_duration;
use toml::Spanned;

use super::error::FileError;
use super::tables::Time;

pub(super) type Checked<T> = Result<T, FileError>;

fn out_of_range<T>(
    value: &Spanned<T>,
    name: &str,
    least: impl Display,
    most: impl Display,
) -> FileError {
    FileError::new(
        value.span(),
        format!("`{name}` must be from {least} to {most}"),
        "out of range",
    )
}

/// A value that lies in the range.
pub(super) fn within<T: PartialOrd + Copy + Display>(
    value: &Spanned<T>,
    name: &str,
    range: RangeInclusive<T>,
) -> Checked<T> {
    // A NaN is in no range.
    if range.contains(value.get_ref()) {
        return Ok(*value.get_ref());
    }
    Err(out_of_range(value, name, range.start(), range.end()))
}

/// The same for a key that may be left out.
pub(super) fn maybe_within<T: PartialOrd + Copy + Display>(
    value: Option<&Spanned<T>>,
    name: &str,
    range: RangeInclusive<T>,
) -> Checked<Option<T>> {
    value.map(|value| within(value, name, range)).transpose()
}

/// A duration that lies in the range.
pub(super) fn time_within(
    value: &Spanned<Time>,
    name: &str,
    range: RangeInclusive<Duration>,
) -> Checked<Duration> {
    let Time(time) = *value.get_ref();
    if range.contains(&time) {
        return Ok(time);
    }
    let (least, most) = (
        format_duration(*range.start()),
        format_duration(*range.end()),
    );
    Err(out_of_range(value, name, least, most))
}

/// The same for a key that may be left out.
pub(super) fn maybe_time_within(
    value: Option<&Spanned<Time>>,
    name: &str,
    range: RangeInclusive<Duration>,
) -> Checked<Option<Duration>> {
    value
        .map(|value| time_within(value, name, range))
        .transpose()
}
