//! The export of traces: where to, as what, and how much.

use std::path::PathBuf;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate_discover::ServerUrl;
use tidegate_proxy::TraceConfig;

use super::problem::Problem;
use super::setting::{At, table};
use super::validate::Checker;

/// Largest file of headers, bytes.
const HEADERS_MAX: usize = 16 << 10;
/// Longest name of a service or an instance, bytes.
const NAME_MAX: usize = 255;
/// Headers that are made here.
const OWN: [&str; 6] = [
    "host",
    "content-type",
    "content-length",
    "connection",
    "transfer-encoding",
    "user-agent",
];

table! {
    /// The export of traces, by the OpenTelemetry Protocol ([traces.md](traces.md)).
    pub(crate) struct TracesFile {
        /// The collector, like `http://127.0.0.1:4318`: requests of recorded traces are sent there, as protobuf over HTTP. Not set: nothing is exported.
        otlp: Option<ServerUrl> = None;
        /// The path there.
        path: String = "/v1/traces".to_owned();
        /// Certificates, in PEM, of which one has signed that of an https collector. Relative to this file.
        ca_file: Option<PathBuf> = None;
        /// File with headers for the collector, a line each: `authorization: Bearer …`. Only its owner may have access to it. They are sent over
        /// `https` only, or to this machine.
        headers_file: Option<PathBuf> = None;
        /// `service.name` of all spans.
        service: String = "tidegate".to_owned();
        /// `service.instance.id` of all spans; not set: the host's name.
        instance: Option<String> = None;
        /// Queries are exported as well (`url.query`). There may be secrets in them.
        query: bool = false;
        /// Requests of one second that are exported at most, over all workers; more are counted as dropped (`rate`). Clients choose which of their
        /// requests are recorded, so there is a limit.
        requests_per_second: u32 = 1000, in 1..=1_000_000;
    }
}

/// Where traces go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtlpConfig {
    /// The collector.
    pub(crate) server: ServerUrl,
    /// The path there.
    pub(crate) path: String,
    /// Certificates of which one has signed its own.
    pub(crate) ca_file: Option<PathBuf>,
    /// What is sent with each batch.
    pub(crate) headers: HeaderMap,
    /// `service.name`.
    pub(crate) service: String,
    /// `service.instance.id`.
    pub(crate) instance: String,
}

/// What is exported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traces {
    /// Which requests are traced.
    pub(crate) requests: TraceConfig,
    /// Where they go; none: nowhere.
    pub(crate) otlp: Option<OtlpConfig>,
}

impl Checker<'_> {
    /// The export that is wanted.
    pub(super) fn traces(&mut self, file: &TracesFile) -> Option<Traces> {
        let Some(server) = &file.otlp.value else {
            let set = [
                file.headers_file
                    .is_some()
                    .then(|| file.headers_file.place()),
                file.ca_file.is_some().then(|| file.ca_file.place()),
                file.instance.is_some().then(|| file.instance.place()),
                file.query.value.then(|| file.query.place()),
            ];
            for at in set.into_iter().flatten() {
                let label = "only with `otlp`, which says where to";
                self.problem(at, "no trace is exported here", label);
            }
            return Some(Traces::default());
        };
        if PathAndQuery::try_from(file.path.as_str()).is_err() || !file.path.starts_with('/') {
            let message = format!("`{}` is no path", file.path.value);
            self.problem(file.path.place(), message, "like \"/v1/traces\"");
        }
        let named = [Some(&file.service.value), file.instance.value.as_ref()];
        let places = [file.service.place(), file.instance.place()];
        for (name, at) in named.into_iter().zip(places) {
            if name.is_some_and(|it| it.is_empty() || it.len() > NAME_MAX) {
                let message = format!("a name has from 1 to {NAME_MAX} bytes");
                self.problem(at, message, "this one has not");
            }
        }
        if server.is_tls() && file.ca_file.is_none() {
            let message = "https needs the certificates that have signed the server's";
            let problem = Problem::new(file.otlp.place(), message, "here");
            self.problems.push(problem.help("set `ca_file`"));
        }
        let headers = self.headers(&file.headers_file)?;
        if !headers.is_empty() && server.is_plain_elsewhere() {
            let message = "headers are sent over https only, or to this machine";
            let problem = Problem::new(file.headers_file.place(), message, "these are not");
            self.problems
                .push(problem.context(file.otlp.place(), "plain http"));
        }
        let instance = file.instance.value.clone();
        Some(Traces {
            requests: TraceConfig {
                exported: true,
                query: file.query.value,
                per_second: file.requests_per_second.value,
            },
            otlp: Some(OtlpConfig {
                server: server.clone(),
                path: file.path.value.clone(),
                ca_file: (file.ca_file.value.as_ref()).map(|path| self.path(path)),
                headers,
                service: file.service.value.clone(),
                instance: instance.unwrap_or_else(host_name),
            }),
        })
    }

    /// The headers of such a file, if one is named; none if it cannot be used.
    pub(super) fn headers(&mut self, file: &At<Option<PathBuf>>) -> Option<HeaderMap> {
        let Some(path) = &file.value else {
            return Some(HeaderMap::new());
        };
        let read = self.secret_text(self.path(path), HEADERS_MAX);
        match read.and_then(|text| headers(text.reveal())) {
            Ok(headers) => Some(headers),
            Err(why) => {
                let message = format!("cannot use this file of headers: {why}");
                self.problem(file.place(), message, "here");
                None
            }
        }
    }
}

/// Headers, a line each. An error names the line, and nothing of what stands there.
fn headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let lines = text.lines().enumerate();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |what: &str| format!("line {}: {what}", number + 1);
        let parts = line.split_once(':');
        let (name, value) = parts.ok_or_else(|| wrong("`name: value` is expected"))?;
        let name: HeaderName = (name.trim().parse()).map_err(|_| wrong("no name of a header"))?;
        if OWN.contains(&name.as_str()) {
            return Err(wrong(&format!("`{name}` is set by the exporter")));
        }
        let value = HeaderValue::try_from(value.trim());
        let mut value = value.map_err(|_| wrong("no value of a header"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    match headers.is_empty() {
        true => Err("there is no header in it".to_owned()),
        false => Ok(headers),
    }
}

/// What the system calls this host.
pub(super) fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_lines() {
        let read = headers("authorization: Bearer a:b\n\nX-Scope: one\r\n").unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read["authorization"], "Bearer a:b");
        assert!(!format!("{read:?}").contains("Bearer"));
        for (text, why) in [
            ("", "there is no header in it"),
            ("\nsecret", "line 2: `name: value` is expected"),
            ("a b: secret", "line 1: no name of a header"),
            ("a: se\u{1}cret", "line 1: no value of a header"),
            ("Host: secret", "line 1: `host` is set by the exporter"),
        ] {
            assert_eq!(headers(text).unwrap_err(), why);
        }
    }
}
