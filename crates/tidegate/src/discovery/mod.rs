//! Sources of nodes in a running front-end: each is asked by a task of its own, and what it announces becomes nodes of its
//! site.
//!
//! ```text
//! [[discover]] ──> WatchedSource ── nodes ──> LiveCluster ──> driver
//!                       │ asked, events
//!                       └──> SourceBook ──> log, metrics, /api/status
//! ```
//!
//! All tasks share one thread, which has no privileges and which nothing waits for: a source that hangs holds up itself.
//! The sources are asked once before the front-end takes its first client, and it does not wait long for their answers.

pub(crate) mod book;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::topology::discovered::{Announced, DiscoveryEvent};
use tidegate_discover::{Asked, Sink, SourceConfig, WatchedSource};
use tidegate_remote::clock;
use tidegate_remote::privilege;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::config::{FrontEnd, NodeSource};
use crate::output::Output;
use crate::reload::{LiveCluster, OtherNodes};
use book::SourceBook;

/// Longest wait for first answers before the front-end starts without them.
const FIRST_ANSWERS: Duration = Duration::from_secs(2);
/// Nodes of a source that cannot be used, of which each is said.
const REFUSED_MAX: usize = 5;
/// Threads that look at files: each source has one look under way at most.
const LOOKS_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Discovery {
    book: Arc<SourceBook>,
    output: Output,
    thread: Option<SourceThread>,
    /// Sources that were asked once.
    begun: BTreeMap<String, BegunSource>,
    tasks: BTreeMap<String, Task>,
}

#[derive(Debug)]
struct BegunSource {
    config: SourceConfig,
    source: WatchedSource,
}

#[derive(Debug)]
struct Task {
    config: SourceConfig,
    abort: AbortHandle,
}

/// The thread ends with this.
#[derive(Debug)]
struct SourceThread {
    runtime: Handle,
    _ended: oneshot::Sender<Infallible>,
}

impl SourceThread {
    fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(LOOKS_MAX)
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (ended, end) = oneshot::channel();
        let thread = std::thread::Builder::new().name("discovery".into());
        thread.spawn(move || {
            // What it needs none for, it does as well with those that it has.
            privilege::keep(privilege::NONE).ok();
            // Nothing is ever sent: it ends as its sender does.
            runtime.block_on(end).ok();
            // A look at a disk that does not answer is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self {
            runtime: handle,
            _ended: ended,
        })
    }
}

impl Discovery {
    /// Without sources.
    pub(crate) fn new(output: Output) -> Self {
        Self {
            book: Arc::default(),
            output,
            thread: None,
            begun: BTreeMap::new(),
            tasks: BTreeMap::new(),
        }
    }

    /// What is known of the sources.
    pub(crate) fn book(&self) -> Arc<SourceBook> {
        Arc::clone(&self.book)
    }

    /// Asks the sources for the first time; the nodes of those that have answered in time.
    pub(crate) async fn begin(&mut self, sources: &[NodeSource]) -> std::io::Result<OtherNodes> {
        let mut others = OtherNodes::default();
        if sources.is_empty() {
            return Ok(others);
        }
        self.book.set(sources);
        let runtime = self.runtime()?;
        let asking: Vec<_> = sources
            .iter()
            .map(|source| {
                let config = source.config.clone();
                runtime.spawn(ask_first(BegunSource {
                    source: watched(&config),
                    config,
                }))
            })
            .collect();
        for asking in asking {
            // One that has panicked begins anew.
            let Ok((begun, asked)) = asking.await else {
                continue;
            };
            let name = begun.config.name.clone();
            if let Some(asked) = asked {
                self.book.asked(&name, &asked, self.output);
                others.announced.insert(name.clone(), begun.source.nodes());
            }
            self.begun.insert(name, begun);
        }
        Ok(others)
    }

    /// Follows the sources as the configuration has them, for ever.
    pub(crate) async fn run(mut self, cluster: Arc<LiveCluster>) {
        let mut changes = cluster.sources();
        loop {
            let sources = changes.borrow_and_update().clone();
            if let Err(error) = self.follow(&sources, &cluster) {
                let text = format!("sources of nodes cannot be asked: {error}");
                self.output.event("discovery_failed", &text);
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn follow(
        &mut self,
        sources: &[NodeSource],
        cluster: &Arc<LiveCluster>,
    ) -> std::io::Result<()> {
        self.book.set(sources);
        let is_same = |name: &String, task: &mut Task| {
            let mut wanted = sources.iter().map(|it| &it.config);
            let goes_on = wanted.any(|it| it.name == *name && *it == task.config);
            if !goes_on {
                task.abort.abort();
            }
            goes_on
        };
        self.tasks.retain(is_same);
        for NodeSource { config, .. } in sources {
            if self.tasks.contains_key(&config.name) {
                continue;
            }
            let begun = self.begun.remove(&config.name);
            let begun = begun.filter(|it| it.config == *config);
            let mut source = begun.map_or_else(|| watched(config), |it| it.source);
            let sink = ClusterSink {
                cluster: Arc::clone(cluster),
                book: self.book(),
                output: self.output,
            };
            let asking = self
                .runtime()?
                .spawn(async move { source.run(&sink).await });
            let task = Task {
                config: config.clone(),
                abort: asking.abort_handle(),
            };
            self.tasks.insert(config.name.clone(), task);
        }
        self.begun.clear();
        Ok(())
    }

    fn runtime(&mut self) -> std::io::Result<Handle> {
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None => SourceThread::start()?,
        };
        Ok(self.thread.insert(thread).runtime.clone())
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        for task in self.tasks.values() {
            task.abort.abort();
        }
    }
}

fn watched(config: &SourceConfig) -> WatchedSource {
    // The standard library keys its hashers from the system's randomness.
    let seed = RandomState::new().hash_one(&config.name);
    WatchedSource::new(config.clone(), seed, clock::now)
}

/// What came of the first question; none: not yet an answer.
async fn ask_first(mut begun: BegunSource) -> (BegunSource, Option<Asked>) {
    let asked = tokio::time::timeout(FIRST_ANSWERS, begun.source.ask()).await;
    (begun, asked.ok())
}

/// Where nodes and events go.
struct ClusterSink {
    cluster: Arc<LiveCluster>,
    book: Arc<SourceBook>,
    output: Output,
}

impl Sink for ClusterSink {
    fn asked(&self, source: &str, asked: &Asked) {
        self.book.asked(source, asked, self.output);
    }

    async fn announce(&self, source: &str, nodes: Vec<Announced>) -> Result<(), String> {
        let announced = self.cluster.announce(source.to_owned(), nodes).await;
        let announced = announced.map_err(|error| error.to_string());
        self.book.announced(source, &announced, self.output);
        announced
    }
}

/// What speaks against the sources of a configuration now, in sentences: a file that is not there, a name that does not
/// resolve. It may well be there later.
pub(crate) fn notes(front_end: &FrontEnd) -> Vec<String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        return Vec::new();
    };
    let notes = runtime.block_on(async {
        let sources = front_end.sources.iter();
        let asking: Vec<_> = sources
            .map(|source| {
                let source = source.clone();
                tokio::spawn(async move {
                    let config = source.config.clone();
                    let asked = WatchedSource::new(config, 0, clock::now).ask().await;
                    objections(&source, &asked)
                })
            })
            .collect();
        let mut notes = Vec::new();
        for asking in asking {
            notes.extend(asking.await.unwrap_or_default());
        }
        notes
    });
    // A look at a disk that does not answer is not waited for.
    runtime.shutdown_background();
    notes
}

/// What a source's first answer has against it.
fn objections(source: &NodeSource, asked: &Asked) -> Vec<String> {
    let name = book::called(&source.config.name);
    let what = &source.config.kind;
    let count = match &asked.answer {
        Err(why) => {
            let why = format!("{name} ({what}) gives no nodes now: {why}; they come once it does");
            return vec![why];
        }
        Ok(count) => *count,
    };
    let refused = asked.events.iter();
    let refused = refused.filter(|event| matches!(event, DiscoveryEvent::Refused(..)));
    let refused = refused.map(|event| format!("{name} ({what}): {}", book::describe(event).1));
    let mut notes: Vec<_> = refused.take(REFUSED_MAX).collect();
    if asked.refused > notes.len() {
        let more = asked.refused - notes.len();
        notes.push(format!(
            "{name} ({what}): and {more} more that cannot be used"
        ));
    }
    notes.extend(book::many(&source.config, count));
    notes
}
