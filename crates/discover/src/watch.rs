//! One source, asked for as long as the front-end runs.

use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_core::topology::discovered::{Announced, Discovered, DiscoveryEvent, DiscoveryLimits};

use crate::backoff::Backoff;
use crate::name;
use crate::source::{Found, SourceError};
use crate::sources::{Source, SourceKind};

/// First and longest time after which a source that fails is asked again.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// When a source is asked again of which no node is ready.
const NONE_READY: Duration = Duration::from_millis(100);

/// A source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// Its name in events.
    pub name: String,
    /// What it is.
    pub kind: SourceKind,
    /// How its nodes are called.
    pub naming: Naming,
    /// Its nodes' weights are multiplied by this.
    pub weight: f32,
    /// How far it is believed.
    pub limits: DiscoveryLimits,
}

/// How nodes are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Those without a name of their own: by this and their address.
    Prefix(String),
    /// This is one node, at one of the addresses of the answer: the one that it has, as long as it is among them.
    Single(String),
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// How many nodes were in the answer, or why there was none.
    pub answer: Result<usize, String>,
    /// How many of these cannot be used.
    pub refused: usize,
    /// What has changed by it.
    pub events: Vec<DiscoveryEvent>,
}

/// Where nodes and events go.
pub trait Sink: Send + Sync {
    /// The source of this name was asked.
    fn asked(&self, source: &str, asked: &Asked);

    /// These are the nodes of this source now. An error leaves the front-end as it was, and the nodes come again with
    /// the next answer.
    fn announce(
        &self,
        source: &str,
        nodes: Vec<Announced>,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// A source, and what is known of it.
#[derive(Debug)]
pub struct WatchedSource {
    config: SourceConfig,
    source: Source,
    discovered: Discovered,
    backoff: Backoff,
    /// How long to wait before the next question.
    again: Duration,
    clock: fn() -> Timestamp,
}

impl WatchedSource {
    /// A source that was not asked yet. The seed is that of its jitter.
    pub fn new(config: SourceConfig, seed: u64, clock: fn() -> Timestamp) -> Self {
        Self {
            source: Source::new(config.kind.clone()),
            discovered: Discovered::new(config.limits),
            backoff: Backoff::new(RETRY_FIRST, retry_max(&config.kind), seed),
            again: Duration::ZERO,
            config,
            clock,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Its nodes as they are now.
    pub fn nodes(&self) -> Vec<Announced> {
        self.discovered.nodes().cloned().collect()
    }

    /// Asks it once. If this is dropped before it ends, nothing has changed.
    pub async fn ask(&mut self) -> Asked {
        let answer = self.source.ask().await;
        self.again = match &answer {
            Ok(answer) => {
                self.backoff.answered();
                answer.again
            }
            // It is there, and waits for a change by itself.
            Err(SourceError::NoneReady(_)) => {
                self.backoff.answered();
                NONE_READY
            }
            Err(_) => self.backoff.failed(),
        };
        let answer = answer.map_err(|error| error.to_string());
        let count = answer.as_ref().map(|answer| answer.nodes.len());
        let count = count.map_err(Clone::clone);
        let now = (self.clock)();
        let mut events = Vec::new();
        let nodes = answer.map(|answer| {
            events = self.discovered.dismiss(&answer.ending);
            self.named(answer.nodes)
        });
        events.extend(self.discovered.observe(now, nodes));
        Asked {
            answer: match self.discovered.failure() {
                Some(why) => Err(why.into()),
                None => count,
            },
            refused: self.discovered.refused(),
            events,
        }
    }

    /// Asks it again and again, for ever. A question that was asked before counts as the first one; what came of it is known
    /// to the sink.
    pub async fn run<S: Sink>(&mut self, sink: &S) {
        let mut announced = self.nodes();
        loop {
            tokio::time::sleep(self.again).await;
            let asked = self.ask().await;
            sink.asked(self.name(), &asked);
            let nodes = self.nodes();
            if nodes != announced && sink.announce(self.name(), nodes.clone()).await.is_ok() {
                announced = nodes;
            }
        }
    }

    fn named(&self, found: Vec<Found>) -> Vec<Announced> {
        let weight = |found: &Found| found.weight.unwrap_or(1.0) * self.config.weight;
        match &self.config.naming {
            Naming::Prefix(prefix) => {
                let node = |found: Found| Announced {
                    weight: weight(&found),
                    name: found
                        .name
                        .unwrap_or_else(|| name::of(prefix, found.address)),
                    address: found.address,
                };
                found.into_iter().map(node).collect()
            }
            Naming::Single(name) => {
                let now = self.discovered.nodes().next().map(|node| node.address);
                let same = found.iter().find(|it| Some(it.address) == now);
                let node = same.or(found.first()).map(|found| Announced {
                    name: name.clone(),
                    address: found.address,
                    weight: weight(found),
                });
                node.into_iter().collect()
            }
        }
    }
}

/// A look at a file costs little, and the one that mends it waits for it.
fn retry_max(kind: &SourceKind) -> Duration {
    if let SourceKind::File(file) = kind {
        return file.interval.min(RETRY_MAX);
    }
    RETRY_MAX
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::PathBuf;
    use std::sync::Mutex;

    use tokio::sync::mpsc;

    use super::*;
    use crate::FileConfig;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    fn now() -> Timestamp {
        Timestamp::from_millis(1000 * NOW.get())
    }

    /// A file of this test, and a source that reads it.
    struct Scene {
        path: PathBuf,
        source: WatchedSource,
    }

    impl Scene {
        fn new(test: &str, naming: Naming) -> Self {
            let name = format!("tidegate-discover-{test}-{}.json", std::process::id());
            let path = std::env::temp_dir().join(name);
            let file = FileConfig {
                path: path.clone(),
                interval: Duration::from_millis(1),
                timeout: Duration::from_secs(60),
            };
            let config = SourceConfig {
                name: "shop".into(),
                kind: SourceKind::File(file),
                naming,
                weight: 2.0,
                limits: DiscoveryLimits::default(),
            };
            NOW.set(0);
            Self {
                path,
                source: WatchedSource::new(config, 7, now),
            }
        }

        /// As a manager of configurations does it.
        fn write(&self, hosts: &[u8]) {
            let entry = |host: &u8| format!("{{\"address\": \"10.0.0.{host}:80\"}}");
            let entries: Vec<_> = hosts.iter().map(entry).collect();
            self.write_text(&format!("[{}]", entries.join(",")));
        }

        fn write_text(&self, text: &str) {
            let new = self.path.with_extension("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, &self.path).unwrap();
        }

        async fn ask(&mut self) -> Asked {
            self.source.ask().await
        }

        fn names(&self) -> Vec<String> {
            let nodes = self.source.nodes().into_iter();
            nodes.map(|node| node.name).collect()
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            // A test may end without a file.
            std::fs::remove_file(&self.path).ok();
        }
    }

    fn prefix() -> Naming {
        Naming::Prefix("shop".into())
    }

    #[tokio::test]
    async fn a_file_that_changes_is_read_again() {
        let mut scene = Scene::new("changes", prefix());
        scene.write(&[1, 2]);
        let asked = scene.ask().await;
        assert_eq!((asked.answer, asked.events.len()), (Ok(2), 2));
        assert_eq!(scene.names(), ["shop-10.0.0.1-80", "shop-10.0.0.2-80"]);
        assert_eq!(scene.source.nodes()[0].weight, 2.0);
        assert_eq!(scene.ask().await.events, []);
        scene.write(&[2, 3]);
        assert_eq!(scene.ask().await.events.len(), 2);
        assert_eq!(scene.names(), ["shop-10.0.0.2-80", "shop-10.0.0.3-80"]);
    }

    #[tokio::test]
    async fn a_file_that_fails_keeps_the_last_good_nodes() {
        let mut scene = Scene::new("fails", prefix());
        let absent = scene.ask().await;
        assert!(
            absent.answer.unwrap_err().contains("No such file"),
            "absent"
        );
        scene.write(&[1, 2]);
        let asked = scene.ask().await;
        assert_eq!(asked.events[0], DiscoveryEvent::Recovered);
        let good = scene.names();
        let huge = " ".repeat((4 << 20) + 1);
        for text in ["", "[", "{}", "[]", "[{\"address\": 1}]", &huge] {
            scene.write_text(text);
            scene.ask().await;
            assert_eq!(scene.names(), good, "{}", text.len());
        }
        std::fs::remove_file(&scene.path).unwrap();
        std::fs::create_dir(&scene.path).unwrap();
        let folder = scene.ask().await.answer.unwrap_err();
        std::fs::remove_dir(&scene.path).unwrap();
        assert!(folder.ends_with("not a file"), "{folder}");
        assert_eq!(scene.names(), good);
    }

    #[tokio::test]
    async fn a_file_that_was_mended_is_read_as_soon_as_one_that_was_good() {
        let mut scene = Scene::new("mended", prefix());
        for _ in 0..10 {
            assert!(scene.ask().await.answer.is_err());
            assert!(scene.source.again <= Duration::from_millis(1));
        }
    }

    #[tokio::test]
    async fn an_answer_without_a_node_that_can_be_used_says_why() {
        let mut scene = Scene::new("unusable", prefix());
        let entries = vec!["{\"address\": \"10.0.0.1:80\"}"; 1001].join(",");
        for (text, wanted) in [
            (format!("[{entries}]"), "1001 nodes, more than 1000"),
            ("[]".into(), "no node in the answer"),
            (
                "[{\"address\": \"10.0.0.1:0\"}]".into(),
                "no node in the answer that can be used",
            ),
        ] {
            scene.write_text(&text);
            for _ in 0..2 {
                assert_eq!(scene.ask().await.answer.unwrap_err(), wanted);
            }
        }
        scene.write_text("[{\"address\": \"10.0.0.1:0\"}, {\"address\": \"10.0.0.1:80\"}]");
        let asked = scene.ask().await;
        assert_eq!((asked.answer, asked.refused), (Ok(2), 1));
    }

    #[tokio::test]
    async fn an_answer_that_lacks_nearly_all_is_believed_only_after_a_while() {
        let mut scene = Scene::new("lacks", prefix());
        scene.write(&[1, 2, 3, 4, 5, 6]);
        scene.ask().await;
        scene.write(&[6]);
        for second in 0..29 {
            NOW.set(second);
            scene.ask().await;
            assert_eq!(scene.names().len(), 4, "two of six at once");
        }
        NOW.set(31);
        scene.ask().await;
        assert_eq!(scene.names(), ["shop-10.0.0.6-80"]);
    }

    #[tokio::test]
    async fn a_single_node_stays_at_its_address_while_that_is_in_the_answer() {
        let mut scene = Scene::new("single", Naming::Single("web".into()));
        let address = |scene: &Scene| scene.source.nodes()[0].address.to_string();
        scene.write(&[2, 1]);
        assert_eq!(scene.ask().await.answer, Ok(2));
        assert_eq!(scene.names(), ["web"]);
        assert_eq!(address(&scene), "10.0.0.2:80");
        scene.write(&[1, 2]);
        assert_eq!(scene.ask().await.events, []);
        scene.write(&[1, 3]);
        scene.ask().await;
        assert_eq!(address(&scene), "10.0.0.1:80");
    }

    /// Takes what it is given, but for the first time.
    struct Taker {
        given: mpsc::UnboundedSender<Vec<Announced>>,
        asked: Mutex<usize>,
    }

    impl Sink for Taker {
        fn asked(&self, _source: &str, asked: &Asked) {
            assert!(asked.answer.is_ok());
            *self.asked.lock().unwrap() += 1;
        }

        async fn announce(&self, source: &str, nodes: Vec<Announced>) -> Result<(), String> {
            assert_eq!(source, "shop");
            self.given.send(nodes).unwrap();
            match *self.asked.lock().unwrap() {
                1 => Err("not now".into()),
                _ => Ok(()),
            }
        }
    }

    #[tokio::test]
    async fn nodes_that_were_not_taken_come_again() {
        let mut scene = Scene::new("again", prefix());
        scene.write(&[1]);
        let (given, mut taken) = mpsc::unbounded_channel();
        let taker = Taker {
            given,
            asked: Mutex::new(0),
        };
        let path = scene.path.clone();
        let changes = async {
            let (first, second) = (taken.recv().await, taken.recv().await);
            assert_eq!(first, second);
            assert_eq!(first.unwrap().len(), 1);
            let two = "[{\"address\": \"10.0.0.1:80\"}, {\"address\": \"10.0.0.2:80\"}]";
            let new = path.with_extension("new");
            std::fs::write(&new, two).unwrap();
            std::fs::rename(new, path).unwrap();
            assert_eq!(taken.recv().await.unwrap().len(), 2);
        };
        tokio::select! {
            () = scene.source.run(&taker) => {}
            () = changes => {}
        }
    }
}
