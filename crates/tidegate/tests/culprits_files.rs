//! Files of `tidegate culprits` that are broken, change, come twice or need a format of their own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json as object};
use support::culprits::{Folder, classes, culprits, json, logs, text};

/// 31 May 2024, 10:00:00 UTC.
const START: i64 = 1_717_149_600;

/// A line of JSON, so many seconds after [`START`].
fn json_line(second: i64) -> String {
    let at = START + second;
    format!(
        "{{\"msec\":\"{at}.000\",\"request\":\"GET /b HTTP/1.1\",\"request_time\":\"0.250\"}}\n"
    )
}

/// The first log of a result.
fn log(value: &Value) -> &Value {
    &value["inputs"]["access_logs"][0]
}

fn has_note(log: &Value, part: &str) -> bool {
    let notes = log["notes"].as_array().unwrap();
    notes.iter().any(|it| it.as_str().unwrap().contains(part))
}

#[test]
fn of_a_gzip_that_breaks_off_what_came_is_used() {
    let folder = Folder::new("broken");
    let all = 5000;
    let whole: String = (0..all).map(|it| json_line(it / 10)).collect();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(whole.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let path = folder.file("half.gz", &packed[..packed.len() / 2]);
    let value = json(&["--access-log", &path, "--resource", "cpu.csv"]);
    let log = log(&value);
    let lines = log["lines"].as_i64().unwrap();
    assert!(lines > all / 3 && lines < all, "{lines} of {all}");
    assert!(
        has_note(log, &format!("breaks off after line {lines}")),
        "{log}"
    );
    assert_eq!(log["bad_lines"], 0, "{log}");
    // Of a head alone nothing comes, and that is said.
    let path = folder.file("head.gz", &packed[..12]);
    let ran = culprits(&["--access-log", &path, "--resource", "cpu.csv"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(
        text(&ran.stderr).contains("breaks off after line 0"),
        "{}",
        text(&ran.stderr)
    );
}

#[test]
fn a_format_that_changes_within_a_file_is_followed() {
    let line = |second: i64, tail: &str| {
        let (minute, second) = (second / 60, second % 60);
        format!(
            "10.0.0.1 - - [31/May/2024:10:{minute:02}:{second:02} +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"x\"{tail}\n"
        )
    };
    let mut log: String = (0..300).map(|it| line(it, "")).collect();
    log.extend((300..600).map(|it| line(it, " 2000")));
    log.extend((600..900).map(json_line));
    let folder = Folder::new("changes");
    let path = folder.file("changes.log", &log);
    let value = json(&["--access-log", &path, "--resource", "cpu.csv"]);
    let read = self::log(&value);
    assert_eq!(
        (&read["lines"], &read["bad_lines"]),
        (&object!(900), &object!(0)),
        "{read}"
    );
    assert_eq!(read["format"], "common or combined, without durations");
    assert!(
        has_note(read, "from line 301 on: common or combined with %D"),
        "{read}"
    );
    assert!(has_note(read, "from line 601 on: JSON"), "{read}");
    assert_eq!(
        classes(&value),
        [("GET /a".into(), 600, 600), ("GET /b".into(), 300, 75_000)]
    );
    // What turns to something that no format understands is an error, after the result.
    log.truncate(line(0, "").len() * 300);
    log.extend((0..300).map(|it| format!("what is this {it}\n")));
    let path = folder.file("ends.log", &log);
    let ran = culprits(&["--access-log", &path, "--resource", "cpu.csv"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(
        text(&ran.stdout).contains("300 bad lines"),
        "{}",
        text(&ran.stdout)
    );
    let why = text(&ran.stderr);
    assert!(
        why.contains("300 of 600 lines were not understood"),
        "{why}"
    );
}

#[test]
fn a_log_that_is_named_twice_is_refused() {
    let folder = Folder::new("twice");
    let log = std::fs::read(logs().join("apache.log")).unwrap();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&log).unwrap();
    let copy = folder.file("copy.gz", packed.finish().unwrap());
    for other in ["apache.log", "./apache.log", copy.as_str()] {
        let ran = culprits(&["--access-log", "apache.log", other, "--resource", "cpu.csv"]);
        assert_eq!(ran.status.code(), Some(1), "{other}");
        let why = text(&ran.stderr);
        assert!(
            why.contains("begins with the same lines as apache.log"),
            "{why}"
        );
    }
}

#[test]
fn a_format_may_be_of_one_file_alone() {
    let own = "paper004.log=%h %D %X %P %{%s}t %T %U";
    let files = [
        "--access-log",
        "paper004.log",
        "nginx.log",
        "--resource",
        "cpu.csv",
    ];
    let value = json(&[&files[..], &["--log-format", own]].concat());
    let logs = value["inputs"]["access_logs"].as_array().unwrap();
    let formats: Vec<_> = logs
        .iter()
        .map(|it| it["format"].as_str().unwrap())
        .collect();
    assert_eq!(formats[0], "Apache format");
    assert!(
        formats[1].starts_with("common or combined with $request_time"),
        "{formats:?}"
    );
    let both = ["--log-format", "%h %t %r", "--log-format", "%t %r"];
    let ran = culprits(&[&files[..], &both].concat());
    assert_eq!(ran.status.code(), Some(2));
    assert!(
        text(&ran.stderr).contains("FILE=FORMAT"),
        "{}",
        text(&ran.stderr)
    );
}
