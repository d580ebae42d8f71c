//! Lines of all formats, and what they say.

use super::*;

/// 10 October 2000, 20:55:36 UTC.
const AT: i64 = 971_211_336 * SECOND;
const MILLI: i64 = SECOND / 1000;

/// What matters of a line: class, when it was sent and how long it took, in milliseconds from [`AT`].
#[derive(Debug, PartialEq)]
struct Parsed {
    what: String,
    sent: i64,
    life: Option<i64>,
}

fn parsed(what: &str, sent: i64, life: Option<i64>) -> Parsed {
    Parsed {
        what: what.into(),
        sent,
        life,
    }
}

fn of(entry: &Entry<'_>) -> Parsed {
    let parts = [&entry.site, &entry.method, &entry.target];
    let what: Vec<&str> = parts
        .iter()
        .map(|part| &***part)
        .filter(|part| !part.is_empty())
        .collect();
    let life = entry.life();
    let ended = entry.at.nanos + entry.to_end();
    Parsed {
        what: what.join(" "),
        sent: (ended - life.unwrap_or(0) - AT) / MILLI,
        life: life.map(|life| life / MILLI),
    }
}

fn read(format: &Format, line: &str) -> Parsed {
    of(&format.read(line).unwrap().unwrap())
}

fn detected(lines: &[&str]) -> Format {
    let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    Format::detect(&lines).unwrap()
}

fn detect_and_read(line: &str) -> Parsed {
    read(&detected(&[line]), line)
}

const COMMON: &str =
    r#"10.1.1.2 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b=1 HTTP/1.0" 200 2326"#;

#[test]
fn common_and_combined_are_known_without_being_told() {
    assert_eq!(detect_and_read(COMMON), parsed("GET /a?b=1", 0, None));
    let combined = format!(r#"{COMMON} "http://x/ \"y" "Mozilla/4.08 [en] (Win98; I ;Nav)""#);
    assert_eq!(detect_and_read(&combined), parsed("GET /a?b=1", 0, None));
    let vhost = format!("shop.example:443 {COMMON}");
    assert_eq!(
        detect_and_read(&vhost),
        parsed("shop.example GET /a?b=1", 0, None)
    );
}

#[test]
fn a_number_at_the_end_is_told_by_all_of_the_sample() {
    let line = |tail: &str| format!(r#"{COMMON} "-" "x" {tail}"#);
    // %D of Apache: from the start.
    let micros = ["51240", "310", "9"].map(line);
    let format = detected(&micros.each_ref().map(String::as_str));
    assert!(format.name().contains("%D"), "{}", format.name());
    assert_eq!(read(&format, &micros[0]), parsed("GET /a?b=1", 0, Some(51)));
    // %T: no site answers half of its requests in less than 20 us.
    let seconds = ["0", "0", "3"].map(line);
    let format = detected(&seconds.each_ref().map(String::as_str));
    assert!(format.name().contains("%T"), "{}", format.name());
    assert_eq!(
        read(&format, &seconds[2]),
        parsed("GET /a?b=1", 0, Some(3000))
    );
    // What a client says of itself is no duration.
    let agent = format!(r#"{COMMON} "-" "17""#);
    assert_eq!(detect_and_read(&agent), parsed("GET /a?b=1", 0, None));
    // nginx: the time is the end, and the servers were done before the client was.
    assert_eq!(
        detect_and_read(&line("0.250")),
        parsed("GET /a?b=1", -250, Some(250))
    );
    let both = line("0.250 0.100, 0.050");
    assert_eq!(
        detect_and_read(&both),
        parsed("GET /a?b=1", -250, Some(150))
    );
    let redirected = line("0.250 0.100 : 0.050, 0.010 17");
    assert_eq!(detect_and_read(&redirected).life, Some(160));
    assert_eq!(
        detect_and_read(&line("0.250 0.100")),
        parsed("GET /a?b=1", -250, Some(100))
    );
    let format = detected(&[&line("0.250 0.100")]);
    assert!(!format.read(&line("0.001 -")).unwrap().unwrap().sent);
}

#[test]
fn named_times_and_our_own_combined_log() {
    let named = format!(r#"{COMMON} "-" "x" rt=0.300 uct="0.001" uht="0.2" urt="0.200""#);
    assert_eq!(
        detect_and_read(&named),
        parsed("GET /a?b=1", -300, Some(200))
    );
    let own = format!(
        r#"{COMMON} "-" "x" host="h" bytes_in=0 duration_us=90000 queue_us=15000 upstream_us=70000 site="shop" node="n1" tries=1"#
    );
    assert_eq!(
        detect_and_read(&own),
        parsed("shop GET /a?b=1", 15, Some(75))
    );
    let refused = format!(
        r#"{COMMON} "-" "x" host="h" bytes_in=0 duration_us=90 queue_us=0 site="shop" tries=0"#
    );
    let format = detected(&[&refused]);
    assert!(!format.read(&refused).unwrap().unwrap().sent);
}

#[test]
fn apache_as_configured() {
    let compile = |text| Format::parse(text).unwrap();
    let format = compile(
        r#"LogFormat "%v %h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\" %D" full"#,
    );
    let line = r#"shop 10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "POST /a\"b HTTP/1.1" 200 17 "-" "x \"y\"" 1500000"#;
    assert_eq!(
        read(&format, line),
        parsed(r#"shop POST /a\"b"#, 0, Some(1500))
    );
    // Pieces of a time, thousandths of it, path and query apart.
    let format = compile("%h %{%d/%b/%Y:%H:%M:%S}t.%{msec_frac}t %{%z}t %m %U%q %{ms}T");
    let line = "h 10/Oct/2000:13:55:36.250 -0700 GET /a?x=1 40";
    assert_eq!(read(&format, line), parsed("GET /a?x=1", 250, Some(40)));
    assert_eq!(format.read(line).unwrap().unwrap().at.resolution, MILLI);
    assert_eq!(read(&format, &line.replace("?x=1", "")).what, "GET /a");
    // The end of a request, in microseconds.
    let format = compile("%{end:usec}t \"%r\" %D");
    let line = "971211336500000 \"GET / HTTP/1.1\" 500000";
    assert_eq!(read(&format, line), parsed("GET /", 0, Some(500)));
    // Bare requests with spaces around.
    let format = compile("%t %r %s %T");
    let line = "[10/Oct/2000:13:55:36 -0700] GET /a HTTP/1.1 200 2";
    assert_eq!(read(&format, line), parsed("GET /a", 0, Some(2000)));
}

/// The log of Elephants-2005: host, microseconds, connection, process, second, seconds, path.
#[test]
fn the_format_of_paper_004() {
    let format = Format::parse("%h %D %X %P %{%s}t %T %U").unwrap();
    let line = "10.1.1.2 20296 + 1377 971211336 0 /PHP/SearchItemsByCategory.php";
    assert_eq!(
        read(&format, line),
        parsed("/PHP/SearchItemsByCategory.php", 0, Some(0))
    );
    let line = "10.1.1.2 2029600 + 1377 971211336 2 /PHP/RUBiS_logo.jpg";
    assert_eq!(format.read(line).unwrap().unwrap().total, Some(2 * SECOND));
}

#[test]
fn nginx_as_configured() {
    let format = Format::parse(
        "log_format timed escape=default '$remote_addr - $remote_user [$time_local] $host '\n '\"$request\" $status $request_time $upstream_response_time';",
    );
    let line = r#"::1 - - [10/Oct/2000:20:55:36 +0000] shop "GET /a?b HTTP/2.0" 200 1.500 0.500, 0.250 : 0.250"#;
    assert_eq!(
        read(&format.unwrap(), line),
        parsed("shop GET /a?b", -1500, Some(1000))
    );
    let format =
        Format::parse("$msec|$request_method|${request_uri}|$upstream_response_time").unwrap();
    assert_eq!(
        read(&format, "971211336.125|GET|/a|0.125"),
        parsed("GET /a", 0, Some(125))
    );
    assert!(!format.read("971211336.125|GET|/a|-").unwrap().unwrap().sent);
    // The list has the separator in it.
    let format = Format::parse("$msec $upstream_response_time $status $request_uri").unwrap();
    let line = "971211336.125 0.100, 0.010 : 0.015 200 /a";
    assert_eq!(read(&format, line), parsed("/a", 0, Some(125)));
    let format = Format::parse("$time_iso8601 $uri $args $request_time").unwrap();
    let line = "2000-10-10T22:55:36+02:00 /a b=1 0.010";
    assert_eq!(read(&format, line), parsed("/a?b=1", -10, Some(10)));
    assert_eq!(read(&format, &line.replace("b=1", "-")).what, "/a");
}

#[test]
fn a_format_that_says_too_little_is_refused() {
    for (text, part) in [
        ("hello", "directives"),
        ("%h %r", "no time"),
        ("%h %t", "no request"),
        ("%t%r", "nothing between"),
        ("%{%s", "missing"),
        ("%t %r %", "ends with"),
        ("%t %r %1", "ends with"),
        ("%t %r %(", "no directive"),
        ("$time_local $status", "no request"),
        ("$time_local $", "without a variable"),
        ("${time_local $request", "missing"),
        ("", "directives"),
    ] {
        let why = Format::parse(text).unwrap_err();
        assert!(why.contains(part), "{text}: {why}");
    }
}

const HAPROXY: &str = r#"Oct 10 20:55:36 lb haproxy[14389]: 10.0.1.2:33317 [10/Oct/2000:20:55:36.655] http-in static/srv1 10/20/30/69/409 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1""#;

#[test]
fn a_line_is_looked_at_as_far_as_a_bound_and_no_further() {
    let named = |words: usize| {
        let words = "x ".repeat(words);
        format!(r#"::1 - - [10/Oct/2000:20:55:36 +0000] "GET / HTTP/1.1" 200 5 {words}rt=0.5"#)
    };
    let format = detected(&[&named(0)]);
    assert_eq!(read(&format, &named(63)).life, Some(500));
    assert_eq!(read(&format, &named(64)).life, None);
    // Brackets before the date.
    let bracketed = |brackets: usize| HAPROXY.replace(" [", &(" [x] ".repeat(brackets) + "["));
    assert_eq!(read(&Format::Haproxy, &bracketed(7)).sent, 685);
    assert!(Format::Haproxy.read(&bracketed(8)).is_err());
}

#[test]
fn a_format_has_so_many_parts_and_no_more() {
    // A letter, time, blank and request; then a blank and a field each.
    let parts = |letter: &str, more: usize| format!("{letter}%t %r{}", " %h".repeat(more));
    Format::parse(&parts("x", 126)).unwrap();
    let refused = Format::parse(&parts("", 127)).unwrap_err();
    assert!(refused.contains("more than 256 parts"), "{refused}");
}

#[test]
fn haproxy_by_its_timers() {
    assert_eq!(
        detect_and_read(HAPROXY),
        parsed("static GET /index.html", 685, Some(379))
    );
    let six = HAPROXY.replace("10.0.1.2:33317", "[2001:db8::1]:33317");
    assert_eq!(detect_and_read(&six).sent, 685);
    let format = detected(&[HAPROXY]);
    assert_eq!(format.read(HAPROXY).unwrap().unwrap().at.resolution, MILLI);
    let asap = HAPROXY.replace("69/409", "69/+409");
    assert_eq!(read(&format, &asap).life, Some(379));
    // Nothing got to a server, in three ways.
    for (from, to) in [
        (
            "static/srv1 10/20/30/69/409",
            "static/<NOSRV> 10/-1/-1/-1/50",
        ),
        ("10/20/30/69/409", "-1/-1/-1/-1/50"),
        ("10/20/30/69/409", "10/20/-1/-1/50"),
    ] {
        let line = HAPROXY.replace(from, to);
        assert!(!format.read(&line).unwrap().unwrap().sent, "{line}");
    }
    let bad = HAPROXY.replace("GET /index.html HTTP/1.1", "<BADREQ>");
    assert_eq!(format.read(&bad), Ok(None));
    let stopped = "Oct 10 20:55:36 lb haproxy[1]: Server static/srv1 is DOWN.";
    assert!(format.read(stopped).is_err());
}

#[test]
fn objects_by_the_names_of_their_fields() {
    for (line, expected) in [
        // Ours: the start, and the queue before the server.
        (
            r#"{"time":"2000-10-10T20:55:36.000100Z","client":"::1","method":"GET","host":"h","path":"/a?b","status":200,"duration_us":90000,"queue_us":15000,"upstream_us":1,"site":"shop","node":"n1"}"#,
            parsed("shop GET /a?b", 15, Some(75)),
        ),
        // Caddy.
        (
            r#"{"level":"info","ts":971211336.5,"request":{"method":"GET","host":"shop","uri":"/a"},"duration":0.25,"status":200}"#,
            parsed("shop GET /a", 250, Some(250)),
        ),
        // Traefik.
        (
            r#"{"Duration":300000000,"OriginDuration":200000000,"RequestMethod":"GET","RequestPath":"/a","ServiceName":"s@file","StartUTC":"2000-10-10T20:55:36Z","time":"2000-10-10T20:55:37Z"}"#,
            parsed("s@file GET /a", 0, Some(200)),
        ),
        // Envoy.
        (
            r#"{"start_time":"2000-10-10T20:55:36.125Z","method":"GET","path":"/a","duration":40,"authority":"shop"}"#,
            parsed("shop GET /a", 125, Some(40)),
        ),
        // nginx with a request line and a list of servers.
        (
            r#"{"time_local":"10/Oct/2000:20:55:36 +0000","request":"GET /a HTTP/1.1","request_time":"0.500","upstream_response_time":"0.100, 0.200"}"#,
            parsed("GET /a", -500, Some(300)),
        ),
        // Elastic's names, nested.
        (
            r#"{"@timestamp":"2000-10-10T20:55:36.000Z","event":{"duration":2000000},"http":{"request":{"method":"GET"}},"url":{"path":"/a"}}"#,
            parsed("GET /a", -2, Some(2)),
        ),
        // Google's.
        (
            r#"{"timestamp":"2000-10-10T20:55:36Z","httpRequest":{"requestMethod":"GET","requestUrl":"https://shop/a","latency":"0.5s"}}"#,
            parsed("GET https://shop/a", -500, Some(500)),
        ),
        // Small numbers as some write them.
        (
            r#"{"ts":971211336,"method":"GET","uri":"/a","latency":1.5e-2}"#,
            parsed("GET /a", -15, Some(15)),
        ),
    ] {
        assert_eq!(detect_and_read(line), expected, "{line}");
    }
}

#[test]
fn objects_of_requests_that_got_to_no_server() {
    let refused = r#"{"time":"2000-10-10T20:55:36.0001Z","method":"GET","path":"/","duration_us":9,"queue_us":0}"#;
    assert!(!detected(&[refused]).read(refused).unwrap().unwrap().sent);
    let not_sent = r#"{"ts":1,"method":"GET","uri":"/","upstream_response_time":"-"}"#;
    assert!(!detected(&[not_sent]).read(not_sent).unwrap().unwrap().sent);
}

#[test]
fn lines_without_a_request_are_no_errors() {
    let format = detected(&[COMMON]);
    for request in ["-", ""] {
        let line = COMMON.replace("GET /a?b=1 HTTP/1.0", request);
        assert_eq!(format.read(&line), Ok(None));
    }
    // A client that speaks no HTTP.
    let line = COMMON.replace("GET /a?b=1 HTTP/1.0", r"\x16\x03\x01");
    assert_eq!(read(&format, &line).what, r"\x16\x03\x01");
}

#[test]
fn bad_lines_say_what_was_expected() {
    let nginx = Format::parse("$time_local \"$request\" $request_time").unwrap();
    for (format, line, part) in [
        (detected(&[COMMON]), "", "[time]"),
        (
            detected(&[COMMON]),
            "x [yesterday] \"GET / HTTP/1.1\" 200 1",
            "`yesterday`",
        ),
        (
            nginx.clone(),
            "10/Oct/2000:20:55:36 +0000 GET",
            "` \"` after",
        ),
        (
            nginx.clone(),
            "10/Oct/2000:20:55:36 +0000 \"GET / HTTP/1.1\" soon",
            "`soon`",
        ),
        (
            nginx,
            "10/Okt/2000:20:55:36 +0000 \"GET / HTTP/1.1\" 1",
            "`10/Okt",
        ),
        (detected(&[r#"{"ts":1,"uri":"/"}"#]), "{", "JSON"),
        (detected(&[r#"{"ts":1,"uri":"/"}"#]), r#"{"ts":[]}"#, "`ts`"),
        (detected(&[r#"{"ts":1,"uri":"/"}"#]), r#"{"ts":1}"#, "`uri`"),
    ] {
        let Wrong(expected) = format.read(line).unwrap_err();
        assert!(expected.contains(part), "{line}: {expected}");
    }
    assert!(Format::detect(&["hello".into(), "world".into()]).is_none());
    assert!(Format::detect(&[]).is_none());
}

/// What lines are made of, and what they are not.
const PIECES: &[&str] = &[
    "[",
    "]",
    "\"",
    "\\",
    " ",
    " [",
    "] \"",
    "\" 200 1",
    "10/Oct/2000:20:55:36 +0000",
    "GET / HTTP/1.1",
    "{",
    "}",
    ":",
    ",",
    "\"ts\":1",
    "\"uri\":\"/\"",
    "-1",
    "9999999999999999999",
    "0.1",
    "/",
    "1/2/3/4/5",
    "é",
    "\u{0}",
    "=",
    "rt=",
    "duration_us=",
    "a/b",
    "-",
    "1e400",
    "null",
    "[10/Oct/2000:20:55:36.655] ",
];

#[test]
fn no_line_makes_a_reader_panic() {
    let formats = [
        detected(&[COMMON]),
        detected(&[&format!("{COMMON} rt=1.0")]),
        detected(&[&format!("{COMMON} 1.0 2.0")]),
        detected(&[HAPROXY]),
        detected(&[r#"{"ts":1,"uri":"/","duration":1}"#]),
        Format::parse("%h %t \"%r\" %D %{usec_frac}t").unwrap(),
        Format::parse("[$time_local] \"$request\" $upstream_response_time").unwrap(),
    ];
    let mut prng = tidegate_core::prng::Prng::new(17);
    for _ in 0..20_000 {
        let pieces = prng.below(12);
        let line: String = (0..pieces)
            .map(|_| PIECES[prng.below(PIECES.len())])
            .collect();
        for format in &formats {
            if let Ok(Some(entry)) = format.read(&line)
                && entry.is_plausible()
            {
                assert!(entry.life().is_none_or(|life| life >= 0), "{line}");
                assert!(
                    entry.to_end() <= 0 || entry.moment == Moment::Start,
                    "{line}"
                );
            }
        }
    }
    // Good lines with one byte changed or cut off.
    for line in [COMMON, HAPROXY] {
        for at in 0..line.len() {
            for byte in [b' ', b'"', b'9', b'/', b']'] {
                let mut bytes = line.as_bytes().to_vec();
                bytes[at] = byte;
                let changed = String::from_utf8(bytes).unwrap();
                for format in &formats {
                    let whole = format.read(&changed);
                    let cut = format.read(&changed[..at]);
                    assert!(whole.is_ok() || cut.is_err() || at > 0, "{changed}");
                }
            }
        }
    }
}
