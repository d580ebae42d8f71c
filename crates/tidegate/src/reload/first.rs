//! What sources that are new answer, before a reload takes effect: nodes of the file that a source is to replace go only
//! when its nodes are there.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::topology::discovered::Announced;
use tidegate_discover::WatchedSource;
use tidegate_remote::{clock, privilege};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::config::NodeSource;

/// Longest wait for first answers.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The nodes of those that answer in time, by source. They are asked on a thread of their own, since a disk may not
/// answer: then that thread stays behind, and nothing else.
pub(super) async fn answers(sources: Vec<NodeSource>) -> BTreeMap<String, Vec<Announced>> {
    if sources.is_empty() {
        return BTreeMap::new();
    }
    let (done, answers) = oneshot::channel();
    let thread = std::thread::Builder::new().name("discovery".into());
    let asking = thread.spawn(move || {
        // What it needs none for, it does as well with those that it has.
        privilege::keep(privilege::NONE).ok();
        let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
            return;
        };
        // The reload may have been broken off.
        done.send(runtime.block_on(ask(sources))).ok();
        runtime.shutdown_background();
    });
    match asking {
        Ok(_) => answers.await.unwrap_or_default(),
        Err(_) => BTreeMap::new(),
    }
}

async fn ask(sources: Vec<NodeSource>) -> BTreeMap<String, Vec<Announced>> {
    let asking = sources.into_iter().map(|source| {
        tokio::spawn(async move {
            let mut source = WatchedSource::new(source.config, 0, clock::now);
            let asked = tokio::time::timeout(WAIT_MAX, source.ask()).await;
            let nodes = source.nodes();
            let answered = asked.is_ok() && !nodes.is_empty();
            answered.then(|| (source.name().to_owned(), nodes))
        })
    });
    let asking: Vec<_> = asking.collect();
    let mut answers = BTreeMap::new();
    for asking in asking {
        answers.extend(asking.await.unwrap_or_default());
    }
    answers
}
