//! The exporter at work: it makes batches, and hands them over one after the other.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::body::Bytes;
use prost::Message;
use tidegate_core::prng::Prng;
use tidegate_discover::Session;
use tidegate_proxy::TracedRequest;
use tidegate_remote::clock;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::attempt::{Attempt, send};
use super::message::{
    ExportTraceServiceRequest, InstrumentationScope, Resource, ResourceSpans, ScopeSpans, attribute,
};
use super::spans::{count, spans};
use super::{Batches, ExportCounts, ExportOutcome};
use crate::config::OtlpConfig;
use crate::output::Output;

/// Requests of a batch at most, but for those that came together with the last of them.
const REQUESTS_MAX: usize = 512;
/// A batch waits so long for more.
const INTERVAL: Duration = Duration::from_secs(1);
/// Before a batch is sent again for the first time; then twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A batch that was not taken for so long is dropped.
const GIVES_UP_AFTER: Duration = Duration::from_secs(60);
/// The schema that the attributes' names are of.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.27.0";

/// What it works on.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) batches: Batches,
    pub(super) settings: watch::Receiver<Option<Arc<OtlpConfig>>>,
    pub(super) stopping: watch::Receiver<bool>,
    pub(super) counts: Arc<ExportCounts>,
    pub(super) output: Output,
}

/// Exports until the workers have ended, and then what is left.
///
/// # Errors
/// There is no runtime.
pub(super) fn run(work: Work) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work.run());
    Ok(())
}

/// Where batches go.
struct Target {
    config: Arc<OtlpConfig>,
    session: Session,
}

impl Target {
    fn new(config: Arc<OtlpConfig>) -> Self {
        Self {
            session: Session::new(config.server.clone(), config.ca_file.clone()),
            config,
        }
    }
}

impl Work {
    async fn run(mut self) {
        let mut target: Option<Target> = None;
        let mut health = Health {
            failing: false,
            rejecting: false,
            output: self.output,
        };
        let mut prng = Prng::new(clock::now().nanos());
        while let Some(requests) = self.collect().await {
            self.export(&requests, &mut target, &mut health, &mut prng)
                .await;
        }
    }

    /// The next batch; none once there are no workers any more.
    async fn collect(&mut self) -> Option<Vec<TracedRequest>> {
        let mut all = self.batches.recv().await?;
        let more = async {
            while all.len() < REQUESTS_MAX {
                match self.batches.recv().await {
                    Some(more) => all.extend(more),
                    None => return,
                }
            }
        };
        // A product timer: what has come by then goes.
        timeout(INTERVAL, more).await.unwrap_or_default();
        Some(all)
    }

    /// Hands a batch over, or drops it in the end.
    async fn export(
        &mut self,
        requests: &[TracedRequest],
        target: &mut Option<Target>,
        health: &mut Health,
        prng: &mut Prng,
    ) {
        let began = clock::now();
        let mut pause = FIRST_PAUSE;
        loop {
            self.follow(target);
            let Some(Target { config, session }) = target else {
                return;
            };
            let attempt = send(session, config, encoded(config, requests)).await;
            let (why, wait) = match attempt {
                Attempt::Taken(rejected) => {
                    self.note_taken(requests, rejected.as_ref());
                    health.taken(config, rejected);
                    return;
                }
                Attempt::Refused(why) => {
                    self.counts.note(ExportOutcome::Refused);
                    let dropped = &self.counts.refused;
                    dropped.fetch_add(requests.len() as u64, Ordering::Relaxed);
                    health.fail(config, &why);
                    return;
                }
                Attempt::Failed(why, wait) => (why, wait),
            };
            self.counts.note(ExportOutcome::Failed);
            health.fail(config, &why);
            // Between a half and all of it, so that front-ends do not ask together.
            let wait = wait.unwrap_or_else(|| pause.mul_f64(0.5 + prng.unit() / 2.0));
            pause = (pause * 2).min(PAUSE_MAX);
            let is_late = clock::now().since(began) + wait > GIVES_UP_AFTER;
            if is_late || !self.waits(wait).await {
                let dropped = &self.counts.unavailable;
                dropped.fetch_add(requests.len() as u64, Ordering::Relaxed);
                return;
            }
        }
    }

    /// The newest configuration, or the last one there was.
    fn follow(&mut self, target: &mut Option<Target>) {
        let newest = self.settings.borrow_and_update().clone();
        if let Some(config) = newest
            && !(target.as_ref()).is_some_and(|it| Arc::ptr_eq(&it.config, &config))
        {
            *target = Some(Target::new(config));
        }
    }

    /// Waits before the next try, or until there is another collector. Whether there may be another try: not at the end.
    async fn waits(&mut self, wait: Duration) -> bool {
        tokio::select! {
            biased;
            _ = self.stopping.wait_for(|it| *it) => false,
            () = sleep(wait) => true,
            changed = self.settings.changed() => changed.is_ok(),
        }
    }

    fn note_taken(&self, requests: &[TracedRequest], rejected: Option<&(u64, String)>) {
        let all: u64 = requests.iter().map(count).sum();
        let rejected = rejected.map_or(0, |(spans, _)| (*spans).min(all));
        self.counts.note(match rejected {
            0 => ExportOutcome::Taken,
            _ => ExportOutcome::Partial,
        });
        let order = Ordering::Relaxed;
        self.counts.rejected.fetch_add(rejected, order);
        self.counts.exported.fetch_add(all - rejected, order);
    }
}

/// What was said of the collector.
struct Health {
    failing: bool,
    rejecting: bool,
    output: Output,
}

impl Health {
    fn taken(&mut self, config: &OtlpConfig, rejected: Option<(u64, String)>) {
        if std::mem::take(&mut self.failing) {
            let text = format!("traces: {} takes them again", config.server);
            self.output.event("traces_exported_again", &text);
        }
        let was_rejecting = std::mem::replace(&mut self.rejecting, rejected.is_some());
        if let Some((spans, words)) = rejected.filter(|_| !was_rejecting) {
            let server = &config.server;
            let text = format!("traces: {server} rejects some ({spans} spans): {words}");
            self.output.event("traces_rejected", &text);
        }
    }

    fn fail(&mut self, config: &OtlpConfig, why: &str) {
        if !std::mem::replace(&mut self.failing, true) {
            let server = &config.server;
            let text = format!(
                "traces: {server} does not take them, and those that are dropped are counted: {why}"
            );
            self.output.event("traces_lost", &text);
        }
    }
}

/// A batch as it is sent.
fn encoded(config: &OtlpConfig, requests: &[TracedRequest]) -> Bytes {
    let resource = Resource {
        attributes: vec![
            attribute("service.name", config.service.as_str()),
            attribute("service.instance.id", config.instance.as_str()),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
        ],
    };
    let scope = InstrumentationScope {
        name: "tidegate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope),
                spans: requests.iter().flat_map(spans).collect(),
            }],
            schema_url: SCHEMA.to_owned(),
        }],
    };
    request.encode_to_vec().into()
}
