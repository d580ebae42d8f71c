//! The routes of a site: `[[site.route]]`, and what is wrong with them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::HOST;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use tidegate_proxy::{
    HeaderChanges, HedgeConfig, MirrorConfig, PathPattern, RouteAction, RouteConditions,
    RouteConfig, RouteTimeouts, Template, Wanted, is_framing, is_served,
};

use super::answers::Named;
use super::file::{TIMEOUT_MAX, TIMEOUT_MIN, defaults};
use super::problem::{Problem, Problems};
use super::setting::{At, table};
use super::site::load_body;

/// Routes of one site: each request may be compared with all of them.
const ROUTES_MAX: usize = 256;
/// Statuses of an answer, and of a redirect.
const ANSWERS: std::ops::RangeInclusive<u32> = 200..=599;
const REDIRECTS: &[u16] = &[301, 302, 303, 307, 308];
/// Statuses in place of which another node may be asked.
const RETRIED: std::ops::RangeInclusive<u16> = 400..=599;
/// Range of a time-out.
const LEAST: Option<Duration> = Some(TIMEOUT_MIN);
const MOST: Option<Duration> = Some(TIMEOUT_MAX);
/// The least time that a first node has.
const HEDGE_MIN: Duration = Duration::from_millis(1);
/// Methods whose requests may have a second node.
const SAFE: [Method; 3] = [Method::GET, Method::HEAD, Method::OPTIONS];
/// What stands for any value of a field or a name of the query.
const ANY: &str = "*";

table! {
    /// What becomes of some of a site's requests before a node is picked ([routes.md](routes.md)). Of several the first counts
    /// whose conditions (`hosts`, `path` or `regex`, `methods`, `headers`, `query`) all hold. It redirects (`redirect`), or answers
    /// (`status`), or the request goes on to a node, with what it changes in the heads.
    pub(crate) struct RouteFile {
        /// Hosts, exact; empty means all of the site's.
        hosts: Vec<At<String>> = Vec::new();
        /// A path (`/login`), or a path and all below it (`/images/*`). Compared with the path in its normal form: decoded,
        /// without `//` and dot segments.
        path: Option<String> = None;
        /// A regular expression that is found in the path, instead of `path`; `^` and `$` stand for its ends.
        regex: Option<String> = None;
        /// Methods; empty means all.
        methods: Vec<At<String>> = Vec::new();
        /// Fields that the request must have, with these values, like `{ "x-beta" = "1" }`; `"*"` is any value.
        headers: Named<String> = Named::default();
        /// Names that the query must have, with these values, decoded; `"*"` is any value.
        query: Named<String> = Named::default();
        /// Sends the client there: a URL or a path, in which `{host}`, `{path}`, `{rest}` (of the path, below that of `path`) and
        /// `{query}` stand for parts of the request, like `"https://{host}{path}{query}"`.
        redirect: Option<String> = None;
        /// Answers with this status; of a redirect one of 301, 302, 303, 307 and 308. Not set, with `redirect`: 308.
        status: Option<u32> = None;
        /// File with the answer's body: `.html`, `.json` or `.txt`, at most 64 KiB. Relative to this file.
        body: Option<PathBuf> = None;
        /// The path that the node is asked for, like `"/v2{rest}"`; the query stays. Not set: as the client sent it.
        rewrite: Option<String> = None;
        /// Fields of the head that the node gets, like `{ "x-tier" = "gold" }`, in place of the client's; `""` takes one out.
        request_headers: Named<String> = Named::default();
        /// Fields of the head that the client gets; `""` takes one out.
        response_headers: Named<String> = Named::default();
        /// Time-outs of its own, in place of those of `[timeouts]`.
        timeouts: RouteTimeoutsFile = defaults();
        /// In place of the site's `retry_on`; `[]`: no status.
        retry_on: Option<Vec<At<u32>>> = None;
        /// Another site that gets copies of some of its requests, like `{ to = "next", share = 0.01 }`. Not set: none does.
        mirror: Option<MirrorFile> = None;
        /// A second node is asked for slow ones of its safe requests, like `{ after = "30ms" }`. Not set: none is.
        hedge: Option<HedgeFile> = None;
    }
}

table! {
    /// Second nodes for slow requests of a route ([hedging.md](hedging.md)).
    pub(crate) struct HedgeFile {
        /// The first node has had the request for so long without the head of an answer. The 95th percentile of good days is a start.
        after: Duration, in HEDGE_MIN..=TIMEOUT_MAX;
        /// Second nodes per request: with 0.05 at most one for twenty, and ten that were saved up, in each worker.
        most: f64 = 0.05, in 0.0..=1.0;
    }
}

table! {
    /// Copies of a route's requests for another site ([mirroring.md](mirroring.md)).
    pub(crate) struct MirrorFile {
        /// The other site's name.
        to: String;
        /// So many of the route's requests, at random: 0.01 is one of a hundred.
        share: f64, in 0.0..=1.0;
    }
}

table! {
    /// Time-outs of a route's requests. Each that is not set is that of `[timeouts]`.
    pub(crate) struct RouteTimeoutsFile {
        /// A request in all, waits included (504, or cut once the answer has begun).
        total: Option<Duration> = None, in LEAST..=MOST;
        /// The wait for room at a node (503, `queue_timeout`); the site's admission may end it earlier.
        queue: Option<Duration> = None, in LEAST..=MOST;
        /// A connection to a node (504).
        connect: Option<Duration> = None, in LEAST..=MOST;
        /// A node's response head, from the end of the request (504).
        response_head: Option<Duration> = None, in LEAST..=MOST;
        /// A body that stands still, in either direction.
        body_idle: Option<Duration> = None, in LEAST..=MOST;
        /// A request's body in all (408).
        request_body: Option<Duration> = None, in LEAST..=MOST;
        /// A response's body in all (cut).
        response_body: Option<Duration> = None, in LEAST..=MOST;
        /// An upgraded connection that carries nothing in either direction.
        tunnel_idle: Option<Duration> = None, in LEAST..=MOST;
    }
}

impl RouteTimeoutsFile {
    fn timeouts(&self) -> RouteTimeouts {
        RouteTimeouts {
            total: self.total.value,
            queue: self.queue.value,
            connect: self.connect.value,
            response_head: self.response_head.value,
            body_idle: self.body_idle.value,
            request_body: self.request_body.value,
            response_body: self.response_body.value,
            tunnel_idle: self.tunnel_idle.value,
        }
    }
}

/// The routes of a site; bodies are relative to `folder`.
pub(super) fn configs(
    routes: &[At<RouteFile>],
    folder: &Path,
    problems: &mut Problems,
) -> Option<Vec<RouteConfig>> {
    if let Some(more) = routes.get(ROUTES_MAX) {
        let message = format!("{} routes; a site has at most {ROUTES_MAX}", routes.len());
        problems.push(Problem::new(more.place(), message, "too many"));
        return None;
    }
    let read = |route: &At<RouteFile>| Reading { route, problems }.config(folder);
    let routes: Vec<_> = routes.iter().map(read).collect();
    routes.into_iter().collect()
}

/// The statuses of `retry_on`.
pub(super) fn retry_statuses(statuses: &[At<u32>], problems: &mut Problems) -> Option<Vec<u16>> {
    let mut status = |status: &At<u32>| {
        let found = u16::try_from(status.value).ok();
        let found = found.filter(|it| RETRIED.contains(it));
        if found.is_none() {
            let message = format!("no answer of status {} is asked for again", status.value);
            problems.push(Problem::new(
                status.place(),
                message,
                "errors are: 400 to 599, like 503",
            ));
        }
        found
    };
    let statuses: Vec<_> = statuses.iter().map(&mut status).collect();
    statuses.into_iter().collect()
}

/// Which part of a head is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    Request,
    Response,
}

struct Reading<'a, 'p> {
    route: &'a At<RouteFile>,
    problems: &'p mut Problems,
}

impl Reading<'_, '_> {
    fn problem(&mut self, at: Range<usize>, message: impl Into<String>, label: impl Into<String>) {
        self.problems.push(Problem::new(at, message, label));
    }

    fn config(&mut self, folder: &Path) -> Option<RouteConfig> {
        let conditions = self.conditions();
        let action = self.action(folder);
        let request_headers = self.changes(&self.route.request_headers, Head::Request);
        let response_headers = self.changes(&self.route.response_headers, Head::Response);
        let retry_on = match &self.route.retry_on.value {
            None => Some(None),
            Some(statuses) => retry_statuses(statuses, self.problems).map(Some),
        };
        let config = RouteConfig {
            conditions: conditions?,
            action: action?,
            request_headers: request_headers?,
            response_headers: response_headers?,
            timeouts: self.route.timeouts.timeouts(),
            retry_on: retry_on?,
            mirror: self.route.mirror.value.as_ref().map(|it| MirrorConfig {
                to: it.to.value.clone(),
                share: it.share.value,
            }),
            hedge: self.route.hedge.value.as_ref().map(|it| HedgeConfig {
                after: it.after.value,
                most: it.most.value,
            }),
        };
        self.does_something(&config).then_some(config)
    }

    fn does_something(&mut self, config: &RouteConfig) -> bool {
        let forwards = matches!(config.action, RouteAction::Forward { .. });
        let file = &self.route.request_headers;
        if !forwards && !file.0.is_empty() {
            let message = "no node gets these fields: the route answers by itself";
            self.problem(file.place(), message, "here");
            return false;
        }
        if !forwards && !config.timeouts.is_empty() {
            let message = "no node has these requests, so no time is spent on them: the route answers by itself";
            self.problem(self.route.timeouts.place(), message, "here");
            return false;
        }
        if !forwards && config.retry_on.is_some() {
            let message = "no node is asked again: the route answers by itself";
            self.problem(self.route.retry_on.place(), message, "here");
            return false;
        }
        if !forwards && config.mirror.is_some() {
            let message = "no copy is made: the route answers by itself";
            self.problem(self.route.mirror.place(), message, "here");
            return false;
        }
        config.hedge.is_none_or(|hedge| self.hedges(config, hedge))
    }

    /// Whether there can be a second node.
    fn hedges(&mut self, config: &RouteConfig, hedge: HedgeConfig) -> bool {
        let at = self.route.hedge.place();
        if !matches!(config.action, RouteAction::Forward { .. }) {
            let message = "no second node is asked: the route answers by itself";
            self.problem(at, message, "here");
            return false;
        }
        let methods = &config.conditions.methods;
        if !methods.is_empty() && !methods.iter().any(|it| SAFE.contains(it)) {
            let message = "no second node is asked for requests that may change something";
            let problem = Problem::new(at, message, "for GET, HEAD and OPTIONS alone");
            let problem = problem.context(self.route.methods.place(), "the route has others");
            self.problems.push(problem);
            return false;
        }
        let own = [
            ("total", config.timeouts.total),
            ("response_head", config.timeouts.response_head),
        ];
        let over = own
            .into_iter()
            .find(|(_, most)| most.is_some_and(|most| most <= hedge.after));
        if let Some((name, _)) = over {
            let message = format!("no second node is asked: the route's `{name}` is over by then");
            self.problem(at, message, "less than that");
            return false;
        }
        true
    }

    fn conditions(&mut self) -> Option<RouteConditions> {
        let route = self.route;
        let hosts: Vec<_> = route.hosts.iter().map(|host| self.host(host)).collect();
        let path = self.path();
        let methods: Vec<_> = (route.methods.iter())
            .map(|method| self.method(method))
            .collect();
        let headers: Vec<_> = (route.headers.0.iter())
            .map(|(name, value)| Some((self.field(name)?, wanted(value))))
            .collect();
        let query = route.query.0.iter();
        let query = query.map(|(name, value)| (name.value.clone(), wanted(value)));
        Some(RouteConditions {
            hosts: hosts.into_iter().collect::<Option<_>>()?,
            path: path?,
            methods: methods.into_iter().collect::<Option<_>>()?,
            headers: headers.into_iter().collect::<Option<_>>()?,
            query: query.collect(),
        })
    }

    fn host(&mut self, host: &At<String>) -> Option<String> {
        let name = host.value.to_ascii_lowercase();
        let fits = |byte: u8| byte.is_ascii_graphic() && !b"/:*?#@".contains(&byte);
        let is_address = name.starts_with('[') && name.ends_with(']');
        if name.is_empty() || name.ends_with('.') || !(is_address || name.bytes().all(fits)) {
            let label = "an exact host without a port";
            self.problem(host.place(), format!("bad host `{}`", host.value), label);
            return None;
        }
        Some(name)
    }

    fn path(&mut self) -> Option<Option<PathPattern>> {
        let route = self.route;
        let (read, at, text) = match (&route.path.value, &route.regex.value) {
            (None, None) => return Some(None),
            (Some(path), None) => (PathPattern::parse(path), route.path.place(), path),
            (None, Some(regex)) => (PathPattern::regex(regex), route.regex.place(), regex),
            (Some(_), Some(_)) => {
                self.problems.push(
                    Problem::new(
                        route.regex.place(),
                        "a route has one pattern",
                        "either this",
                    )
                    .context(route.path.place(), "or this"),
                );
                return None;
            }
        };
        match read {
            Ok(pattern) => Some(Some(pattern)),
            Err(error) => {
                // What the expression's own error draws in several lines has no place here.
                let error = error.to_string();
                let last = error.lines().last().unwrap_or_default();
                let why = last.strip_prefix("error: ").unwrap_or(last).to_owned();
                self.problem(at, format!("bad pattern `{text}`"), why);
                None
            }
        }
    }

    fn method(&mut self, method: &At<String>) -> Option<Method> {
        let parsed = Method::from_bytes(method.value.as_bytes()).ok();
        let is_upper = !method.value.bytes().any(|byte| byte.is_ascii_lowercase());
        let parsed = parsed.filter(|method| is_upper && is_served(method));
        if parsed.is_none() {
            let message = format!("`{}` is no method that is served", method.value);
            self.problem(method.place(), message, "like `GET` or `POST`");
        }
        parsed
    }

    fn field(&mut self, name: &At<String>) -> Option<HeaderName> {
        let field = HeaderName::from_bytes(name.value.as_bytes()).ok();
        if field.is_none() {
            let message = format!("`{}` is no name of a field", name.value);
            self.problem(name.place(), message, "here");
        }
        field
    }

    fn action(&mut self, folder: &Path) -> Option<RouteAction> {
        let route = self.route;
        let answers = route.status.is_some() || route.body.is_some() || route.redirect.is_some();
        if answers && route.rewrite.is_some() {
            let message = "no node is asked for this path: the route answers by itself";
            self.problem(route.rewrite.place(), message, "here");
            return None;
        }
        match (
            &route.redirect.value,
            &route.status.value,
            &route.body.value,
        ) {
            (Some(to), _, None) => self.redirect(to),
            (Some(_), _, Some(_)) => {
                let message = "a redirect has no body";
                self.problem(route.body.place(), message, "here");
                None
            }
            (None, Some(status), body) => self.answer(*status, body.as_deref(), folder),
            (None, None, Some(_)) => {
                let message = "a body without a `status`";
                self.problem(
                    route.body.place(),
                    message,
                    "say which, like `status = 503`",
                );
                None
            }
            (None, None, None) => self.forward(),
        }
    }

    fn redirect(&mut self, to: &str) -> Option<RouteAction> {
        let route = self.route;
        let template = self.template(to, route.redirect.place())?;
        let host = ["http://", "https://"]
            .iter()
            .find_map(|it| to.strip_prefix(it));
        let is_host = |host: &str| {
            host.starts_with("{host}")
                || host.starts_with(|it: char| it.is_ascii_alphanumeric() || it == '[')
        };
        let is_url = host.is_some_and(is_host);
        if !is_url && !template.is_path() {
            let label = "it begins with `https://` or `http://` and a host or `{host}`, with `/` or with `{path}`";
            self.problem(
                route.redirect.place(),
                format!("bad redirect `{to}`"),
                label,
            );
            return None;
        }
        let status = route.status.value.unwrap_or(308);
        let known = u16::try_from(status)
            .ok()
            .filter(|it| REDIRECTS.contains(it));
        let Some(status) = known.and_then(|status| StatusCode::from_u16(status).ok()) else {
            let label = "a redirect has 301, 302, 303, 307 or 308";
            self.problem(route.status.place(), format!("status {status}"), label);
            return None;
        };
        Some(RouteAction::Redirect {
            status,
            to: template,
        })
    }

    fn answer(&mut self, status: u32, body: Option<&Path>, folder: &Path) -> Option<RouteAction> {
        let route = self.route;
        let known = u16::try_from(status).ok();
        let known = known.filter(|_| ANSWERS.contains(&status));
        let Some(status) = known.and_then(|status| StatusCode::from_u16(status).ok()) else {
            let label = "a final status, 200 to 599";
            self.problem(route.status.place(), format!("status {status}"), label);
            return None;
        };
        if REDIRECTS.contains(&status.as_u16()) {
            let message = format!("status {} without `redirect`", status.as_u16());
            self.problem(route.status.place(), message, "where to?");
            return None;
        }
        let is_empty = [
            StatusCode::NO_CONTENT,
            StatusCode::RESET_CONTENT,
            StatusCode::NOT_MODIFIED,
        ];
        let body = match body {
            None => None,
            Some(_) if is_empty.contains(&status) => {
                let message = format!("an answer with status {} has no body", status.as_u16());
                self.problem(route.body.place(), message, "here");
                return None;
            }
            Some(path) => match load_body(&folder.join(path)) {
                Ok(body) => Some(body),
                Err(why) => {
                    let message = format!("cannot use this body: {why}");
                    self.problem(route.body.place(), message, "here");
                    return None;
                }
            },
        };
        Some(RouteAction::Answer { status, body })
    }

    fn forward(&mut self) -> Option<RouteAction> {
        let route = self.route;
        let Some(rewrite) = &route.rewrite.value else {
            return Some(RouteAction::Forward { rewrite: None });
        };
        let template = self.template(rewrite, route.rewrite.place())?;
        if !template.is_path() || template.has_query() || rewrite.contains(['?', '#']) {
            let label = "a path, with `{path}` or `{rest}`; the query stays as it is";
            let message = format!("bad path `{rewrite}`");
            self.problem(route.rewrite.place(), message, label);
            return None;
        }
        Some(RouteAction::Forward {
            rewrite: Some(template),
        })
    }

    fn template(&mut self, text: &str, at: Range<usize>) -> Option<Template> {
        match text.parse() {
            Ok(template) => Some(template),
            Err(error) => {
                let error: tidegate_proxy::TemplateError = error;
                self.problem(at, format!("bad text `{text}`"), error.to_string());
                None
            }
        }
    }

    fn changes(&mut self, fields: &Named<String>, head: Head) -> Option<HeaderChanges> {
        let mut changes = HeaderChanges::default();
        let mut is_good = true;
        for (name, value) in &fields.0 {
            let Some(field) = self.field(name) else {
                is_good = false;
                continue;
            };
            // A request has one host, and an answer none.
            let refused = is_framing(&field)
                || (field == HOST && (value.is_empty() || head == Head::Response));
            if refused {
                let message = format!("no route changes `{field}`");
                self.problem(
                    name.place(),
                    message,
                    "it belongs to the connection or the message",
                );
                is_good = false;
                continue;
            }
            match HeaderValue::from_str(value) {
                Ok(_) if value.is_empty() => changes.remove.push(field),
                Ok(value) => changes.set.push((field, value)),
                Err(_) => {
                    let message = "a field's value is visible ASCII and blanks";
                    self.problem(value.place(), message, "here");
                    is_good = false;
                }
            }
        }
        is_good.then_some(changes)
    }
}

/// A condition's value.
fn wanted(value: &At<String>) -> Wanted {
    match value.as_str() {
        ANY => Wanted::Any,
        value => Wanted::Value(value.to_owned()),
    }
}
