//! `tidegate culprits` through the binary itself, with logs and recordings of all kinds.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json as object};
use support::culprits::{Folder, classes, command, culprits, json, logs, text};
use tidegate_core::prng::Prng;

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
    let log = &value["inputs"]["access_logs"][0];
    assert_eq!(log["format"], golden.format, "{log}");
    assert_eq!(log["lines"], golden.lines, "{log}");
    assert_eq!(log["bad_lines"], golden.bad, "{log}");
    assert_eq!(
        value["inputs"]["requests_not_sent"], golden.not_sent,
        "{}",
        golden.file
    );
    let expected = golden.classes.iter();
    let expected: Vec<_> = expected
        .map(|(name, count, ms)| ((*name).to_owned(), *count, *ms))
        .collect();
    assert_eq!(classes(&value), expected, "{}", golden.file);
    let resource = &value["inputs"]["resources"][0];
    assert_eq!(resource["name"], "db1 cpu");
    assert_eq!(resource["capacity"], 2.0);
    assert_eq!(resource["interval_seconds"], 1.0);
    assert_eq!(value["resources"][0]["name"], "db1 cpu");
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
        "db1 cpu: mean use ",
        "GET /item/{n}",
    ] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
}

#[test]
fn gzip_and_standard_input_are_read_like_files() {
    let plain = std::fs::read(logs().join("nginx.log")).unwrap();
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
    assert_eq!(value["inputs"]["access_logs"][0]["file"], "-");
}

#[test]
fn hostile_lines_are_counted_and_nothing_more() {
    let folder = Folder::new("hostile");
    let mut log = std::fs::read(logs().join("apache.log")).unwrap();
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
    let read = &value["inputs"]["access_logs"][0];
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
    for (second, busy) in busy.iter().enumerate() {
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
    let clock = |value: &Value| value["inputs"]["resources"][0]["clock"].clone();
    assert_eq!(clock(&value)["certain"], true);
    assert_eq!(clock(&value)["ahead_seconds"], 7217.0);
    assert_eq!(accused(&value), ["GET /search/{n}?q"]);
    let first = pair(&value, "GET /search/{n}?q");
    assert!(first["pearson_r"].as_f64().unwrap() > 0.4, "{first}");
    assert!(first["pearson_p"].as_f64().unwrap() < 1e-6, "{first}");
    // Nor do they say how many CPUs there are, unless the user does.
    let few = "db1: how many CPUs there are is not told";
    let has = |value: &Value| value["notes"].to_string().contains(few);
    assert!(has(&value), "{}", value["notes"]);
    let cost = |value: &Value| {
        pair(value, "GET /search/{n}?q")["cost_ms"]
            .as_f64()
            .unwrap()
    };
    let two = json(&[&files[..], &["--cpus", "2"]].concat());
    assert!(!has(&two) && two["inputs"]["resources"][0]["capacity"] == 2.0);
    let times = cost(&two) / cost(&value);
    assert!((times - 2.0).abs() < 0.02, "{times}");
    // The zone alone leaves 17 s, and those are found as well.
    let value = json(&[&files[..], &["--utc-offset", "+02:00"]].concat());
    assert_eq!(clock(&value)["ahead_seconds"], 17.0);
    // Without a look at the clocks nothing is left of it.
    let value = json(&[&files[..], &["--utc-offset", "+02:00", "--no-align"]].concat());
    assert!(clock(&value).is_null());
    let search = pair(&value, "GET /search/{n}?q");
    assert!(search["pearson_r"].as_f64().unwrap() < 0.2, "{search}");
    assert_eq!(accused(&value), [""; 0]);
}

/// What is said of a class and the first resource.
fn pair<'a>(value: &'a Value, class: &str) -> &'a Value {
    let mut classes = value["classes"].as_array().unwrap().iter();
    let found = classes.find(|it| it["name"] == class);
    &found.unwrap_or_else(|| panic!("no {class}"))["pairs"][0]
}

/// Names of accused classes.
fn accused(value: &Value) -> Vec<&str> {
    let classes = value["classes"].as_array().unwrap().iter();
    let accused = classes.filter(|it| it["pairs"][0]["confidence"].is_string());
    accused.map(|it| it["name"].as_str().unwrap()).collect()
}

/// A quarter of an hour of a site as Apache (`%D`, times in whole seconds) and `sadf -d` of each second
/// have it. Searches and reports use 14 % and 7 % of the database; carts follow searches, and pages come
/// in waves, and neither costs anything. Without heavy classes searches and reports are free as well.
fn apache_and_sadf(heavy: bool) -> (String, String) {
    const SECONDS: usize = 900;
    let mut prng = Prng::new(11);
    let mut busy = vec![0.0; SECONDS + 60];
    // End, start, path.
    let mut lines: Vec<(f64, f64, String)> = Vec::new();
    let mut request =
        |lines: &mut Vec<(f64, f64, String)>, at: f64, life: f64, path: String, cost: f64| {
            for part in 0..20 {
                busy[(at + life * f64::from(part) / 20.0) as usize] += cost / 20.0;
            }
            lines.push((at + life, at, path));
            at + life
        };
    let dear = if heavy { 1.0 } else { 0.0 };
    let mut at = 0.0;
    while at < SECONDS as f64 {
        at += prng.exponential(2.0);
        let life = 0.05 + prng.exponential(0.55);
        let path = format!("/search?q={}", prng.below(10_000));
        let ended = request(&mut lines, at, life, path, 0.95 * life * dear);
        if prng.unit() < 0.5 {
            request(
                &mut lines,
                ended + prng.exponential(1.5),
                0.03,
                "/cart".into(),
                0.0,
            );
        }
    }
    at = 0.0;
    while at < SECONDS as f64 {
        at += prng.exponential(15.0);
        let life = 1.0 + prng.exponential(1.5);
        let path = format!("/report/{}", prng.below(10_000));
        request(&mut lines, at, life, path, 0.8 * life * dear);
    }
    at = 0.0;
    while at < SECONDS as f64 {
        let wave = 1.0 + 0.8 * (at / 40.0).sin();
        at += prng.exponential(0.05 / wave);
        let path = ["/", "/item/1", "/img/logo.png", "/help"][prng.below(4)].to_owned();
        request(&mut lines, at, 0.002 + prng.exponential(0.01), path, 0.0005);
    }
    // The database has something of its own to do.
    for second in &mut busy {
        *second += 0.25 + 0.1 * (prng.unit() - 0.5);
    }
    lines.sort_by(|one, other| one.0.total_cmp(&other.0));
    written(lines, &busy[..SECONDS])
}

/// The log, of requests with end, start and path, and the recording, of use by second.
fn written(lines: Vec<(f64, f64, String)>, busy: &[f64]) -> (String, String) {
    let clock = |second: i64| {
        let at = START + second;
        (at / 3600 % 24, at / 60 % 60, at % 60)
    };
    let mut log = String::new();
    for (end, start, path) in lines {
        let (hour, minute, second) = clock(start as i64);
        let micros = ((end - start) * 1e6) as u64;
        writeln!(
            log,
            "10.1.1.2 - - [31/May/2024:{hour:02}:{minute:02}:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 512 {micros}"
        )
        .unwrap();
    }
    let mut sadf = String::from(
        "# hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle\n\
         db1;-1;2024-05-31 09:59:59 UTC;LINUX-RESTART\t(2 CPU)\n",
    );
    for (second, busy) in busy.iter().enumerate() {
        let (hour, minute, at) = clock(second as i64 + 1);
        let used = (100.0 * busy / 2.0).min(100.0);
        writeln!(
            sadf,
            "db1;1;2024-05-31 {hour:02}:{minute:02}:{at:02} UTC;-1;{used:.2};0.00;0.00;0.00;0.00;{:.2}",
            100.0 - used
        )
        .unwrap();
    }
    (log, sadf)
}

#[test]
fn an_apache_log_and_a_sysstat_file_give_the_right_names() {
    let folder = Folder::new("names");
    let (log, sadf) = apache_and_sadf(true);
    let (log, sadf) = (
        folder.file("access.log", log),
        folder.file("sa31.csv", sadf),
    );
    let page = folder.0.join("page.html");
    let files = ["--access-log", &log, "--resource", &sadf];
    let ran = culprits(&[&files[..], &["--html", page.to_str().unwrap()]].concat());
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let shown = text(&ran.stdout);
    let place = |part: &str| {
        shown
            .find(part)
            .unwrap_or_else(|| panic!("{part}:\n{shown}"))
    };
    let verdicts = place("ms per request");
    let search = verdicts + shown[verdicts..].find("GET /search?q").unwrap();
    let report = verdicts + shown[verdicts..].find("GET /report/{n}").unwrap();
    assert!(
        search < report && report < place("completions and use"),
        "{shown}"
    );
    let value = json(&files);
    assert_eq!(accused(&value), ["GET /search?q", "GET /report/{n}"]);
    for (class, cost, share) in [
        ("GET /search?q", 570.0, 0.143),
        ("GET /report/{n}", 2000.0, 0.067),
    ] {
        let pair = pair(&value, class);
        let near =
            |name: &str, truth: f64| (pair[name].as_f64().unwrap() / truth - 1.0).abs() < 0.3;
        assert!(near("cost_ms", cost) && near("share", share), "{pair}");
        assert!(pair["cost_error"].as_f64().unwrap() < 0.5, "{pair}");
        let curve = pair["shift_r"].as_array().unwrap();
        let middle = curve[curve.len() / 2].as_f64().unwrap();
        assert!(
            curve.iter().all(|it| it.as_f64().unwrap() <= middle),
            "{pair}"
        );
    }
    assert_eq!(value["mode"], "offline");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("\"name\":\"GET /report/{n}\"") && page.contains("connect-src 'none'"));
}

#[test]
fn without_elephants_nobody_is_accused() {
    let folder = Folder::new("nobody");
    let (log, sadf) = apache_and_sadf(false);
    let (log, sadf) = (
        folder.file("access.log", log),
        folder.file("sa31.csv", sadf),
    );
    let files = ["--access-log", &log, "--resource", &sadf];
    assert_eq!(accused(&json(&files)), [""; 0]);
    let ran = culprits(&files);
    assert!(
        text(&ran.stdout).contains("nobody is accused, by "),
        "{}",
        text(&ran.stdout)
    );
}

#[test]
fn files_come_in_pairs_and_a_front_end_is_asked_without_any() {
    for (arguments, part) in [
        (vec!["--access-log", "apache.log"], "--resource"),
        (vec!["--resource", "cpu.csv"], "--access-log"),
        (
            vec![
                "--access-log",
                "apache.log",
                "--resource",
                "cpu.csv",
                "--admin",
                "127.0.0.1:1",
            ],
            "cannot be used with",
        ),
    ] {
        let ran = culprits(&arguments);
        assert_eq!(ran.status.code(), Some(2));
        assert!(text(&ran.stderr).contains(part), "{}", text(&ran.stderr));
    }
    let ran = culprits(&["--admin", "127.0.0.1:1"]);
    assert_eq!(ran.status.code(), Some(1));
    let why = text(&ran.stderr);
    assert!(why.contains("no front-end answers at 127.0.0.1:1"), "{why}");
}

/// A front-end that gives each asker this answer.
fn front_end(status: &'static str, body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
            .unwrap();
        }
    });
    address
}

#[test]
fn a_front_end_is_asked_where_there_are_no_files() {
    let folder = Folder::new("live");
    let (log, sadf) = apache_and_sadf(true);
    let (log, sadf) = (
        folder.file("access.log", log),
        folder.file("sa31.csv", sadf),
    );
    let mut report = json(&["--access-log", &log, "--resource", &sadf]);
    report["mode"] = "live".into();
    report.as_object_mut().unwrap().remove("inputs");
    let known = front_end("200 OK", report.to_string());
    let page = folder.0.join("page.html");
    let ran = culprits(&["--admin", &known, "--html", page.to_str().unwrap()]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let shown = text(&ran.stdout);
    assert!(
        shown.contains("ms per request") && shown.contains("GET /report/{n}"),
        "{shown}"
    );
    assert!(
        std::fs::read_to_string(page)
            .unwrap()
            .contains("GET /report/{n}")
    );
    let told = json(&["--admin", &known]);
    assert_eq!(told["mode"], "live");
    for (list, field) in [("classes", "requests"), ("resources", "name")] {
        let of = |report: &Value| -> Vec<Value> {
            let all = report[list].as_array().unwrap().iter();
            all.map(|it| it[field].clone()).collect()
        };
        assert_eq!(of(&told), of(&report));
    }
    let empty = object!({ "mode": "live", "from": 0.0, "to": 0.0, "requests": 0, "notes": [],
        "resources": [], "classes": [], "heatmap": null });
    let ran = culprits(&["--admin", &front_end("200 OK", empty.to_string())]);
    assert!(
        text(&ran.stdout).starts_with("not known yet"),
        "{}",
        text(&ran.stdout)
    );
    let without = front_end(
        "404 Not Found",
        object!({ "error": "not here" }).to_string(),
    );
    let ran = culprits(&["--admin", &without]);
    assert_eq!(ran.status.code(), Some(1));
    let why = text(&ran.stderr);
    assert!(why.contains("does not look for culprits"), "{why}");
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
