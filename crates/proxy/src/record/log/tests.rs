//! Whole lines, and what becomes of them when the writer is slow.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use tidegate_core::picker::Stickiness;
use tidegate_core::time::Timestamp;

use super::writer::BATCHES_MAX;
use super::*;
use crate::config::LogTarget;
use crate::config::log_fields::{LogField, LogFieldError};

fn writer(path: impl Into<PathBuf>) -> Writer {
    writer_with(path, &Arc::new(Stats::new(1, 0, 0)), || Timestamp::ZERO)
}

fn writer_with(path: impl Into<PathBuf>, stats: &Arc<Stats>, clock: fn() -> Timestamp) -> Writer {
    let target = LogTarget::File(path.into());
    Writer::start(&target, |_| Ok(()), Arc::clone(stats), clock).unwrap()
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("host", "shop.example".parse().unwrap());
    headers.insert("user-agent", "curl/8 \"quoted\"".parse().unwrap());
    headers
}

fn head(headers: &HeaderMap) -> Head<'_> {
    Head {
        unix_nanos: 971_186_136_000_000_000,
        client: "192.0.2.7",
        method: "GET",
        target: "/cart?item=1",
        version: http::Version::HTTP_11,
        headers,
    }
}

fn tail(reason: Option<Reason>) -> Tail<'static> {
    Tail {
        id: "1-7fe2".parse().unwrap(),
        status: 200,
        bytes: 1024,
        bytes_in: 0,
        duration_us: 1500,
        queue_us: 2,
        upstream_us: Some(1400),
        site: Some("shop"),
        node: Some("n1"),
        tries: 1,
        retry_denied: false,
        hedged: None,
        why: Some(Why {
            compared: 5,
            score: 1.5,
            load_age: Some(Duration::from_micros(900)),
            in_flight: 3,
            fail_open: false,
            sticky: Stickiness::None,
        }),
        throttle: None,
        held_us: None,
        experiment_us: None,
        reason,
    }
}

fn line(format: LogFormat, tail: &Tail<'_>) -> String {
    let headers = headers();
    let mut line = Line::default();
    line.begin(format, &LogFields::default(), &head(&headers));
    let mut out = Vec::new();
    line.end(&LogFields::default(), tail, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_json_line_is_one_object() {
    let text = line(LogFormat::Json, &tail(Some(Reason::ClientGone)));
    assert_eq!(text.matches('\n').count(), 1);
    let object: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(object["time"], "2000-10-10T13:55:36.000000Z");
    assert_eq!(object["path"], "/cart?item=1");
    assert_eq!(object["user_agent"], "curl/8 \"quoted\"");
    assert_eq!(object["referer"], serde_json::Value::Null);
    assert_eq!(object["load_age_us"], 900);
    assert_eq!(object["score"], 1.5);
    assert_eq!(object["reason"], "client_gone");
}

#[test]
fn a_line_without_a_node_is_an_object_too() {
    let bare = Tail {
        site: None,
        node: None,
        upstream_us: None,
        why: None,
        ..tail(Some(Reason::NoSite))
    };
    let object: serde_json::Value = serde_json::from_str(&line(LogFormat::Json, &bare)).unwrap();
    assert_eq!(object.get("node"), None);
    let unscored = Tail {
        why: Some(Why {
            score: f32::NAN,
            load_age: None,
            ..tail(None).why.unwrap()
        }),
        ..tail(None)
    };
    let object: serde_json::Value =
        serde_json::from_str(&line(LogFormat::Json, &unscored)).unwrap();
    assert_eq!(object.get("score"), None);
}

#[test]
fn a_field_of_a_line_has_so_many_bytes_and_no_more() {
    for bytes in [FIELD_BYTES_MAX, FIELD_BYTES_MAX + 1] {
        let long = "x".repeat(bytes);
        let mut headers = headers();
        for name in ["host", "referer", "user-agent"] {
            headers.insert(name, long.parse().unwrap());
        }
        let head = Head {
            target: &long,
            ..head(&headers)
        };
        for format in [LogFormat::Json, LogFormat::Combined] {
            let mut line = Line::default();
            line.begin(format, &LogFields::default(), &head);
            let mut out = Vec::new();
            line.end(&LogFields::default(), &tail(None), &mut out);
            let text = String::from_utf8(out).unwrap();
            let runs = text.split(|it| it != 'x').filter(|run| run.len() > 99);
            let runs: Vec<_> = runs.map(str::len).collect();
            assert_eq!(runs, [FIELD_BYTES_MAX; 4], "{format:?}");
        }
    }
}

#[test]
fn a_denied_retry_is_told() {
    let denied = Tail {
        retry_denied: true,
        ..tail(Some(Reason::ConnectFailed))
    };
    let object: serde_json::Value = serde_json::from_str(&line(LogFormat::Json, &denied)).unwrap();
    assert_eq!(object["retry_denied"], true);
    assert!(line(LogFormat::Combined, &denied).contains(" tries=1 retry_denied=true "));
}

#[test]
fn what_became_of_a_second_node_is_told() {
    for outcome in Hedged::ALL {
        let hedged = Tail {
            hedged: Some(outcome),
            ..tail(None)
        };
        let object: serde_json::Value =
            serde_json::from_str(&line(LogFormat::Json, &hedged)).unwrap();
        assert_eq!(object["hedged"], outcome.label());
        let wanted = format!(" tries=1 hedged={} compared=", outcome.label());
        assert!(line(LogFormat::Combined, &hedged).contains(&wanted));
    }
    assert!(!line(LogFormat::Json, &tail(None)).contains("hedged"));
}

#[test]
fn a_sticky_session_is_told() {
    let of = |sticky| Tail {
        why: tail(None).why.map(|why| Why { sticky, ..why }),
        ..tail(None)
    };
    let json = line(LogFormat::Json, &of(Stickiness::Home));
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(object["sticky"], "home");
    let combined = line(LogFormat::Combined, &of(Stickiness::NodeOut));
    assert!(combined.ends_with(" fail_open=false sticky=node_out id=1-7fe2\n"));
    assert!(!line(LogFormat::Json, &of(Stickiness::None)).contains("sticky"));
}

#[test]
fn a_throttle_is_told_by_its_class() {
    let held = Tail {
        throttle: Some("GET /a\"b/*"),
        held_us: Some(1200),
        ..tail(Some(Reason::Throttled))
    };
    let object: serde_json::Value = serde_json::from_str(&line(LogFormat::Json, &held)).unwrap();
    assert_eq!(object["throttle"], "GET /a\"b/*");
    assert_eq!(
        (&object["held_us"], &object["reason"]),
        (&1200.into(), &"throttled".into())
    );
    let combined = line(LogFormat::Combined, &held);
    assert!(combined.contains(r#" throttle="GET /a\"b/*" held_us=1200 reason=throttled"#));
}

#[test]
fn the_hold_of_a_test_is_told() {
    let held = Tail {
        experiment_us: Some(300_000),
        ..tail(None)
    };
    let object: serde_json::Value = serde_json::from_str(&line(LogFormat::Json, &held)).unwrap();
    assert_eq!(object["experiment_us"], 300_000);
    assert_eq!(object.get("held_us"), None);
    assert!(
        line(LogFormat::Combined, &held)
            .ends_with(" fail_open=false experiment_us=300000 id=1-7fe2\n")
    );
}

#[test]
fn a_combined_line_is_what_log_tools_expect() {
    assert_eq!(
        line(LogFormat::Combined, &tail(None)),
        "192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] \"GET /cart?item=1 HTTP/1.1\" 200 1024 \"-\" \
         \"curl/8 \\\"quoted\\\"\" host=\"shop.example\" bytes_in=0 duration_us=1500 queue_us=2 \
         upstream_us=1400 site=\"shop\" node=\"n1\" tries=1 compared=5 score=1.5 load_age_us=900 \
         in_flight=3 fail_open=false id=1-7fe2\n"
    );
}

fn log_line(logger: &mut Logger) {
    let headers = headers();
    let mut line = Line::default();
    let fields = LogFields::default();
    line.begin(LogFormat::Json, &fields, &head(&headers));
    logger.end(&line, &fields, &tail(None));
}

#[test]
fn a_batch_goes_to_the_writer_as_soon_as_it_is_full() {
    let stats = Arc::new(Stats::new(1, 0, 0));
    let (sender, receiver) = sync_channel(1);
    let mut logger = Logger::new(Some(sender), stats, 0);
    let batch = (0..BATCH_BYTES).find_map(|_| {
        log_line(&mut logger);
        receiver.try_recv().ok()
    });
    let batch = batch.unwrap();
    let line = batch.bytes.len() / batch.lines as usize;
    assert!((BATCH_BYTES..BATCH_BYTES + line).contains(&batch.bytes.len()));
}

#[test]
fn so_many_batches_wait_for_the_writer_and_one_more_is_dropped() {
    let (mut reader, pipe) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let stats = Arc::new(Stats::new(1, 0, 0));
    let writer = writer_with(path, &stats, || Timestamp::ZERO);
    drop(pipe);
    let sender = writer.sender().unwrap();
    // More than a pipe holds: once the first byte is here, the writer stands at it.
    let large = Batch {
        bytes: vec![b'x'; 4 << 20],
        lines: 1,
    };
    sender.try_send(large).unwrap();
    reader.read_exact(&mut [0]).unwrap();
    let mut logger = Logger::new(Some(sender), Arc::clone(&stats), 0);
    for _ in 0..=BATCHES_MAX {
        log_line(&mut logger);
        logger.flush();
    }
    drop(logger);
    let rest = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    // Nothing of what waited is lost.
    drop(writer);
    assert_eq!(rest.join().unwrap().unwrap().lines().count(), BATCHES_MAX);
    let seen = stats.snapshot();
    assert_eq!(
        (seen.log_lines, seen.log_drops),
        (BATCHES_MAX as u64 + 1, 1)
    );
}

#[test]
fn a_slow_writer_costs_lines_that_are_counted() {
    let stats = Arc::new(Stats::new(1, 0, 0));
    let (sender, receiver) = sync_channel(1);
    let mut logger = Logger::new(Some(sender), Arc::clone(&stats), 0);
    for _ in 0..3 {
        log_line(&mut logger);
        logger.flush();
    }
    drop(logger);
    let snapshot = stats.snapshot();
    assert_eq!(snapshot.log_drops, 2);
    assert_eq!(receiver.iter().map(|batch| batch.lines).sum::<u64>(), 1);
}

/// Milliseconds that have passed for the test below.
static PASSED: AtomicU64 = AtomicU64::new(0);

#[test]
fn lines_that_a_full_disk_refuses_are_lost_and_that_is_said_once() {
    let folder = std::env::temp_dir().join(format!("tidegate-log-full-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("access.log");
    let stats = Arc::new(Stats::new(1, 0, 0));
    let clock = || Timestamp::from_millis(PASSED.load(Ordering::Relaxed));
    let writer = writer_with("/dev/full", &stats, clock);
    let (health, reopener) = (writer.health(), writer.reopener());
    let mut logger = Logger::new(writer.sender(), Arc::clone(&stats), 0);
    let mut log = |lines: u64| {
        let seen = || {
            let seen = stats.snapshot();
            (seen.log_lines, seen.log_drops)
        };
        let (written, dropped) = seen();
        for _ in 0..lines {
            log_line(&mut logger);
        }
        logger.flush();
        while seen().0 + seen().1 < written + dropped + lines {
            std::thread::yield_now();
        }
        let health = health.borrow().clone();
        (
            seen(),
            health.troubles,
            health.lost,
            health.failing.is_some(),
        )
    };
    assert_eq!(log(2), ((0, 2), 1, 2, true));
    assert_eq!(log(3), ((0, 5), 1, 5, true));
    let why = writer.health().borrow().failing.clone().unwrap();
    assert!(why.contains("No space left on device"), "{why}");
    reopener.switch(OpenedLog::open(&LogTarget::File(path.clone())).unwrap());
    assert_eq!(log(1), ((1, 5), 1, 5, true), "it may go on");
    PASSED.store(2000, Ordering::Relaxed);
    assert_eq!(log(1), ((2, 5), 1, 5, false));
    reopener.switch(OpenedLog::open(&LogTarget::File("/dev/full".into())).unwrap());
    assert_eq!(log(1), ((2, 6), 2, 1, true), "another trouble");
    drop(logger);
    drop(writer);
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn lines_reach_the_file_and_rotation_begins_a_new_one() {
    let folder = std::env::temp_dir().join(format!("tidegate-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("access.log");
    let stats = Arc::new(Stats::new(1, 0, 0));
    let write = |rotated: bool| {
        let writer = writer(&path);
        if rotated {
            std::fs::rename(&path, folder.join("access.log.1")).unwrap();
            writer.reopener().reopen().unwrap();
        }
        let mut logger = Logger::new(writer.sender(), Arc::clone(&stats), 0);
        log_line(&mut logger);
        drop(logger);
        drop(writer);
    };
    write(false);
    write(true);
    for name in ["access.log", "access.log.1"] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(text.lines().count(), 1, "{name}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_link_that_was_planted_is_not_written_through_after_a_rotation() {
    let folder = std::env::temp_dir().join(format!("tidegate-log-usr1-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (path, victim) = (folder.join("access.log"), folder.join("victim"));
    std::fs::write(&victim, "precious").unwrap();
    let stats = Arc::new(Stats::new(1, 0, 0));
    let writer = writer(&path);
    std::fs::rename(&path, folder.join("access.log.1")).unwrap();
    std::os::unix::fs::symlink(&victim, &path).unwrap();
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let why = writer.reopener().reopen().unwrap_err().to_string();
    assert!(why.contains("is a link in a folder"), "{why}");
    let mut logger = Logger::new(writer.sender(), stats, 0);
    log_line(&mut logger);
    drop(logger);
    drop(writer);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read("victim"), "precious");
    assert_eq!(read("access.log.1").lines().count(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_end_does_not_wait_for_ever_for_a_reader() {
    let (mut reader, pipe) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let mut writer = writer(path);
    drop(pipe);
    let large = Batch {
        bytes: vec![b'x'; 4 << 20],
        lines: 1,
    };
    writer.sender().unwrap().try_send(large).unwrap();
    assert!(!writer.end(Duration::ZERO));
    let rest = std::thread::spawn(move || reader.read_to_end(&mut Vec::new()).unwrap());
    assert!(writer.end(Duration::MAX));
    assert_eq!(rest.join().unwrap(), 4 << 20);
}

/// A table of docs/access-log.md, between its comment and the next one.
fn in_page(page: &str, what: &str, table: &str) -> String {
    let begin = format!(
        "<!-- {what}: written by UPDATE_EXPECT=1 cargo test -p tidegate-proxy --lib log:: -->\n"
    );
    let (before, rest) = page.split_once(&begin).unwrap();
    let (_, after) = rest.split_once("<!-- end -->").unwrap();
    format!("{before}{begin}{table}<!-- end -->{after}")
}

/// docs/access-log.md has every field that a line can have, and every reason.
#[test]
fn fields_and_reasons_are_documented() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/access-log.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut reasons = "| reason | status | ending | meaning |\n|---|---|---|---|\n".to_owned();
    for reason in Reason::ALL {
        let (label, status) = (reason.label(), reason.status_code());
        let (ending, what) = (reason.ending().label(), reason.what());
        reasons.push_str(&format!("| `{label}` | {status} | {ending} | {what} |\n"));
    }
    let mut fields = "| field | meaning |\n|---|---|\n".to_owned();
    for (name, what) in LogField::all() {
        fields.push_str(&format!("| `{name}` | {what} |\n"));
    }
    let wanted = in_page(&in_page(&page, "fields", &fields), "reasons", &reasons);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(
        page == wanted,
        "UPDATE_EXPECT=1 rewrites {}",
        path.display()
    );
}

/// A line of these fields, each with its name, for a request and an answer with these headers.
fn chosen(chosen: &[(&str, &str)], headers: &HeaderMap, answer: &[&HeaderMap]) -> String {
    let fields = chosen
        .iter()
        .map(|(name, field)| LogField::new(name, field));
    let fields = LogFields::new(fields.collect::<Result<_, _>>().unwrap());
    let mut line = Line::default();
    line.begin(LogFormat::Json, &fields, &head(headers));
    for headers in answer {
        line.answer(&fields, headers);
    }
    let mut out = Vec::new();
    line.end(&fields, &tail(None), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_line_has_the_fields_that_are_chosen_in_their_order() {
    let mut answer = HeaderMap::new();
    answer.insert("content-type", "text/html".parse().unwrap());
    let line = chosen(
        &[
            ("status", "status"),
            ("type", "response.header.content-type"),
            ("time", "time"),
            ("say \"hi\"", "path"),
            ("throttle", "throttle"),
            ("agent", "request.header.User-Agent"),
            ("node", "node"),
        ],
        &headers(),
        &[&answer],
    );
    let wanted = concat!(
        r#"{"status":200,"type":"text/html","time":"2000-10-10T13:55:36.000000Z","say \"hi\"":"/cart?item=1","#,
        r#""agent":"curl/8 \"quoted\"","node":"n1"}"#,
        "\n"
    );
    assert_eq!(line, wanted);
    // Nothing applies: still an object.
    let none = chosen(&[("throttle", "throttle")], &headers(), &[]);
    assert_eq!(none, "{}\n");
}

#[test]
fn the_last_answer_is_the_one_that_counts() {
    let answer = |value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("etag", value.parse().unwrap());
        headers
    };
    let field = [("etag", "response.header.etag"), ("site", "site")];
    let line = chosen(&field, &headers(), &[&answer("long-one"), &answer("b")]);
    assert_eq!(line, "{\"etag\":\"b\",\"site\":\"shop\"}\n");
    assert_eq!(chosen(&field, &headers(), &[]), "{\"site\":\"shop\"}\n");
}

#[test]
fn a_header_is_bounded_and_escaped_and_its_lines_are_one() {
    let of = |values: &[&[u8]]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("x-a", http::HeaderValue::from_bytes(value).unwrap());
        }
        let line = chosen(&[("a", "request.header.x-a")], &headers, &[]);
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        object.get("a").map(|it| it.as_str().unwrap().to_owned())
    };
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[b"a\"b\\c\xff"]).unwrap(), "a\"b\\c\u{ff}");
    assert_eq!(of(&[b"a", b"", b"b"]).unwrap(), "a, , b");
    let long = [b'x'; FIELD_BYTES_MAX + 1];
    let cut = "x".repeat(FIELD_BYTES_MAX);
    assert_eq!(of(&[&long]).unwrap(), cut);
    assert_eq!(of(&[&long, &long]).unwrap(), cut);
    assert_eq!(of(&[&long[..9], &long]).unwrap().len(), FIELD_BYTES_MAX);
}

/// A line that began with other fields has what it has of them, and is an object all the same.
#[test]
fn fields_that_change_under_way_break_no_line() {
    let fields = |names: &[&str]| {
        let fields = names.iter().map(|name| LogField::new(name, name));
        LogFields::new(fields.collect::<Result<_, _>>().unwrap())
    };
    let mut line = Line::default();
    let headers = headers();
    line.begin(LogFormat::Json, &fields(&["path"]), &head(&headers));
    for other in [
        fields(&["time", "status", "client", "response.header.etag"]),
        LogFields::default(),
    ] {
        let mut out = Vec::new();
        line.end(&other, &tail(None), &mut out);
        let object: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            (&object["path"], &object["status"]),
            (&"/cart?item=1".into(), &200.into())
        );
    }
}

#[test]
fn a_field_is_known_or_an_error() {
    for (name, _) in LogField::all() {
        assert!(!LogField::new("a", name).unwrap().is_secret(), "{name}");
    }
    let error = |field| LogField::new("a", field).unwrap_err();
    for field in ["", "Time", "request", "header.a"] {
        assert_eq!(error(field), LogFieldError::Unknown, "{field}");
    }
    for field in [
        "request.header.",
        "request.headers.a",
        "response.header.a b",
        "request.header.\u{e4}",
    ] {
        assert_eq!(error(field), LogFieldError::BadHeader, "{field}");
    }
    for secret in ["request.header.Cookie", "response.header.set-cookie"] {
        assert!(LogField::new("a", secret).unwrap().is_secret(), "{secret}");
    }
}
