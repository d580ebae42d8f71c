//! `tidegate culprits` through the binary itself, with logs and recordings of all kinds.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tidegate_core::prng::Prng;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .arg("culprits")
        .args(arguments)
        .current_dir(folder());
    command
}

fn culprits(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let mut all = arguments.to_vec();
    all.push("--json");
    let ran = culprits(&all);
    assert!(ran.stderr.is_empty(), "{}", text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stdout));
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// Name, requests and milliseconds at servers of each class with requests, by name.
fn classes(value: &Value) -> Vec<(String, u64, i64)> {
    let class = |it: &Value| {
        let name = it["name"].as_str().unwrap().to_owned();
        let millis = (it["seconds"].as_f64().unwrap() * 1000.0).round() as i64;
        (name, it["requests"].as_u64().unwrap(), millis)
    };
    let mut classes: Vec<_> = value["classes"]
        .as_array()
        .unwrap()
        .iter()
        .map(class)
        .collect();
    classes.retain(|(_, requests, _)| *requests > 0);
    classes.sort();
    classes
}

struct Golden {
    file: &'static str,
    arguments: &'static [&'static str],
    format: &'static str,
    lines: u64,
    bad: u64,
    not_sent: u64,
    classes: &'static [(&'static str, u64, i64)],
}

#[test]
fn every_kind_of_log_is_understood() {
    for golden in [
        Golden {
            file: "apache.log",
            arguments: &[],
            format: "common or combined with %D, microseconds (assumed by their size)",
            lines: 6,
            bad: 1,
            not_sent: 0,
            classes: &[
                ("GET /img/*.png", 1, 0),
                ("GET /item/{n}", 2, 6),
                ("GET /search/shoes?page", 1, 412),
                ("POST /cart", 1, 8),
            ],
        },
        Golden {
            file: "paper004.log",
            arguments: &["--log-format", "%h %D %X %P %{%s}t %T %U"],
            format: "Apache format",
            lines: 4,
            bad: 1,
            not_sent: 0,
            classes: &[
                ("/PHP/*.jpg", 1, 0),
                ("/PHP/BrowseCategories.php", 1, 0),
                ("/PHP/SearchItemsByCategory.php", 2, 2000),
            ],
        },
        Golden {
            file: "nginx.log",
            arguments: &["--class", "search=/search/*"],
            format: "common or combined with $request_time, seconds (assumed by their fractions)",
            lines: 4,
            bad: 0,
            not_sent: 1,
            classes: &[("GET /item/{n}", 1, 2), ("search", 2, 1050)],
        },
        Golden {
            file: "haproxy.log",
            arguments: &[],
            format: "HAProxy HTTP log",
            lines: 4,
            bad: 1,
            not_sent: 1,
            classes: &[
                ("shop GET /item/{n}", 1, 4),
                ("shop GET /search/shoes", 1, 379),
            ],
        },
        Golden {
            file: "tidegate.json",
            arguments: &[],
            format: "Tidegate, JSON",
            lines: 3,
            bad: 0,
            not_sent: 1,
            classes: &[
                ("shop GET /item/{n}", 1, 3),
                ("shop GET /search/shoes", 1, 350),
            ],
        },
        Golden {
            file: "caddy.json",
            arguments: &[],
            format: "JSON: `ts` is the end, `duration` (assumed: seconds with a fraction, milliseconds without)",
            lines: 2,
            bad: 1,
            not_sent: 0,
            classes: &[
                ("shop.example GET /item/{n}", 1, 3),
                ("shop.example GET /search/shoes?page", 1, 250),
            ],
        },
    ] {
        check(&golden);
    }
}

fn check(golden: &Golden) {
    let mut arguments = vec!["--access-log", golden.file, "--resource", "cpu.csv"];
    arguments.extend(golden.arguments);
    let value = json(&arguments);
    let log = &value["access_logs"][0];
    assert_eq!(log["format"], golden.format, "{log}");
    assert_eq!(log["lines"], golden.lines, "{log}");
    assert_eq!(log["bad_lines"], golden.bad, "{log}");
    assert_eq!(
        value["requests_not_sent"], golden.not_sent,
        "{}",
        golden.file
    );
    let expected = golden.classes.iter();
    let expected: Vec<_> = expected
        .map(|(name, count, ms)| ((*name).to_owned(), *count, *ms))
        .collect();
    assert_eq!(classes(&value), expected, "{}", golden.file);
    let resource = &value["resources"][0];
    assert_eq!(resource["name"], "db1 cpu");
    assert_eq!(resource["capacity"], 2.0);
    assert_eq!(resource["interval_seconds"], 1.0);
}

#[test]
fn text_for_people_names_bad_lines_and_assumptions() {
    let ran = culprits(&["--access-log", "apache.log", "--resource", "cpu.csv"]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let shown = text(&ran.stdout);
    for part in [
        "apache.log: common or combined with %D",
        "6 lines, 1 bad lines",
        "apache.log:6: expected client - user [time] \"request\" status bytes, found `this is no line of a log`",
        "the time of a line is the start of its request",
        "times are known to 1 s, placed within it by the order of lines",
        "1 lines without a request",
        "5 requests in 4 classes, 2024-05-31 10:00:00 to 2024-05-31 10:00:03 UTC",
        "db1 cpu: ",
        "GET /item/{n}",
    ] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
}

#[test]
fn gzip_and_standard_input_are_read_like_files() {
    let plain = std::fs::read(folder().join("nginx.log")).unwrap();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&plain).unwrap();
    let packed = packed.finish().unwrap();
    let mut child = command(&["--access-log", "-", "--resource", "cpu.csv", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&packed).unwrap();
    let ran = child.wait_with_output().unwrap();
    let value: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let of_file = json(&["--access-log", "nginx.log", "--resource", "cpu.csv"]);
    assert_eq!(value["classes"], of_file["classes"]);
    assert_eq!(value["resources"], of_file["resources"]);
    assert_eq!(value["access_logs"][0]["file"], "-");
}

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

#[test]
fn hostile_lines_are_counted_and_nothing_more() {
    let folder = Folder::new("hostile");
    let mut log = std::fs::read(self::folder().join("apache.log")).unwrap();
    log.extend(vec![b'x'; 300_000]);
    log.extend(b"\n\xff\xfe\x00\x01[[[[\"\"\"\n");
    log.extend(
        b"10.1.1.2 - - [31/May/99999:10:00:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\" 5\n",
    );
    log.extend(b"10.1.1.2 - - [31/May/2024:10:00:04 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\" 99999999999999999999\n");
    log.extend(
        b"10.1.1.2 - - [31/May/1924:10:00:04 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\" 5\n",
    );
    // Three thousand names, as long as they come.
    for name in 0..3000_u64 {
        let path = format!(
            "/{}-{}",
            "é".repeat(200),
            name.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        );
        let line = format!(
            "10.1.1.2 - - [31/May/2024:10:00:04 +0000] \"GET /p{path} HTTP/1.1\" 200 1 \"-\" \"-\" 90\n"
        );
        log.extend(line.into_bytes());
    }
    // A request from far away in time makes no million bins of the clocks' comparison.
    log.extend(
        b"10.1.1.2 - - [31/May/2224:10:00:04 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\" 90\n",
    );
    let path = folder.file("hostile.log", log);
    let value = json(&["--access-log", &path, "--resource", "cpu.csv"]);
    let read = &value["access_logs"][0];
    assert_eq!(read["bad_lines"], 6, "{read}");
    assert_eq!(read["lines"], 6 + 3000 + 1, "{read}");
    assert_eq!(read["examples"].as_array().unwrap().len(), 3);
    assert!(value["classes"].as_array().unwrap().len() <= 201);
}

#[test]
fn what_is_not_understood_at_all_is_a_failure() {
    let folder = Folder::new("nothing");
    let words = folder.file("words", "hello\nworld\n");
    let empty = folder.file("empty", "");
    for (log, resource, part) in [
        (words.as_str(), "cpu.csv", "words:1: expected an access log"),
        ("apache.log", words.as_str(), "words:1: expected sadf -d"),
        (empty.as_str(), "cpu.csv", "the file is empty"),
        ("absent.log", "cpu.csv", "absent.log: No such file"),
    ] {
        let ran = culprits(&["--access-log", log, "--resource", resource]);
        assert_eq!(ran.status.code(), Some(1));
        let why = text(&ran.stderr);
        assert!(why.contains(part), "{part}: {why}");
    }
    let usual = ["--access-log", "apache.log", "--resource", "cpu.csv"];
    for (arguments, part) in [
        (
            vec!["--log-format", "%h %r"],
            "--log-format: the format has no time",
        ),
        (vec!["--utc-offset", "Berlin"], "is no offset"),
        (vec!["--class", "search"], "a pattern is a path"),
    ] {
        let ran = culprits(&[&usual[..], &arguments].concat());
        assert_eq!(ran.status.code(), Some(2));
        let why = text(&ran.stderr);
        assert!(why.contains(part), "{part}: {why}");
    }
    let ran = culprits(&["--access-log", "-", "--resource", "-"]);
    assert_eq!(ran.status.code(), Some(2));
}

/// Ten minutes of a shop: few searches that take a database's CPU, many pages that do not. The
/// database's times have no zone and its clock is 17 s ahead.
struct Shop {
    log: String,
    sadf: String,
}

const SECONDS: usize = 600;
const START: i64 = 1_717_149_600;

fn shop(zone_seconds: i64) -> Shop {
    let mut prng = Prng::new(5);
    let mut busy = vec![0.1; SECONDS + 60];
    let mut ends: Vec<(f64, String, f64)> = Vec::new();
    let mut arrivals =
        |rate: f64, mut path: Box<dyn FnMut(&mut Prng) -> String>, mean: f64, cost: f64| {
            let mut at = prng.exponential(1.0 / rate);
            while at < SECONDS as f64 {
                let life = 0.001 + prng.exponential(mean);
                ends.push((at + life, path(&mut prng), life));
                // Its work is spread over its life.
                for part in 0..10 {
                    let moment = at + life * f64::from(part) / 10.0;
                    busy[moment as usize] += cost * life / 10.0;
                }
                at += prng.exponential(1.0 / rate);
            }
        };
    arrivals(
        0.5,
        Box::new(|prng| format!("/search/{}?q={}", prng.below(1000), prng.bits())),
        0.5,
        0.9,
    );
    arrivals(
        20.0,
        Box::new(|prng| format!("/item/{}", prng.below(1000))),
        0.01,
        0.05,
    );
    arrivals(
        5.0,
        Box::new(|prng| format!("/img/{}.png", prng.bits())),
        0.002,
        0.0,
    );
    arrivals(2.0, Box::new(|_| "/".into()), 0.02, 0.02);
    ends.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut log = String::new();
    for (end, path, life) in ends {
        let end = START as f64 + end;
        writeln!(
            log,
            r#"{{"msec":"{end:.3}","request":"GET {path} HTTP/1.1","upstream_response_time":"{life:.3}"}}"#
        )
        .unwrap();
    }
    let mut sadf = String::from(
        "# hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle\n",
    );
    for (second, busy) in busy.iter().enumerate().take(SECONDS) {
        let at = START + second as i64 + 1 + 17 + zone_seconds;
        let (hour, minute, second) = (at / 3600 % 24, at / 60 % 60, at % 60);
        let used = (100.0 * busy / 2.0).min(100.0);
        writeln!(
            sadf,
            "db1;1;2024-05-31 {hour:02}:{minute:02}:{second:02};-1;{used:.2};0.00;0.00;0.00;0.00;{:.2}",
            100.0 - used
        )
        .unwrap();
    }
    Shop { log, sadf }
}

#[test]
fn searches_are_found_though_zone_and_clock_are_wrong() {
    let shop = shop(2 * 3600);
    let folder = Folder::new("shop");
    let log = folder.file("shop.log", &shop.log);
    let sadf = folder.file("shop.sadf", &shop.sadf);
    let files = ["--access-log", &log, "--resource", &sadf];
    let value = json(&files);
    let resource = &value["resources"][0];
    assert_eq!(resource["clock"]["certain"], true, "{resource}");
    assert_eq!(resource["clock"]["ahead_seconds"], 7217.0, "{resource}");
    let first = &resource["pearson"][0];
    assert_eq!(first["class"], "GET /search/{n}?q", "{resource}");
    assert!(first["r"].as_f64().unwrap() > 0.4, "{first}");
    assert!(first["p"].as_f64().unwrap() < 1e-6, "{first}");
    // The zone alone leaves 17 s, and those are found as well.
    let value = json(&[&files[..], &["--utc-offset", "+02:00"]].concat());
    assert_eq!(value["resources"][0]["clock"]["ahead_seconds"], 17.0);
    // Without a look at the clocks nothing is left of it.
    let value = json(&[&files[..], &["--utc-offset", "+02:00", "--no-align"]].concat());
    let resource = &value["resources"][0];
    assert!(resource["clock"].is_null());
    let pearson = resource["pearson"].as_array().unwrap();
    let search = pearson
        .iter()
        .find(|it| it["class"] == "GET /search/{n}?q")
        .unwrap();
    assert!(search["r"].as_f64().unwrap() < 0.2, "{search}");
}

#[test]
fn logs_and_resources_of_different_days_say_so() {
    let folder = Folder::new("days");
    let cpu = folder.file(
        "cpu.csv",
        "time,busy_seconds,capacity\n1000,1,1\n1001,2,1\n1002,3,1\n",
    );
    let ran = culprits(&["--access-log", "apache.log", "--resource", &cpu]);
    assert_eq!(ran.status.code(), Some(0));
    let shown = text(&ran.stdout);
    assert!(
        shown.contains("share too little time: see --utc-offset"),
        "{shown}"
    );
}
