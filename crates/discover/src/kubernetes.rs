//! The endpoints of a service in Kubernetes: its EndpointSlices, by a list and a watch.
//!
//! ```text
//! list ──> slices, version ──> watch from there ──> each event changes a slice
//!   ^                            │ ends after a minute: again from the last version
//!   └── version out of date, an error, a line that is not understood
//! ```
//!
//! A question is answered after [`WAIT`] at the latest, with what is known by then; a change is answered at once. The
//! watch is closed by the server after [`WATCH`]; one that goes on longer hangs, which is a failure. Objects, lists and
//! their number are bounded. Token and CA are read for each connection ([`crate::http`]), since Kubernetes replaces both.

mod slices;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Sleep, sleep, timeout};

use crate::http::{Lines, Question, Reply, ServerUrl, TokenFile};
use crate::source::{Answer, SourceError};
pub use slices::PortChoice;
use slices::{Slice, SliceList, SliceMetadata};

/// Longest time without an answer.
const WAIT: Duration = Duration::from_secs(5);
/// Shortest time between two answers: events that come together are one change.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a watch lasts, and how much longer it may take to end.
const WATCH: Duration = Duration::from_secs(60);
const WATCH_LATE: Duration = Duration::from_secs(10);
/// A watch that ends sooner, and has said nothing, is a failure: else it would be opened ten times a second.
const YOUNG: Duration = Duration::from_secs(1);
/// Events that come within this time are taken together, so many at most.
const TOGETHER: Duration = Duration::from_millis(20);
const EVENTS_MAX: usize = 1000;
/// Largest object in a watch, bytes: a slice has at most 1000 endpoints of about 500 bytes.
const OBJECT_BYTES_MAX: usize = 2 << 20;
/// Largest page of a list, bytes, and most pages.
const PAGE_BYTES_MAX: usize = 8 << 20;
const PAGES_MAX: usize = 40;
/// Slices in a page.
const PAGE_SLICES: usize = 50;
/// Most slices.
const SLICES_MAX: usize = PAGES_MAX * PAGE_SLICES;

/// A service in Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// The API server; none: the one that a pod's environment names.
    pub server: Option<ServerUrl>,
    /// The service account's token.
    pub token_file: PathBuf,
    /// The API server's CA.
    pub ca_file: PathBuf,
    /// Where the service is.
    pub namespace: String,
    /// Its name.
    pub service: String,
    /// Its port.
    pub port: PortChoice,
    /// Time for a list, and until a watch begins.
    pub timeout: Duration,
}

impl fmt::Display for KubernetesConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "kubernetes {}/{}", self.namespace, self.service)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct KubernetesSource {
    config: KubernetesConfig,
    known: Option<Known>,
}

/// What the last list and the events since then say.
#[derive(Debug)]
struct Known {
    slices: BTreeMap<String, Slice>,
    version: String,
    watch: Option<Watching>,
    /// A watch from this list, or from an event after it, has begun as it should.
    is_proven: bool,
}

/// A watch that is open.
#[derive(Debug)]
struct Watching {
    lines: Lines,
    /// Over: it has lasted for a while, so it may end.
    young: Pin<Box<Sleep>>,
    /// Over: it hangs.
    late: Pin<Box<Sleep>>,
}

/// A line of a watch. Its object is read when its type is known.
#[derive(Debug, Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Why a watch ends.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    code: Option<u16>,
    message: String,
}

/// A bookmark, and what else is wanted for its version alone.
#[derive(Debug, Deserialize)]
struct Versioned {
    metadata: SliceMetadata,
}

impl KubernetesSource {
    pub(crate) fn new(config: KubernetesConfig) -> Self {
        Self {
            config,
            known: None,
        }
    }

    pub(crate) async fn ask(&mut self) -> Result<Answer, SourceError> {
        let followed = match &mut self.known {
            None => Err(SourceError::Expired),
            Some(known) => match known.follow(&self.config).await {
                // It is as old as the list: the next list would be no better.
                Err(SourceError::Expired) if !known.is_proven => Err(SourceError::malformed(
                    "a version that was just given is out of date",
                )),
                followed => followed,
            },
        };
        if let Err(error) = followed {
            // What is known may be wrong by now: everything is asked for again.
            self.known = None;
            if !matches!(error, SourceError::Expired) {
                return Err(error);
            }
            self.known = Some(list(&self.config).await?);
        }
        let slices = self.known.iter().flat_map(|known| known.slices.values());
        let found = slices::nodes(slices, &self.config.port)?;
        if found.nodes.is_empty() {
            let config = &self.config;
            return Err(SourceError::NoneReady(format!(
                "{config}: no endpoint is ready"
            )));
        }
        Ok(Answer {
            nodes: found.nodes,
            ending: found.ending,
            again: PAUSE,
        })
    }
}

impl Known {
    /// Waits for a change, but not for long.
    async fn follow(&mut self, config: &KubernetesConfig) -> Result<(), SourceError> {
        let mut watch = match self.watch.take() {
            Some(watch) => watch,
            None => watch(config, &self.version).await?,
        };
        // If this is dropped here, the watch begins anew from the version that is known.
        let Some(mut line) = watch.next(WAIT).await? else {
            self.watch = Some(watch);
            return Ok(());
        };
        for _ in 0..EVENTS_MAX {
            let Some(text) = line else {
                // The next question opens another one.
                return match self.is_proven || watch.young.is_elapsed() {
                    true => Ok(()),
                    false => Err(SourceError::unreachable("the watch ended at once")),
                };
            };
            self.take(&text)?;
            line = match watch.next(TOGETHER).await? {
                Some(line) => line,
                None => break,
            };
        }
        self.watch = Some(watch);
        Ok(())
    }

    /// Takes an event.
    fn take(&mut self, line: &[u8]) -> Result<(), SourceError> {
        let event: Event<'_> = parse(line)?;
        let object = event.object.get().as_bytes();
        let metadata = match event.kind {
            "ADDED" | "MODIFIED" => {
                let slice: Slice = parse(object)?;
                let metadata = slice.metadata.clone();
                self.insert(slice)?;
                metadata
            }
            "DELETED" => {
                let gone: Versioned = parse(object)?;
                self.slices.remove(&gone.metadata.name);
                gone.metadata
            }
            "BOOKMARK" => parse::<Versioned>(object)?.metadata,
            "ERROR" => {
                let status: Status = parse(object)?;
                return Err(match status.code {
                    Some(410) => SourceError::Expired,
                    Some(_) | None => SourceError::unreachable(status.message),
                });
            }
            other => return Err(SourceError::malformed(format!("an event {other}"))),
        };
        if metadata.resource_version.is_empty() {
            return Err(SourceError::malformed("an object without a version"));
        }
        self.version = metadata.resource_version;
        self.is_proven = true;
        Ok(())
    }

    fn insert(&mut self, slice: Slice) -> Result<(), SourceError> {
        self.slices.insert(slice.metadata.name.clone(), slice);
        match self.slices.len() > SLICES_MAX {
            true => Err(SourceError::malformed(format!(
                "more than {SLICES_MAX} slices"
            ))),
            false => Ok(()),
        }
    }
}

impl Watching {
    /// What comes within this time: a line, or none at the end; nothing if nothing comes.
    async fn next(&mut self, wait: Duration) -> Result<Option<Option<Vec<u8>>>, SourceError> {
        let wait = sleep(wait);
        tokio::pin!(wait);
        loop {
            tokio::select! {
                line = self.lines.next() => return line.map(Some),
                () = &mut self.late => return Err(SourceError::TimedOut(WATCH + WATCH_LATE)),
                () = &mut self.young, if !self.young.is_elapsed() => {}
                () = &mut wait => return Ok(None),
            }
        }
    }
}

/// All slices, page by page.
async fn list(config: &KubernetesConfig) -> Result<Known, SourceError> {
    let limit = config.timeout;
    let listed = timeout(limit, pages(config)).await;
    listed.map_err(|_| SourceError::TimedOut(limit))?
}

async fn pages(config: &KubernetesConfig) -> Result<Known, SourceError> {
    let mut known = Known {
        slices: BTreeMap::new(),
        version: String::new(),
        watch: None,
        is_proven: false,
    };
    let mut query = format!("limit={PAGE_SLICES}");
    for _ in 0..PAGES_MAX {
        let reply = ask(config, &query).await?;
        let page: SliceList = reply.json(PAGE_BYTES_MAX, config.timeout).await?;
        for slice in page.items.unwrap_or_default() {
            known.insert(slice)?;
        }
        known.version = page.metadata.resource_version;
        match page.metadata.rest.filter(|rest| !rest.is_empty()) {
            None => return Ok(known),
            Some(rest) => query = format!("limit={PAGE_SLICES}&continue={}", escaped(&rest)),
        }
    }
    Err(SourceError::malformed(format!(
        "more than {PAGES_MAX} pages"
    )))
}

async fn watch(config: &KubernetesConfig, version: &str) -> Result<Watching, SourceError> {
    let query = format!(
        "watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
        WATCH.as_secs(),
        escaped(version)
    );
    let reply = ask(config, &query).await?;
    Ok(Watching {
        lines: reply.lines(OBJECT_BYTES_MAX),
        young: Box::pin(sleep(YOUNG)),
        late: Box::pin(sleep(WATCH + WATCH_LATE)),
    })
}

async fn ask(config: &KubernetesConfig, query: &str) -> Result<Reply, SourceError> {
    let from_environment;
    let server = match &config.server {
        Some(server) => server,
        None => {
            from_environment = in_cluster()?;
            &from_environment
        }
    };
    let question = Question {
        server,
        ca_file: Some(&config.ca_file),
        token: Some(TokenFile {
            path: &config.token_file,
            field: "authorization",
            scheme: "Bearer ",
        }),
        target: format!(
            "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector={}&{query}",
            escaped(&config.namespace),
            escaped(&format!("kubernetes.io/service-name={}", config.service)),
        ),
        timeout: config.timeout,
    };
    question.ask().await
}

/// The API server that a pod's environment names.
fn in_cluster() -> Result<ServerUrl, SourceError> {
    let variable = |name: &str| std::env::var(name).ok();
    let host = variable("KUBERNETES_SERVICE_HOST");
    let port = variable("KUBERNETES_SERVICE_PORT_HTTPS").or(variable("KUBERNETES_SERVICE_PORT"));
    match (host, port.and_then(|port| port.parse().ok())) {
        (Some(host), Some(port)) => ServerUrl::tls(&host, port).map_err(SourceError::unreachable),
        (_, _) => Err(SourceError::Unreachable(
            "this is no pod (KUBERNETES_SERVICE_HOST is not set): `server` says where the API is"
                .into(),
        )),
    }
}

fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, SourceError> {
    serde_json::from_slice(text).map_err(SourceError::malformed)
}

fn escaped(text: &str) -> impl fmt::Display {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}
