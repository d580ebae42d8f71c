//! Says once that lines of the access log are lost, and once that they are written again.

use tidegate_proxy::{LogHealth, LogReopener};
use tokio::sync::watch;

use crate::output::Output;

/// Until the writer ends.
pub(super) async fn run(mut health: watch::Receiver<LogHealth>, output: Output) {
    let mut said = LogHealth::default();
    while health.changed().await.is_ok() {
        let now = health.borrow_and_update().clone();
        for (event, text) in events(&said, &now) {
            output.event(event, &text);
        }
        said = now;
    }
}

/// What is to be said of a change. A trouble that began and ended in between has both.
fn events(before: &LogHealth, after: &LogHealth) -> Vec<(&'static str, String)> {
    let mut events = Vec::new();
    let is_new = after.troubles > before.troubles;
    let was_said = before.failing.is_some();
    if was_said && (is_new || after.failing.is_none()) {
        events.push(over(if is_new { before.lost } else { after.lost }));
    }
    if is_new {
        let why = after.failing.as_deref();
        let why = why.unwrap_or("the file took none for a moment");
        let text = format!("access log: lines are lost, and counted as dropped: {why}");
        events.push(("log_lost", text));
        if after.failing.is_none() {
            events.push(over(after.lost));
        }
    }
    events
}

fn over(lost: u64) -> (&'static str, String) {
    let text = format!("access log: lines are written again; {lost} were lost");
    ("log_written_again", text)
}

/// SIGUSR1: the access log was renamed.
pub(super) fn reopen(log: LogReopener, output: Output) {
    // The disk may not answer.
    tokio::task::spawn_blocking(move || match log.reopen() {
        Ok(()) => output.event("log_reopened", "access log: opened anew"),
        Err(why) => output.event(
            "log_not_reopened",
            &format!("access log: not opened anew, the file that is open stays in use: {why}"),
        ),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(troubles: u64, failing: bool, lost: u64) -> LogHealth {
        LogHealth {
            troubles,
            failing: failing.then(|| "no room".to_owned()),
            lost,
        }
    }

    #[test]
    fn each_trouble_begins_and_ends_once() {
        let names = |before: &LogHealth, after: &LogHealth| {
            let events = events(before, after).into_iter();
            events.map(|it| it.0).collect::<Vec<_>>()
        };
        let (begins, ends) = ("log_lost", "log_written_again");
        let none = LogHealth::default();
        assert_eq!(names(&none, &health(1, true, 5)), [begins]);
        assert_eq!(names(&health(1, true, 5), &health(1, true, 9)), [""; 0]);
        assert_eq!(names(&health(1, true, 5), &health(1, false, 9)), [ends]);
        assert_eq!(names(&none, &health(1, false, 9)), [begins, ends]);
        assert_eq!(
            names(&health(1, true, 5), &health(2, true, 1)),
            [ends, begins]
        );
        assert_eq!(names(&health(1, false, 5), &health(3, true, 1)), [begins]);
        let said = &events(&health(1, true, 5), &health(1, false, 9))[0].1;
        assert!(said.ends_with("9 were lost"), "{said}");
    }
}
