//! The tables of a site about priorities, sessions, answers to those that it refuses, and retries; and the
//! types of values that only they have.

use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate_core::units::format_duration;
use toml::de::DeValue;

use super::problem::{Problem, Problems};
use super::setting::{At, Encoded, Raw, Setting, inline, table, wrong_type};

/// How long a session is established.
const WINDOW_MIN: Duration = Duration::from_secs(1);
const WINDOW_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest time after which a refused client is asked to come again.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// Entries in one table of names: each request may be compared with all of them.
const NAMED_MAX: usize = 64;

table! {
    /// Which priority a request has, where there are several: known by its path, or else by the header,
    /// or else by the cookie, or else the default.
    pub(crate) struct PriorityFile {
        /// The header that carries it; `""` is none.
        header: String = "x-tidegate-priority".into();
        /// The cookie that carries it.
        cookie: Option<String> = None;
        /// What header and cookie may say, and the priorities that it means, like
        /// `{ gold = 0, silver = 1 }`. Empty: they say the priority's number.
        values: Named<u32> = Named::default();
        /// Path prefixes and their priorities, like `{ "/checkout" = 0 }`, on segment boundaries; the
        /// longest counts.
        paths: Named<u32> = Named::default();
        /// The priority of all other requests; not set is the lowest.
        default: Option<u32> = None;
    }
}

table! {
    /// adaptive: an established user session, of which a request was let in, goes before new ones of the same priority
    /// for a while, so that what has begun can be finished. A header or a cookie names it.
    pub(crate) struct SessionFile {
        /// The header whose value names the session.
        header: Option<String> = None;
        /// The cookie whose value does.
        cookie: Option<String> = None;
        /// How long a session is established after a request of it was let in.
        window: Duration = Duration::from_secs(60), in WINDOW_MIN..=WINDOW_MAX;
    }
}

table! {
    /// How many requests may be tried again at another node after one failed.
    pub(crate) struct RetryBudgetFile {
        /// Retries for each request, on average.
        ratio: f64 = 0.2, in 0.0..=1.0;
        /// Retries per second that are allowed whatever the rate of requests, shared evenly among the
        /// workers.
        min_per_second: f64 = 10.0, in 0.0..=10_000.0;
    }
}

/// Names, each with a value, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named<T>(pub(crate) Vec<(At<String>, At<T>)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Setting> Setting for Named<T> {
    fn kind() -> String {
        format!("a table of names, each with {}", T::kind())
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let DeValue::Table(table) = raw.get_ref() else {
            return wrong_type(raw, &Self::kind(), problems);
        };
        if table.len() > NAMED_MAX {
            let message = format!("a table of more than {NAMED_MAX} names");
            problems.push(Problem::new(raw.span(), message, "too long"));
            return None;
        }
        // All of them are looked at before one of them makes the table fail.
        let mut pairs = Vec::new();
        for (name, value) in table {
            let name = At {
                value: name.get_ref().to_string(),
                at: Some(name.span()),
            };
            pairs.push(At::decode(value, problems).map(|value| (name, value)));
        }
        let mut pairs: Vec<_> = pairs.into_iter().collect::<Option<_>>()?;
        pairs.sort_by_key(|(name, _)| name.place().start);
        Some(Self(pairs))
    }

    fn encode(&self) -> Encoded {
        let key = |name: &str| {
            let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            match !name.is_empty() && name.bytes().all(bare) {
                true => name.to_owned(),
                false => toml::Value::from(name).to_string(),
            }
        };
        let pairs = self.0.iter().map(|(name, value)| {
            let value = inline(&value.encode()).unwrap_or_default();
            format!("{} = {value}", key(&name.value))
        });
        let pairs: Vec<_> = pairs.collect();
        Encoded::Inline(match pairs.is_empty() {
            true => "{}".into(),
            false => format!("{{ {} }}", pairs.join(", ")),
        })
    }
}

/// Whole seconds, from the least to the most.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RetryAfter(pub(crate) RangeInclusive<u32>);

impl Setting for RetryAfter {
    fn kind() -> String {
        "a list of two durations in whole seconds".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let times = Vec::<At<Duration>>::decode(raw, problems)?;
        let [least, most] = times.as_slice() else {
            let message = format!("expected {}, found {} of them", Self::kind(), times.len());
            problems.push(Problem::new(raw.span(), message, "the least and the most"));
            return None;
        };
        let mut seconds = |time: &At<Duration>| {
            let second = Duration::from_secs(1);
            let whole = time.value.subsec_nanos() == 0;
            if whole && (second..=RETRY_AFTER_MAX).contains(&time.value) {
                return u32::try_from(time.value.as_secs()).ok();
            }
            let most = format_duration(RETRY_AFTER_MAX);
            let message =
                format!("`retry_after` must be in whole seconds, from \"1s\" to \"{most}\"");
            problems.push(Problem::new(time.place(), message, "here"));
            None
        };
        let (first, last) = (seconds(least), seconds(most));
        let (first, last) = (first?, last?);
        if first > last {
            let message = "the least of `retry_after` is more than the most";
            problems.push(
                Problem::new(most.place(), message, "less than").context(least.place(), "this"),
            );
            return None;
        }
        Some(Self(first..=last))
    }

    fn encode(&self) -> Encoded {
        let time = |seconds: u32| Duration::from_secs(seconds.into());
        vec![time(*self.0.start()), time(*self.0.end())].encode()
    }
}
