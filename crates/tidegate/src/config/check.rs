//! How a site looks after its nodes: the table of its checks, the slow start, and what is wrong with either.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery};
use tidegate_core::topology::{CheckConfig, CheckMethod, CheckRequest, HealthConfig, HttpCheck};
use toml::de::DeValue;

use super::file::{SiteFile, defaults};
use super::problem::{Problem, Problems};
use super::setting::{At, Encoded, Raw, Setting, names, quoted, table, wrong_type};
use super::soft_limits::soft_limits;

/// Time between two checks of a node.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
const TIMEOUT_MIN: Duration = Duration::from_millis(10);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Checks in a row.
const ROW_MAX: u32 = 100;
/// Statuses that a final answer can have.
const STATUSES: RangeInclusive<u16> = 200..=599;

table! {
    /// Asks each node whether it is well, beside what its requests show ([health.md](health.md)). A node that fails gets no
    /// requests until it passes; if all fail, they are used all the same.
    pub(crate) struct CheckFile {
        /// What is asked.
        kind: CheckKindName = CheckKindName::Http;
        /// http: path and query.
        path: String = "/".into();
        /// http: the host that is asked for. Not set: the site's first whole host, or the node's address.
        host: Option<String> = None;
        /// http: how it is asked.
        method: MethodName = MethodName::Get;
        /// http: statuses of a node that is well, each one or a range: `[200, "300-399"]`.
        status: Vec<At<Statuses>> = vec![At::default_of(Statuses(200..=399))];
        /// http: what the first 64 KiB of the body must contain.
        body: Option<String> = None;
        /// Another port than that of requests.
        port: Option<u32> = None, in Some(1)..=Some(65_535);
        /// Time between two checks of a node, from each front-end.
        interval: Duration = Duration::from_secs(2), in INTERVAL_MIN..=INTERVAL_MAX;
        /// How long connection and answer may take.
        timeout: Duration = Duration::from_secs(1), in TIMEOUT_MIN..=TIMEOUT_MAX;
        /// Checks in a row that a node must pass to get requests again.
        rise: u32 = 2, in 1..=ROW_MAX;
        /// Checks in a row that a node must fail to get none.
        fall: u32 = 3, in 1..=ROW_MAX;
    }
    later { grpc: "health checks by gRPC", tls: "TLS towards nodes" }
}

names! {
    /// What a check asks.
    pub(crate) enum CheckKindName as "kind of check" {
        /// An answer as wanted.
        Http = "http",
        /// A connection.
        Tcp = "tcp",
    }
    later { "grpc", "https" }
}

names! {
    /// How a check asks.
    pub(crate) enum MethodName as "method of a check" {
        Get = "GET",
        Head = "HEAD",
    }
}

/// A status or a range of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statuses(pub(crate) RangeInclusive<u16>);

impl Setting for Statuses {
    fn kind() -> String {
        "a status or a range like \"200-399\"".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let text = match raw.get_ref() {
            DeValue::Integer(integer) => integer.as_str(),
            DeValue::String(text) => text.as_ref(),
            DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => return wrong_type(raw, &Self::kind(), problems),
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let status = |text: &str| {
            let status = text.trim().parse().ok();
            status.filter(|status| STATUSES.contains(status))
        };
        let range = status(first).zip(status(last));
        let range = range.filter(|(first, last)| first <= last);
        if range.is_none() {
            let (least, most) = (STATUSES.start(), STATUSES.end());
            let message = format!("`{text}` is no status and no range of statuses");
            let problem = Problem::new(raw.span(), message, "here");
            problems.push(problem.help(format!(
                "a number from {least} to {most}, or two like \"200-399\""
            )));
        }
        range.map(|(first, last)| Self(first..=last))
    }

    fn encode(&self) -> Encoded {
        let (first, last) = (self.0.start(), self.0.end());
        match first == last {
            true => Encoded::Inline(first.to_string()),
            false => quoted(&format!("{first}-{last}")),
        }
    }
}

/// How a site looks after its nodes, where those that move here take so long to warm up. What is wrong is among the
/// problems.
pub(super) fn health(site: &SiteFile, warm_up: Duration, problems: &mut Problems) -> HealthConfig {
    HealthConfig {
        slow_start: site.slow_start.value,
        warm_up,
        check: (site.check.value.as_ref()).map(|file| check(file, site, problems)),
        soft_limits: soft_limits(&site.soft_limits),
    }
}

fn check(file: &CheckFile, site: &SiteFile, problems: &mut Problems) -> CheckConfig {
    let request = match file.kind.value {
        CheckKindName::Tcp => {
            asks_nothing(file, problems);
            CheckRequest::Tcp
        }
        CheckKindName::Http => {
            wrong_request(file, problems);
            CheckRequest::Http(http_check(file, site))
        }
    };
    CheckConfig {
        request,
        port: file.port.value.and_then(|port| u16::try_from(port).ok()),
        interval: file.interval.value,
        timeout: file.timeout.value,
        rise: file.rise.value,
        fall: file.fall.value,
    }
}

fn http_check(file: &CheckFile, site: &SiteFile) -> HttpCheck {
    let mut hosts = site.hosts.iter().map(|host| &host.value);
    let whole = hosts.find(|host| !host.contains('*'));
    HttpCheck {
        method: match file.method.value {
            MethodName::Get => CheckMethod::Get,
            MethodName::Head => CheckMethod::Head,
        },
        path: file.path.value.clone(),
        host: file.host.value.clone().or_else(|| whole.cloned()),
        statuses: file.status.iter().map(|it| it.value.0.clone()).collect(),
        body: file.body.value.clone(),
    }
}

/// A connection has no path and no answer. Defaults are no mistake: `tidegate config` prints them.
fn asks_nothing(file: &CheckFile, problems: &mut Problems) {
    let usual: CheckFile = defaults();
    let keys = [
        ("path", &file.path.at, *file.path == *usual.path),
        ("host", &file.host.at, file.host.is_none()),
        ("method", &file.method.at, *file.method == *usual.method),
        ("status", &file.status.at, same(&file.status, &usual.status)),
        ("body", &file.body.at, file.body.is_none()),
    ];
    for (key, at, is_usual) in keys {
        if let (Some(at), false) = (at, is_usual) {
            let message = format!("a check of kind `tcp` has no `{key}`");
            let problem = Problem::new(at.clone(), message, "this is for `http`");
            problems.push(problem.help("set `kind = \"http\"`, or leave it out"));
        }
    }
}

fn same(one: &[At<Statuses>], other: &[At<Statuses>]) -> bool {
    let values = one.iter().map(|it| &it.value);
    values.eq(other.iter().map(|it| &it.value))
}

fn wrong_request(file: &CheckFile, problems: &mut Problems) {
    let mut problem = |at: std::ops::Range<usize>, message: String, label: &str| {
        problems.push(Problem::new(at, message, label));
    };
    let path = &file.path;
    if !path.starts_with('/') || path.parse::<PathAndQuery>().is_err() || path.contains('#') {
        let message = format!("bad path `{}`", path.value);
        problem(
            path.place(),
            message,
            "a path begins with `/` and has no spaces",
        );
    }
    if let Some(host) = &file.host.value
        && (host.contains('@') || host.parse::<Authority>().is_err())
    {
        let message = format!("bad host `{host}`");
        problem(file.host.place(), message, "a name, or a name and a port");
    }
    if file.status.is_empty() {
        let message = "`status` has no status".into();
        problem(file.status.place(), message, "each node would fail");
    }
    match &file.body.value {
        Some(body) if body.is_empty() => {
            let message = "`body` is empty".into();
            problem(file.body.place(), message, "each body has that");
        }
        Some(_) if file.method.value == MethodName::Head => {
            let message = "an answer to HEAD has no body".into();
            problem(file.body.place(), message, "this needs GET");
        }
        Some(_) | None => {}
    }
}
