//! The access log that a reload wants. It is opened before anything changes: one that cannot be is an error of the file.

use std::io;
use std::ops::Range;

use tidegate_proxy::{
    Journal, LogConfig, LogFormat, LogReopener, LogTarget, OpenedLog, check_log_file,
};
use tokio::time::timeout;

use super::READ_MAX;
use crate::config::Problem;

/// What lines are to go to from now on, if that is another one than before. A dry run only looks whether it could be
/// opened.
///
/// # Errors
/// It cannot be opened, or is refused.
pub(super) async fn open(
    before: &LogConfig,
    after: &LogConfig,
    dry_run: bool,
) -> io::Result<Option<OpenedLog>> {
    let was_off = before.format == LogFormat::Off;
    if after.format == LogFormat::Off || (!was_off && before.target == after.target) {
        return Ok(None);
    }
    let target = after.target.clone();
    // The disk may not answer.
    let opening = tokio::task::spawn_blocking(move || match (&target, dry_run) {
        (_, false) => OpenedLog::open(&target).map(Some),
        (LogTarget::Stdout, true) => Ok(None),
        (LogTarget::File(path), true) => {
            let own = rustix::process::geteuid().as_raw();
            check_log_file(path, own).map(|()| None)
        }
        (LogTarget::Journal(path), true) => Journal::check(path).map(|()| None),
    });
    match timeout(READ_MAX, opening).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(broken)) => Err(io::Error::other(broken)),
        Err(_) => Err(io::Error::other(format!(
            "not opened within {READ_MAX:?}: its disk does not answer"
        ))),
    }
}

/// The next lines go to what was opened, or there are none any more.
pub(super) fn follow(log: &LogReopener, opened: Option<OpenedLog>, after: &LogConfig) {
    match opened {
        Some(opened) => log.switch(opened),
        None if after.format == LogFormat::Off => log.rest(),
        None => {}
    }
}

/// The same as a problem of the file that names it.
pub(super) fn problem(place: Range<usize>, why: &io::Error) -> Problem {
    Problem::new(
        place,
        format!("the access log cannot be opened: {why}"),
        "a file that this process may append to is expected",
    )
}
