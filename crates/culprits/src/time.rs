//! Times as logs write them, as nanoseconds of the Unix epoch.

use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::{Offset, TimeZone};

/// A second, nanoseconds.
pub(super) const SECOND: i64 = 1_000_000_000;
/// Apache's and nginx's time.
pub(super) const COMMON: &str = "%d/%b/%Y:%H:%M:%S %z";
/// HAProxy's time.
pub(super) const HAPROXY: &str = "%d/%b/%Y:%H:%M:%S%.f";

/// A point in time, and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Nanoseconds of the Unix epoch; as if it were UTC where no zone is given.
    pub(super) nanos: i64,
    /// It lies in this many nanoseconds from there on.
    pub(super) resolution: i64,
    /// Whether it says how far from UTC it is.
    pub(super) zoned: bool,
}

impl Stamp {
    /// By a format of strftime.
    pub(super) fn by_format(format: &str, text: &str) -> Option<Self> {
        let broken = BrokenDownTime::parse(format, text).ok()?;
        let resolution = if text.contains('.') || format.contains("%f") {
            SECOND / 1000
        } else {
            SECOND
        };
        if let Ok(timestamp) = broken.to_timestamp() {
            return Self::new(timestamp, resolution, true);
        }
        Self::unzoned(broken.to_datetime().ok()?, resolution)
    }

    /// By ISO 8601 / RFC 3339; a space for the T and a zone `UTC` are understood.
    pub(super) fn iso(text: &str) -> Option<Self> {
        let text = text.trim();
        // sysstat writes "2024-05-31 10:00:01 UTC".
        let (text, utc) = match text.strip_suffix("UTC") {
            Some(text) => (text.trim_end(), true),
            None => (text, false),
        };
        let resolution = match text.split_once('.') {
            None => SECOND,
            Some((_, fraction)) => {
                let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
                10_i64.pow(9_u32.saturating_sub(digits as u32))
            }
        };
        if let Ok(timestamp) = jiff::Timestamp::from_str(text) {
            return Self::new(timestamp, resolution, true);
        }
        // "+0100" is no RFC 3339, and common.
        if let Some(stamp) = Self::by_format("%Y-%m-%dT%H:%M:%S%.f%z", text) {
            return Some(Self {
                resolution,
                ..stamp
            });
        }
        let stamp = Self::unzoned(DateTime::from_str(text).ok()?, resolution)?;
        Some(Self {
            zoned: utc,
            ..stamp
        })
    }

    /// Decimal seconds (or thousandths, or less) of the epoch.
    pub(super) fn epoch(text: &str, unit: i64) -> Option<Self> {
        let (nanos, digits) = decimal(text, unit)?;
        let resolution = (unit / 10_i64.pow(digits)).max(1);
        Some(Self {
            nanos,
            resolution,
            zoned: true,
        })
    }

    /// Epoch time of a unit that is not named: by its size.
    pub(super) fn epoch_by_size(text: &str) -> Option<Self> {
        let whole: u64 = text.split('.').next()?.parse().ok()?;
        let unit = match whole {
            0..100_000_000_000 => SECOND,
            100_000_000_000..100_000_000_000_000 => SECOND / 1000,
            100_000_000_000_000..100_000_000_000_000_000 => 1000,
            100_000_000_000_000_000.. => 1,
        };
        Self::epoch(text, unit)
    }

    /// This much earlier, where no zone is given: times that are ahead of UTC.
    pub(super) fn in_zone(self, ahead_of_utc: i64) -> Self {
        let ahead = if self.zoned { 0 } else { ahead_of_utc };
        Self {
            nanos: self.nanos - ahead,
            ..self
        }
    }

    fn new(timestamp: jiff::Timestamp, resolution: i64, zoned: bool) -> Option<Self> {
        Some(Self {
            nanos: i64::try_from(timestamp.as_nanosecond()).ok()?,
            resolution,
            zoned,
        })
    }

    fn unzoned(time: DateTime, resolution: i64) -> Option<Self> {
        let utc = TimeZone::fixed(Offset::UTC);
        let timestamp = time.to_zoned(utc).ok()?.timestamp();
        Self::new(timestamp, resolution, false)
    }
}

/// A non-negative decimal number of a unit as nanoseconds, and how many digits its fraction has.
pub(super) fn decimal(text: &str, unit: i64) -> Option<(i64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let kept = &fraction[..fraction.len().min(9)];
    let scale = 10_i64.pow(kept.len() as u32);
    let part = if kept.is_empty() {
        0
    } else {
        kept.parse::<i64>().ok()?
    };
    let part = i128::from(part) * i128::from(unit) / i128::from(scale);
    let nanos = whole.checked_mul(unit)?.checked_add(part as i64)?;
    Some((nanos, kept.len() as u32))
}

/// What `--utc-offset` takes: `+02:00`, `-0530`, `Z`; nanoseconds ahead of UTC.
pub fn utc_offset(text: &str) -> Result<i64, String> {
    let wrong = || format!("`{text}` is no offset; write one like +02:00, -05:30 or Z");
    if text == "Z" || text == "UTC" {
        return Ok(0);
    }
    let (sign, rest) = match text.split_at_checked(1) {
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        _ => return Err(wrong()),
    };
    let digits: String = rest.chars().filter(|letter| *letter != ':').collect();
    let number: i64 = digits.parse().map_err(|_| wrong())?;
    let (hours, minutes) = match digits.len() {
        1 | 2 => (number, 0),
        4 => (number / 100, number % 100),
        _ => return Err(wrong()),
    };
    if !rest.starts_with(|letter: char| letter.is_ascii_digit()) || hours > 14 || minutes > 59 {
        return Err(wrong());
    }
    Ok(sign * (hours * 3600 + minutes * 60) * SECOND)
}

/// A time as people read it, in UTC.
pub(super) fn show(nanos: i64) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(nanos)) {
        Ok(timestamp) => timestamp.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => "?".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(nanos: i64, resolution: i64, zoned: bool) -> Option<Stamp> {
        Some(Stamp {
            nanos,
            resolution,
            zoned,
        })
    }

    #[test]
    fn times_of_logs() {
        let common = |text| Stamp::by_format(COMMON, text);
        let at = 971_211_336 * SECOND;
        assert_eq!(
            common("10/Oct/2000:13:55:36 -0700"),
            stamp(at, SECOND, true)
        );
        assert_eq!(
            common("10/Oct/2000:20:55:36 +0000"),
            stamp(at, SECOND, true)
        );
        assert_eq!(common("30/Feb/2000:20:55:36 +0000"), None);
        assert_eq!(common(""), None);
        let haproxy = Stamp::by_format(HAPROXY, "10/Oct/2000:20:55:36.250");
        assert_eq!(haproxy, stamp(at + SECOND / 4, SECOND / 1000, false));
    }

    #[test]
    fn times_of_iso_8601() {
        let at = 971_211_336 * SECOND;
        for (text, expected) in [
            ("2000-10-10T20:55:36Z", stamp(at, SECOND, true)),
            ("2000-10-10T22:55:36+02:00", stamp(at, SECOND, true)),
            ("2000-10-10T22:55:36+0200", stamp(at, SECOND, true)),
            (
                "2000-10-10T20:55:36.5Z",
                stamp(at + SECOND / 2, SECOND / 10, true),
            ),
            ("2000-10-10 20:55:36 UTC", stamp(at, SECOND, true)),
            ("2000-10-10 20:55:36", stamp(at, SECOND, false)),
            (
                "2000-10-10",
                stamp(at - (20 * 3600 + 55 * 60 + 36) * SECOND, SECOND, false),
            ),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(Stamp::iso(text), expected, "{text}");
        }
    }

    #[test]
    fn times_of_the_epoch() {
        let at = 971_211_336 * SECOND;
        assert_eq!(Stamp::epoch("971211336", SECOND), stamp(at, SECOND, true));
        let millis = Stamp::epoch("971211336.125", SECOND);
        assert_eq!(millis, stamp(at + SECOND / 8, SECOND / 1000, true));
        for text in [
            "971211336",
            "971211336000",
            "971211336000000",
            "971211336000000000",
        ] {
            assert_eq!(Stamp::epoch_by_size(text).unwrap().nanos, at, "{text}");
        }
        for text in [
            "",
            "-1",
            "1e9",
            "1.2.3",
            "99999999999999999999",
            "9999999999999999999",
        ] {
            assert_eq!(Stamp::epoch(text, SECOND), None, "{text}");
        }
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(decimal("0.000929675", SECOND), Some((929_675, 9)));
        assert_eq!(decimal("1.5", 1000), Some((1500, 1)));
        assert_eq!(decimal("7", SECOND), Some((7 * SECOND, 0)));
        assert_eq!(decimal("0.1234567891234", SECOND), Some((123_456_789, 9)));
        assert_eq!(decimal(".5", SECOND), None);
        assert_eq!(decimal("-", SECOND), None);
    }

    #[test]
    fn offsets_of_the_command_line() {
        for (text, seconds) in [("+02:00", 7200), ("-0530", -19_800), ("Z", 0), ("+1", 3600)] {
            assert_eq!(utc_offset(text), Ok(seconds * SECOND), "{text}");
        }
        for text in ["", "2", "+", "+15:00", "+02:60", "+x", "++2", "é"] {
            assert!(utc_offset(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_zone_moves_only_what_has_none() {
        let local = stamp(7200 * SECOND, SECOND, false).unwrap();
        assert_eq!(local.in_zone(7200 * SECOND).nanos, 0);
        let utc = stamp(7200 * SECOND, SECOND, true).unwrap();
        assert_eq!(utc.in_zone(7200 * SECOND), utc);
        assert_eq!(show(0), "1970-01-01 00:00:00");
    }
}
