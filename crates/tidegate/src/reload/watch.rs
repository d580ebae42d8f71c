//! Watches the configuration file: a change that has come to rest is put in force.
//!
//! The file is looked at each second, by its name: editors and configuration managers replace files, and links to
//! them, rather than write into them. A change counts once two looks have found the same.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::LiveCluster;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// What the looks have found so far.
#[derive(Debug)]
struct Looks {
    in_force: Option<Mark>,
    last: Option<Mark>,
}

impl Looks {
    /// Whether the file has another state than the one in force, and did not change since the last look. One that is
    /// not there changes nothing.
    fn look(&mut self, now: Option<Mark>) -> bool {
        let rests = now.is_some() && now == self.last;
        self.last = now;
        let is_due = rests && now != self.in_force;
        if is_due {
            self.in_force = now;
        }
        is_due
    }
}

fn mark(path: &Path) -> Option<Mark> {
    let about = std::fs::metadata(path).ok()?;
    Some(Mark {
        device: about.dev(),
        inode: about.ino(),
        size: about.size(),
        modified: (about.mtime(), about.mtime_nsec()),
    })
}

/// Watches; for ever.
pub(crate) async fn run(cluster: Arc<LiveCluster>) {
    let Some(path) = cluster.path().map(Path::to_owned) else {
        return;
    };
    let began = mark(&path);
    let mut looks = Looks {
        in_force: began,
        last: began,
    };
    let mut interval = tokio::time::interval(LOOK_EVERY);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let looked = path.clone();
        // The disk may not answer.
        let Ok(now) = tokio::task::spawn_blocking(move || mark(&looked)).await else {
            continue;
        };
        if looks.look(now) {
            // What comes of it is in the log and the metrics.
            cluster.reload(false).await.ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(inode: u64) -> Option<Mark> {
        Some(Mark {
            device: 1,
            inode,
            size: 10,
            modified: (0, 0),
        })
    }

    #[test]
    fn a_change_counts_once_it_rests() {
        let mut looks = Looks {
            in_force: mark(1),
            last: mark(1),
        };
        assert!(!looks.look(mark(1)));
        assert!(!looks.look(mark(2)), "it may be half written");
        assert!(looks.look(mark(2)));
        assert!(!looks.look(mark(2)), "once");
        assert!(!looks.look(None), "gone is no change");
        assert!(!looks.look(mark(3)));
        assert!(!looks.look(mark(4)));
        assert!(looks.look(mark(4)));
        assert!(!looks.look(mark(2)));
        assert!(looks.look(mark(2)), "an older one is a change too");
    }
}
