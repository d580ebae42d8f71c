//! Events as they come, to a server of the operator's: `[events] webhook`.
//!
//! ```text
//! an event ── GATHER ──> POST {"front_end": …, "since": …, "missed": 0, "events": […]}, at most EVENTS_A_POST
//!    2xx: the next ones     no answer, 429, 5xx: again, after a pause that doubles     else: dropped
//! ```
//!
//! One batch is on its way at a time. Events wait in the log, which keeps the last so many: those that were pushed out meanwhile are
//! counted in `missed`. Nothing waits for the webhook. Failure case: what was taken though its answer was lost comes twice,
//! with the same numbers.

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use hyper::body::Bytes;
use serde::Serialize;
use tidegate_discover::{Answer, Session};

use crate::config::WebhookConfig;
use crate::events::EventLog;
use crate::models::{EventLevel, EventModel};
use crate::output::Output;

/// What comes within this time goes together.
const GATHER: Duration = Duration::from_millis(500);
/// Most events of one POST.
const EVENTS_A_POST: usize = 100;
/// Most bytes of an answer.
const ANSWER_MAX: usize = 64 << 10;
/// Time for a connection, the batch and the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Before a batch is sent again for the first time; then twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What is sent.
#[derive(Debug, PartialEq, Serialize)]
struct Batch<'a> {
    /// Which one it comes from: the host's name and the admin address.
    front_end: &'a str,
    /// When the process began, seconds since 1970: numbers are of it.
    since: u64,
    /// Events before and among these that were too many to be kept.
    missed: u64,
    events: Vec<EventModel>,
}

/// How a try went.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Taken,
    Refused(String),
    Failed(String, Option<Duration>),
}

/// Sends what happens, until it is dropped.
pub(crate) async fn run(log: &'static EventLog, config: WebhookConfig, output: Output) {
    let mut session = Session::new(config.server.clone(), config.ca_file.clone());
    let mut failing = false;
    log.want_notes(config.notes);
    loop {
        let sent = log.taken();
        log.set_sent(sent);
        log.wait_behind(sent).await;
        // A product timer: what comes together is sent together.
        tokio::time::sleep(GATHER).await;
        let Some(batch) = next(log, &config) else {
            continue;
        };
        // Strings, numbers and nothing else: this does not fail.
        let body = Bytes::from(serde_json::to_vec(&batch).unwrap_or_default());
        let mut pause = FIRST_PAUSE;
        loop {
            let (why, wait) = match send(&mut session, &config, body.clone()).await {
                Attempt::Taken => {
                    log.set_trouble(None);
                    if std::mem::take(&mut failing) {
                        let text = format!("webhook: {} takes events again", config.server);
                        output.event("answers", &text);
                    }
                    break;
                }
                Attempt::Refused(why) => {
                    (format!("{why}; it is asked again with the next one"), None)
                }
                Attempt::Failed(why, wait) => (why, Some(wait.unwrap_or(pause))),
            };
            let text = format!("webhook: {} does not take events: {why}", config.server);
            log.set_trouble(Some(text.clone()));
            if !std::mem::replace(&mut failing, true) {
                output.event("webhook_failed", &text);
            }
            let Some(wait) = wait else { break };
            // The time between two tries.
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// What is to be sent next, if anything of it is wanted.
fn next<'a>(log: &EventLog, config: &'a WebhookConfig) -> Option<Batch<'a>> {
    let is_wanted = |it: &EventModel| config.notes || it.level != EventLevel::Note;
    let (events, missed) = log.take(EVENTS_A_POST, is_wanted)?;
    Some(Batch {
        front_end: &config.instance,
        since: log.since(),
        missed,
        events,
    })
}

async fn send(session: &mut Session, config: &WebhookConfig, body: Bytes) -> Attempt {
    let mut fields = config.headers.clone();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let limits = (ANSWER_MAX, TIMEOUT);
    match session.exchange(&config.path, &fields, body, limits).await {
        Ok(answer) => read(&answer),
        Err(why) => Attempt::Failed(why.to_string(), None),
    }
}

fn read(answer: &Answer) -> Attempt {
    let status = answer.status;
    let why = format!("it answers {status}");
    match status {
        _ if status.is_success() => Attempt::Taken,
        StatusCode::TOO_MANY_REQUESTS => {
            let wait = answer
                .fields
                .get(RETRY_AFTER)
                .and_then(|it| it.to_str().ok());
            let wait = wait.and_then(|it| it.trim().parse().ok());
            let wait = wait.map(|it| Duration::from_secs(it).clamp(FIRST_PAUSE, PAUSE_MAX));
            Attempt::Failed(why, wait)
        }
        _ if status.is_server_error() => Attempt::Failed(why, None),
        _ => Attempt::Refused(why),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::events::{About, EVENTS_MAX};

    fn config(notes: bool) -> WebhookConfig {
        WebhookConfig {
            server: "http://127.0.0.1:1".parse().unwrap(),
            path: "/hook".into(),
            ca_file: None,
            headers: HeaderMap::new(),
            notes,
            instance: "front-1".into(),
        }
    }

    fn numbers(batch: Option<Batch<'_>>) -> Option<(u64, Vec<u64>)> {
        let batch = batch?;
        Some((
            batch.missed,
            batch.events.iter().map(|it| it.number).collect(),
        ))
    }

    #[test]
    fn notes_are_left_out_unless_they_are_wanted() {
        for (notes, wanted) in [(false, vec![2]), (true, vec![1, 2, 3])] {
            let log = EventLog::default();
            let config = config(notes);
            assert_eq!(numbers(next(&log, &config)), None);
            for kind in ["rung", "ejected", "state"] {
                log.add(kind, About::default(), "x");
            }
            assert_eq!(numbers(next(&log, &config)), Some((0, wanted)));
            assert_eq!(log.taken(), 3);
            assert_eq!(numbers(next(&log, &config)), None);
        }
    }

    #[test]
    fn what_was_pushed_out_is_counted_and_no_batch_is_long() {
        let log = EventLog::default();
        let config = config(false);
        let happen = |number: usize| {
            let text = format!("x{number}");
            log.add("ejected", About::default(), &text);
        };
        happen(0);
        assert_eq!(numbers(next(&log, &config)), Some((0, vec![1])));
        (1..EVENTS_MAX + 7).for_each(happen);
        let (missed, sent_now) = numbers(next(&log, &config)).unwrap();
        assert_eq!((missed, sent_now.len(), sent_now[0]), (6, EVENTS_A_POST, 8));
        let (missed, sent_then) = numbers(next(&log, &config)).unwrap();
        assert_eq!((missed, sent_then[0]), (0, 8 + EVENTS_A_POST as u64));
    }

    #[test]
    fn what_happens_again_is_missed_by_no_batch() {
        let log = EventLog::default();
        for _ in 0..3 {
            log.add("ejected", About::node("n1", "shop"), "x");
            log.add("returned", About::node("n1", "shop"), "x");
        }
        let config = config(false);
        let batch = next(&log, &config).unwrap();
        let times: Vec<_> = batch.events.iter().map(|it| it.times).collect();
        assert_eq!((batch.missed, times), (0, vec![3, 3]));
        log.add("ejected", About::node("n1", "shop"), "x");
        let batch = next(&log, &config).unwrap();
        let again: Vec<_> = batch
            .events
            .iter()
            .map(|it| (it.number, it.times))
            .collect();
        assert_eq!((batch.missed, again), (0, vec![(7, 4)]));
    }

    #[test]
    fn what_may_be_sent_again_is_told_from_what_may_not() {
        let answer = |status, after: Option<&'static str>| {
            let mut fields = HeaderMap::new();
            if let Some(after) = after {
                fields.insert(RETRY_AFTER, HeaderValue::from_static(after));
            }
            read(&Answer {
                status: StatusCode::from_u16(status).unwrap(),
                fields,
                body: Bytes::new(),
            })
        };
        assert_eq!(answer(204, None), Attempt::Taken);
        assert!(matches!(answer(503, None), Attempt::Failed(_, None)));
        let wait = Some(Duration::from_secs(5));
        assert!(matches!(answer(429, Some("5")), Attempt::Failed(_, it) if it == wait));
        // No server has us ask without a pause.
        let least = Some(FIRST_PAUSE);
        assert!(matches!(answer(429, Some("0")), Attempt::Failed(_, it) if it == least));
        for status in [301, 400, 404] {
            assert!(
                matches!(answer(status, None), Attempt::Refused(_)),
                "{status}"
            );
        }
    }
}
