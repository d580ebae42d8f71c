//! What the data plane knows of a site: priorities, sessions, answers, retries. All that is wrong is
//! among the problems.

use std::ops::Range;
use std::path::Path;

use http::HeaderName;
use tidegate_core::admission::AdmissionKind;
use tidegate_core::retry_budget::RetryConfig;
use tidegate_proxy::{
    AnswerConfig, CustomBody, LimitStatus, PriorityConfig, ProxyVersion, Quota, SessionConfig,
    SessionSource, SiteConfig, StickySecret,
};

use super::answers::{Named, PriorityFile, SessionFile};
use super::bounded;
use super::file::{AdmissionFile, SiteFile};
use super::problem::{Problem, Problems};
use super::route;
use super::setting::At;
use super::tls::ProtocolName;

/// Bytes that a header's or a cookie's name has beside letters and digits (RFC 9110 §5.6.2).
const TOKEN_BYTES: &[u8] = b"!#$%&'*+-.^_`|~";

/// A site that admits in this mode and has so many nodes; `secrets` are those of its sessions' cookies, and paths are
/// relative to `folder`.
pub(super) fn config(
    site: &SiteFile,
    kind: AdmissionKind,
    nodes: usize,
    secrets: Vec<StickySecret>,
    folder: &Path,
    problems: &mut Problems,
) -> Option<SiteConfig> {
    let mut checker = Checker {
        admission: &site.admission,
        kind,
        problems,
    };
    let answers = checker.answers(site, nodes, folder);
    let priorities = checker.priorities();
    let sessions = match &site.admission.session.value {
        None => Some(None),
        Some(session) => checker.sessions(session).map(Some),
    };
    let sticky = match &site.sticky.value {
        None => Some(None),
        Some(sticky) => checker.sticky(sticky, &site.sticky, secrets).map(Some),
    };
    checker.shared_connections(site);
    let routes = route::configs(&site.route, folder, checker.problems);
    let retry_on = route::retry_statuses(&site.retry_on, checker.problems);
    Some(SiteConfig {
        routes: routes?.into(),
        answers: answers?,
        priorities: priorities?,
        sessions: sessions?,
        sticky: sticky?,
        retry_on: retry_on?,
        retry: RetryConfig {
            ratio: site.retry_budget.ratio.value,
            min_per_second: site.retry_budget.min_per_second.value,
        },
        load_header: site.load_header.value,
        // It is read with the other certificates.
        node_tls: None,
        node_http2: false,
        node_proxy_protocol: site.node_proxy_protocol.value.map(|it| match it {
            1 => ProxyVersion::Text,
            _ => ProxyVersion::Binary,
        }),
        is_tcp: false,
    })
}

/// Checks one site's settings.
pub(super) struct Checker<'a, 'p> {
    admission: &'a AdmissionFile,
    kind: AdmissionKind,
    pub(super) problems: &'p mut Problems,
}

impl Checker<'_, '_> {
    pub(super) fn problem(
        &mut self,
        at: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) {
        self.problems.push(Problem::new(at, message, label));
    }

    /// What a header has said of a connection holds for all that comes on it.
    fn shared_connections(&mut self, site: &SiteFile) {
        if site.node_proxy_protocol.is_some() && site.node_protocol.value == ProtocolName::Http2 {
            let message = "connections that clients share cannot say whose they are";
            let label = "not with `node_protocol = \"h2\"`";
            let problem = Problem::new(site.node_proxy_protocol.place(), message, label);
            let problem = problem.context(
                site.node_protocol.place(),
                "requests of all clients share these",
            );
            self.problems.push(
                problem.help(
                    "leave one of them out: `X-Forwarded-For` says of each request whose it is",
                ),
            );
        }
    }

    fn answers(&mut self, site: &SiteFile, nodes: usize, folder: &Path) -> Option<AnswerConfig> {
        let limit_status = self.limit_status();
        let body = match &self.admission.body.value {
            None => Some(None),
            Some(path) => self.body(&folder.join(path)).map(Some),
        };
        let connections = self.admission.connections.value;
        let connections = connections.filter(|_| self.kind == AdmissionKind::Static);
        Some(AnswerConfig {
            limit_status: limit_status?,
            retry_after: self.admission.retry_after.0.clone(),
            quota: connections.map(|connections| Quota {
                name: site.name.value.clone(),
                requests: u64::from(connections) * nodes as u64,
            }),
            body: body?,
        })
    }

    fn limit_status(&mut self) -> Option<LimitStatus> {
        let status = &self.admission.status;
        match status.value {
            503 => Some(LimitStatus::ServiceUnavailable),
            429 if self.kind == AdmissionKind::Static => Some(LimitStatus::TooManyRequests),
            429 => {
                let mode = self.kind.label();
                self.problems.push(
                    Problem::new(
                        status.place(),
                        format!("429 is for limits that are set, and mode `{mode}` has none"),
                        "overload is 503",
                    )
                    .help("set `mode = \"static\"`, or leave `status` out"),
                );
                None
            }
            other => {
                let message = format!("`status` must be 503 or 429, not {other}");
                self.problem(status.place(), message, "no such answer");
                None
            }
        }
    }

    fn body(&mut self, path: &Path) -> Option<CustomBody> {
        match load_body(path) {
            Ok(body) => Some(body),
            Err(reason) => {
                let at = self.admission.body.place();
                self.problem(at, format!("cannot use this body: {reason}"), "here");
                None
            }
        }
    }

    fn priorities(&mut self) -> Option<PriorityConfig> {
        let file: &PriorityFile = &self.admission.priority;
        let chooses = file.cookie.is_some()
            || file.default.is_some()
            || !file.values.0.is_empty()
            || !file.paths.0.is_empty();
        if chooses && self.admission.priorities.value == 1 {
            let at = self.admission.priority.place();
            self.problems.push(
                Problem::new(
                    at,
                    "`priority` has nothing to choose from",
                    "there is one priority",
                )
                .help("set `priorities` to 2 or more"),
            );
            return None;
        }
        let header = match file.header.value.as_str() {
            "" => Some(None),
            name => self.header(name, file.header.place()).map(Some),
        };
        let cookie = match &file.cookie.value {
            None => Some(None),
            Some(name) => self.cookie(name, file.cookie.place()).map(Some),
        };
        for (path, _) in &file.paths.value.0 {
            self.path(path);
        }
        let values = self.numbered(&file.values);
        let paths = self.numbered(&file.paths);
        let default = match file.default.value {
            None => Some(None),
            Some(priority) => self.priority(priority, file.default.place()).map(Some),
        };
        Some(PriorityConfig {
            header: header?,
            cookie: cookie?,
            values: values?,
            paths: paths?,
            default: default?,
        })
    }

    fn numbered(&mut self, numbered: &Named<u32>) -> Option<Vec<(String, u8)>> {
        let pairs = numbered.0.iter().map(|(name, priority)| {
            let priority = self.priority(priority.value, priority.place())?;
            Some((name.value.clone(), priority))
        });
        let pairs: Vec<_> = pairs.collect();
        pairs.into_iter().collect()
    }

    fn priority(&mut self, priority: u32, at: Range<usize>) -> Option<u8> {
        let priorities = self.admission.priorities.value;
        if priority >= priorities {
            let message = format!("there is no priority {priority}");
            let label = format!(
                "`priorities` is {priorities}, so 0 to {}",
                priorities.max(1) - 1
            );
            self.problem(at, message, label);
            return None;
        }
        u8::try_from(priority).ok()
    }

    fn path(&mut self, path: &At<String>) {
        let label = match path.value.as_str() {
            path if !path.starts_with('/') => "it does not begin with `/`",
            path if path.contains(['?', '#']) => "a query is no part of a path",
            _ => return,
        };
        let message = format!("bad path `{}`", path.value);
        self.problem(path.place(), message, label);
    }

    fn sessions(&mut self, session: &SessionFile) -> Option<SessionConfig> {
        let at = self.admission.session.place();
        if self.kind != AdmissionKind::Adaptive {
            let message = format!("mode `{}` knows no sessions", self.kind.label());
            self.problem(at, message, "this is for `adaptive`");
            return None;
        }
        let source = match (&session.header.value, &session.cookie.value) {
            (Some(name), None) => SessionSource::Header(self.header(name, session.header.place())?),
            (None, Some(name)) => SessionSource::Cookie(self.cookie(name, session.cookie.place())?),
            (Some(_), Some(_)) => {
                self.problems.push(
                    Problem::new(
                        session.cookie.place(),
                        "sessions are told apart by a header or a cookie, not both",
                        "either this",
                    )
                    .context(session.header.place(), "or this"),
                );
                return None;
            }
            (None, None) => {
                let message = "nothing tells sessions apart";
                self.problem(at, message, "give it `header` or `cookie`");
                return None;
            }
        };
        Some(SessionConfig {
            source,
            window: session.window.value,
        })
    }

    pub(super) fn header(&mut self, name: &str, at: Range<usize>) -> Option<HeaderName> {
        let header = HeaderName::from_bytes(name.as_bytes()).ok();
        if header.is_none() {
            self.problem(at, format!("`{name}` is no name of a header"), "here");
        }
        header
    }

    pub(super) fn cookie(&mut self, name: &str, at: Range<usize>) -> Option<String> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || TOKEN_BYTES.contains(&byte);
        if name.is_empty() || !name.bytes().all(fits) {
            self.problem(at, format!("`{name}` is no name of a cookie"), "here");
            return None;
        }
        Some(name.to_owned())
    }
}

/// Reads a body; its type follows from the extension.
pub(super) fn load_body(path: &Path) -> Result<CustomBody, String> {
    let most = CustomBody::BYTES_MAX;
    let content_type = content_type(path)?;
    let body = bounded::regular(path).and_then(|file| bounded::text(file, most))?;
    Ok(CustomBody {
        content_type,
        bytes: body.into(),
    })
}

fn content_type(path: &Path) -> Result<&'static str, String> {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let found = CustomBody::TYPES
        .iter()
        .find(|(known, _)| *known == extension);
    found.map(|(_, content_type)| *content_type).ok_or_else(|| {
        let known: Vec<_> = CustomBody::TYPES.iter().map(|(known, _)| *known).collect();
        format!("its name must end in one of .{}", known.join(", ."))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_text_of_a_known_type_and_not_too_long() {
        let folder = std::env::temp_dir().join(format!("tidegate-body-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let most = vec![b'x'; CustomBody::BYTES_MAX];
        let more = vec![b'x'; CustomBody::BYTES_MAX + 1];
        let cases: [(&str, &[u8], Result<&str, &str>); 6] = [
            ("a.html", "Grüße".as_bytes(), Ok("text/html; charset=utf-8")),
            ("a.json", b"{}", Ok("application/json")),
            ("a.txt", &most, Ok("text/plain; charset=utf-8")),
            ("b.txt", &more, Err("larger than 65536 bytes")),
            ("c.txt", b"\xff", Err("it is no UTF-8")),
            (
                "d",
                b"",
                Err("its name must end in one of .html, .json, .txt"),
            ),
        ];
        for (name, bytes, expected) in cases {
            let path = folder.join(name);
            std::fs::write(&path, bytes).unwrap();
            let body = load_body(&path);
            if let Ok(body) = &body {
                assert_eq!(body.bytes, bytes, "{name}");
            }
            let found = body.map(|body| body.content_type);
            assert_eq!(found, expected.map_err(str::to_owned), "{name}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
