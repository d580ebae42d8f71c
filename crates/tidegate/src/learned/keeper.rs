//! Gathers what was learned, writes it each minute and at a drain, and reads it at a start.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::director::learned::LearnedCluster;
use tidegate_core::throttle::{SetBy, Throttle};
use tidegate_culprits::live::front_end::KeptFile;
use tidegate_culprits::live::{AskError, Asks, HandedOver};
use tidegate_proxy::Shared;
use tidegate_remote::clock;
use tokio::sync::oneshot;

use super::{BYTES_MAX, EVENT, Learned, OperatorThrottle, written};
use crate::config::state_folder::LEARNED_OF_NODES;
use crate::driver::Overrides;
use crate::models::{AddedNode, MovedNodes};
use crate::output::Output;
use crate::state::{StateFile, StateFolder};

/// Between two writes.
const EVERY: Duration = Duration::from_secs(60);
/// How long a drain waits for the last write.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// Asks for what was learned so far.
#[derive(Clone, Debug)]
pub(crate) struct Gatherer {
    /// The driver's ear.
    pub(crate) driver: Overrides,
    /// Topology and throttles.
    pub(crate) shared: Arc<Shared>,
    /// Nodes of operators.
    pub(crate) added: Option<Arc<ArcSwap<Vec<AddedNode>>>>,
    /// Nodes that serve another site than the file says.
    pub(crate) moved: Option<Arc<ArcSwap<MovedNodes>>>,
    /// Discovery of culprits.
    pub(crate) culprits: Option<Asks>,
}

/// What a successor is given, once the driver and discovery have said what they know.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    cluster: Option<oneshot::Receiver<LearnedCluster>>,
    throttles: Vec<OperatorThrottle>,
    added: Option<Vec<AddedNode>>,
    moved: MovedNodes,
    culprits: Option<Result<oneshot::Receiver<HandedOver>, AskError>>,
}

/// What a successor is given.
#[derive(Debug)]
pub(crate) struct Given {
    /// As text.
    pub(crate) learned: Vec<u8>,
    /// What requests cost.
    pub(crate) costs: Option<Vec<u8>>,
}

impl Gatherer {
    /// For a successor: with what operators have set. To be called while nothing changes that.
    pub(crate) fn for_successor(&self) -> Pending {
        let now = clock::now();
        let throttles = self.shared.throttles.all();
        let own = throttles.iter().filter(|it| it.set_by == SetBy::Operator);
        let throttle = |it: &Throttle| OperatorThrottle {
            class: it.pattern.name().into(),
            limits: it.limits,
            left: it.until.map(|until| until.since(now)),
        };
        Pending {
            // A driver that has ended has nothing to say.
            cluster: self.driver.learned().ok(),
            throttles: own.map(throttle).collect(),
            added: self.added.as_ref().map(|it| it.load().to_vec()),
            moved: (self.moved.as_ref())
                .map_or_else(MovedNodes::new, |it| it.load().as_ref().clone()),
            culprits: self.culprits.as_ref().map(Asks::hand_over),
        }
    }

    /// For the file; nothing from a driver that has ended or has too much to do.
    async fn for_file(&self) -> Option<Vec<u8>> {
        let mut cluster = self.driver.learned().ok()?.await.ok()?;
        cluster.taken_out.clear();
        let learned = Learned {
            cluster,
            ..Learned::default()
        };
        written::encode(&learned, clock::unix()).ok()
    }
}

impl Pending {
    /// What there is, once all have answered. To be called on a thread that may wait.
    ///
    /// # Errors
    /// It cannot be put into text.
    pub(crate) fn wait(self, output: Output) -> Result<Given, String> {
        // Of a driver that has ended nothing is known; what operators have set is handed over all the same.
        let cluster = self.cluster.and_then(|it| it.blocking_recv().ok());
        let found = self.culprits.map(|asked| {
            let answered = asked.and_then(|it| it.blocking_recv().map_err(|_| AskError::Gone));
            answered.unwrap_or_else(|why| {
                let text = format!("what is known of requests is not handed over: {why}");
                output.event(EVENT, &text);
                HandedOver::default()
            })
        });
        let HandedOver { costs, automatic } = found.unwrap_or_default();
        let learned = Learned {
            cluster: cluster.unwrap_or_default(),
            throttles: self.throttles,
            added: self.added,
            moved: self.moved,
            policy: automatic,
            ..Learned::default()
        };
        let learned = written::encode(&learned, clock::unix())?;
        Ok(Given { learned, costs })
    }
}

/// The file, if there is a folder for it.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    file: Option<Arc<Mutex<Inside>>>,
    output: Output,
}

#[derive(Debug)]
struct Inside {
    file: StateFile,
    /// Whether trouble with the folder is said elsewhere.
    quiet: bool,
    /// Why nothing can be written, as it was said last.
    trouble: Option<String>,
    /// Nothing more will be written.
    ended: bool,
}

impl Keeper {
    /// In this folder. Where discovery keeps files there as well, what is wrong with the folder is said by it.
    pub(crate) fn new(folder: Option<&StateFolder>, quiet: bool, output: Output) -> Self {
        let inside = folder.map(|folder| Inside {
            file: StateFile::new(folder, LEARNED_OF_NODES),
            quiet,
            trouble: None,
            ended: false,
        });
        Self {
            file: inside.map(Mutex::new).map(Arc::new),
            output,
        }
    }

    /// What a process has learned before this one: the one that it succeeds, or the last one in the folder. What is of no use
    /// is said.
    pub(crate) fn recall(
        &self,
        handed_over: Option<&Result<Vec<u8>, String>>,
        costs: Option<Result<Vec<u8>, String>>,
    ) -> Learned {
        let read = match handed_over {
            Some(read) => Some((
                "what the former process has learned".to_owned(),
                read.clone(),
            )),
            None => self.read(),
        };
        let Some((what, bytes)) = read else {
            return Learned::default();
        };
        let refuse = |why: &str| {
            let text = format!("{what} is not used: {why}; it is learned anew");
            self.output.event(EVENT, &text);
        };
        let decoded = bytes.and_then(|bytes| {
            let decoded = written::decode(&bytes, clock::unix());
            decoded.map_err(|why| why.to_string())
        });
        let mut learned = decoded.unwrap_or_else(|why| {
            refuse(&why);
            Learned::default()
        });
        if let Some(why) = &learned.refused {
            refuse(&why.to_string());
        }
        for ignored in &learned.ignored {
            let text = format!("{what}: ignored: {ignored}");
            self.output.event(EVENT, &text);
        }
        if handed_over.is_none() {
            // A file has nothing of operators', nor of `automatic`.
            learned.cluster.taken_out.clear();
            (learned.throttles, learned.added, learned.policy) = (Vec::new(), None, None);
            learned.moved.clear();
        }
        let costs = costs.transpose().unwrap_or_else(|why| {
            let text = format!("what the former process knows of requests is not used: {why}");
            self.output.event(EVENT, &text);
            None
        });
        Learned { costs, ..learned }
    }

    fn read(&self) -> Option<(String, Result<Vec<u8>, String>)> {
        let inside = self.file.as_ref()?;
        let inside = inside.lock().unwrap_or_else(PoisonError::into_inner);
        let path = inside.file.path().display().to_string();
        let read = inside.file.read(BYTES_MAX).transpose()?;
        Some((path, read))
    }

    /// Writes each minute, for as long as there is anything to ask.
    pub(crate) async fn run(self, gatherer: Gatherer) {
        if self.file.is_none() {
            return;
        }
        loop {
            tokio::time::sleep(EVERY).await;
            self.write(&gatherer, false).await;
        }
    }

    /// Writes for the last time, and gives the folder up. A disk that does not answer holds up nothing for long.
    pub(crate) async fn end(&self, gatherer: &Gatherer) {
        if tokio::time::timeout(LAST_WRITE, self.write(gatherer, true))
            .await
            .is_err()
        {
            let text = "the last write of what was learned has not ended and is not waited for";
            self.output.event(EVENT, text);
        }
    }

    async fn write(&self, gatherer: &Gatherer, last: bool) {
        let Some(inside) = self.file.clone() else {
            return;
        };
        let Some(bytes) = gatherer.for_file().await else {
            return;
        };
        let write = move || {
            let mut inside = inside.lock().unwrap_or_else(PoisonError::into_inner);
            inside.write(&bytes, last)
        };
        // It ends without a word if it panics, which stands on standard error.
        let said = tokio::task::spawn_blocking(write).await.unwrap_or_default();
        if let Some(text) = said {
            self.output.event(EVENT, &text);
        }
    }
}

impl Inside {
    /// What is to be said, if anything is.
    fn write(&mut self, bytes: &[u8], last: bool) -> Option<String> {
        if self.ended {
            return None;
        }
        let folder = self.file.take_folder();
        let is_elsewhere = folder.is_err() && self.quiet;
        let written = folder.and_then(|()| self.file.write(bytes));
        if last {
            self.ended = true;
            self.file.give_up();
        }
        let before = std::mem::replace(&mut self.trouble, written.err());
        let why = self.trouble.as_ref()?;
        let is_new = before.as_ref() != Some(why) && !is_elsewhere;
        is_new.then(|| {
            format!(
                "{why}; until that changes, what is learned of nodes is not kept over a restart"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    use tidegate_core::topology::AdminState;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("tidegate-learned-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        path
    }

    fn keeper(path: &Path) -> Keeper {
        let folder = StateFolder::new(path.to_owned());
        Keeper::new(Some(&folder), false, Output::QUIET)
    }

    fn write(keeper: &Keeper, bytes: &[u8], last: bool) -> Option<String> {
        keeper
            .file
            .as_ref()
            .unwrap()
            .lock()
            .unwrap()
            .write(bytes, last)
    }

    #[test]
    fn the_file_is_read_by_the_next_process_and_has_nothing_of_operators() {
        let path = folder("file");
        let first = keeper(&path);
        let nothing = Learned::default();
        assert_eq!(first.recall(None, None), nothing, "nothing was written yet");
        let mut learned = Learned::default();
        let taken_out = ("n1".into(), AdminState::Drain);
        learned.cluster.taken_out.push(taken_out);
        learned.added = Some(Vec::new());
        let bytes = written::encode(&learned, clock::unix()).unwrap();
        assert_eq!(write(&first, &bytes, true), None);
        let next = keeper(&path);
        let of_operators = |learned: Learned| (learned.cluster.taken_out.len(), learned.added);
        assert_eq!(of_operators(next.recall(None, None)), (0, None));
        let handed_over = next.recall(Some(&Ok(bytes.clone())), None);
        assert_eq!(of_operators(handed_over), (1, Some(Vec::new())));
        assert_eq!(
            next.recall(Some(&Ok(b"{".to_vec())), None),
            nothing,
            "damaged"
        );
        let unread = Err("it cannot be read".to_owned());
        assert_eq!(next.recall(Some(&unread), Some(unread.clone())), nothing);
        // The folder is free, and what ends writes no more.
        assert_eq!(write(&next, b"{}", false), None);
        assert_eq!(write(&first, &bytes, false), None);
        assert!(next.recall(None, None).refused.is_some());
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn trouble_is_said_once() {
        let path = folder("gone");
        std::fs::remove_dir_all(&path).unwrap();
        let keeper = keeper(&path);
        assert!(
            write(&keeper, b"{}", false)
                .unwrap()
                .contains("it is not there")
        );
        assert_eq!(write(&keeper, b"{}", false), None);
        let quiet = Keeper::new(Some(&StateFolder::new(path)), true, Output::QUIET);
        assert_eq!(write(&quiet, b"{}", false), None);
    }
}
