//! Recordings of all kinds, and the series they come to.

use std::io::Write;
use std::path::PathBuf;

use super::*;
use crate::time::SECOND;

/// 31 May 2024, 10:00:00 UTC.
const AT: i64 = 1_717_149_600 * SECOND;

struct Read {
    recording: Recording,
    report: FileReport,
    unknown_cpus: Vec<String>,
}

/// Reads a text as if it were a file.
fn read_in_zone(text: &str, ahead_of_utc: i64) -> Read {
    let path: PathBuf = std::env::temp_dir().join(format!(
        "tidegate-recording-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let mut recording = Recording::new(ahead_of_utc);
    let mut report = FileReport::new(&path);
    recording.read(&path, &mut report).unwrap();
    let unknown_cpus = recording.count_cpus(None);
    recording.finish();
    std::fs::remove_file(&path).unwrap();
    Read {
        recording,
        report,
        unknown_cpus,
    }
}

#[test]
fn how_many_cpus_there_are_is_told_counted_or_unknown() {
    const HEADER: &str = "# hostname;interval;timestamp;CPU;%user;%iowait;%steal;%idle\n";
    let row = |second: u32, cpu: i32| {
        format!("db1;1;2024-05-31 10:00:0{second} UTC;{cpu};50.00;0.00;0.00;50.00\n")
    };
    let restart = "db1;-1;2024-05-31 10:00:01 UTC;LINUX-RESTART\t(4 CPU)\n";
    let of = |text: String| {
        let found = read(&format!("{HEADER}{text}"));
        let Unit::Busy { capacity } = unit(&found, "db1 cpu") else {
            panic!("no capacity");
        };
        let spans = spans(&found, "db1 cpu");
        let all: Vec<_> = spans.into_iter().map(|(_, _, mean)| mean).collect();
        (capacity, all, found.unknown_cpus)
    };
    // `sadf -d` of a file without a restart says nothing: all of them count as one.
    let nothing = of(row(1, -1) + &row(2, -1));
    assert_eq!(nothing, (1.0, vec![500, 500], vec!["db1".to_owned()]));
    // Rows of single CPUs (`-P ALL`) tell, and a restart does, for what was before it too.
    let rows = of(row(1, -1) + &row(1, 0) + &row(1, 1) + &row(2, -1));
    assert_eq!(rows, (2.0, vec![1000, 1000], Vec::new()));
    let late = of(row(1, -1) + restart + &row(2, -1));
    assert_eq!(late, (4.0, vec![2000, 2000], Vec::new()));
}

fn read(text: &str) -> Read {
    read_in_zone(text, 0)
}

/// Ends of the intervals in seconds from [`AT`], lengths in seconds, and means in thousandths.
fn spans(read: &Read, name: &str) -> Vec<(i64, i64, i64)> {
    let series = &read.recording.series.get(name);
    let series = series.unwrap_or_else(|| panic!("{name} among {:?}", names(read)));
    let seconds = |nanos: i64| nanos / SECOND;
    let of = |span: &Span| {
        let mean = (span.mean * 1000.0).round() as i64;
        (seconds(span.to - AT), seconds(span.to - span.from), mean)
    };
    series.spans.iter().map(of).collect()
}

fn names(read: &Read) -> Vec<&str> {
    read.recording.series.keys().map(String::as_str).collect()
}

fn unit(read: &Read, name: &str) -> Unit {
    read.recording.series[name].unit
}

#[test]
fn sadf_with_semicolons() {
    let found = read(
        "# hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle\n\
         db1;-1;2024-05-31 09:59:59 UTC;LINUX-RESTART\t(4 CPU)\n\
         db1;1;2024-05-31 10:00:01 UTC;-1;20.00;0.00;5.00;10.00;0.00;65.00\n\
         db1;1;2024-05-31 10:00:02 UTC;-1;40.00;0.00;10.00;0.00;25.00;25.00\n\
         db1;1;2024-05-31 10:00:02 UTC;0;40.00;0.00;10.00;0.00;25.00;25.00\n\
         # hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s;%util\n\
         db1;1;2024-05-31 10:00:01 UTC;sda;10.00;1.00;2.00;30.00\n\
         # hostname;interval;timestamp;IFACE;rxpck/s;txpck/s;rxkB/s;txkB/s\n\
         db1;1;2024-05-31 10:00:01 UTC;eth0;1.00;1.00;10.00;20.00\n\
         db1;1;2024-05-31 10:00:01 UTC;lo;1.00;1.00;10.00;20.00\n\
         # hostname;interval;timestamp;proc/s;cswch/s\n\
         db1;1;2024-05-31 10:00:01 UTC;0.50;123.00\n",
    );
    assert_eq!(found.report.format, "sadf -d");
    assert_eq!(found.report.bad_lines, 0, "{:?}", found.report);
    assert_eq!(spans(&found, "db1 cpu"), [(1, 1, 1000), (2, 1, 2000)]);
    assert_eq!(unit(&found, "db1 cpu"), Unit::Busy { capacity: 4.0 });
    assert_eq!(spans(&found, "db1 disk sda"), [(1, 1, 300)]);
    assert_eq!(spans(&found, "db1 net eth0 kB/s"), [(1, 1, 30_000)]);
    assert_eq!(unit(&found, "db1 net eth0 kB/s"), Unit::Rate);
    assert_eq!(spans(&found, "db1 context switches/s"), [(1, 1, 123_000)]);
    assert_eq!(names(&found).len(), 4);
    assert!(found.recording.series["db1 cpu"].zoned);
}

#[test]
fn local_times_of_sadf_have_no_zone_until_they_get_one() {
    let text = "# hostname;interval;timestamp;CPU;%user;%iowait;%steal;%idle\n\
                db1;60;2024-05-31 12:01:00;-1;20.00;0.00;0.00;80.00\n";
    let found = read_in_zone(text, 7200 * SECOND);
    assert_eq!(spans(&found, "db1 cpu"), [(60, 60, 200)]);
    assert!(!found.recording.series["db1 cpu"].zoned);
    let epoch = text.replace("2024-05-31 12:01:00", "1717149660");
    let found = read_in_zone(&epoch, 7200 * SECOND);
    assert_eq!(spans(&found, "db1 cpu"), [(60, 60, 200)]);
}

#[test]
fn sadf_with_tabs() {
    let found = read(
        "db1\t-1\t2024-05-31 09:59:59 UTC\tLINUX-RESTART\t(2 CPU)\t\n\
         db1\t1\t2024-05-31 10:00:01 UTC\tall\t%user\t20.00\n\
         db1\t1\t2024-05-31 10:00:01 UTC\tall\t%iowait\t10.00\n\
         db1\t1\t2024-05-31 10:00:01 UTC\tall\t%idle\t40.00\n\
         db1\t1\t2024-05-31 10:00:02 UTC\tall\t%user\t20.00\n\
         db1\t1\t2024-05-31 10:00:02 UTC\tall\t%idle\t80.00\n\
         db1\t1\t2024-05-31 10:00:02 UTC\t-\tcswch/s\t7.00\n",
    );
    assert_eq!(found.report.format, "sadf -p");
    assert_eq!(found.report.bad_lines, 0, "{:?}", found.report);
    assert_eq!(spans(&found, "db1 cpu"), [(1, 1, 1000), (2, 1, 400)]);
    assert_eq!(spans(&found, "db1 context switches/s"), [(2, 1, 7000)]);
}

#[test]
fn sadf_as_json() {
    let found = read(
        r#"{"sysstat": {"hosts": [{"nodename": "db1", "number-of-cpus": 4, "statistics": [
            {"timestamp": {"date": "2024-05-31", "time": "10:00:01", "utc": 1, "interval": 1},
             "cpu-load": [{"cpu": "all", "user": 20.0, "iowait": 10.0, "steal": 0.0, "idle": 65.0},
                          {"cpu": "0", "idle": 1.0}],
             "process-and-context-switch": {"proc": 1.0, "cswch": 55.0},
             "disk": [{"disk-device": "sda", "util-percent": 12.5}, {"disk-device": "sdb", "util": 50.0}],
             "network": {"net-dev": [{"iface": "eth0", "rxkB": 1.0, "txkB": 2.0}]}},
            {"timestamp": {}, "cpu-load": []}]}]}}"#,
    );
    assert_eq!(found.report.format, "sadf -j");
    assert_eq!(
        (found.report.lines, found.report.bad_lines),
        (1, 0),
        "{:?}",
        found.report
    );
    assert_eq!(spans(&found, "db1 cpu"), [(1, 1, 1000)]);
    assert_eq!(spans(&found, "db1 disk sda"), [(1, 1, 125)]);
    assert_eq!(spans(&found, "db1 disk sdb"), [(1, 1, 500)]);
    assert_eq!(spans(&found, "db1 net eth0 kB/s"), [(1, 1, 3000)]);
    assert_eq!(spans(&found, "db1 context switches/s"), [(1, 1, 55_000)]);
    for (text, line) in [
        ("{\n\"sysstat\": {", 2),
        ("{}", 1),
        ("{\"sysstat\":{\"hosts\":3}}", 1),
    ] {
        let found = read(text);
        assert_eq!(found.report.examples[0].line, line, "{text}");
    }
}

#[test]
fn sar_as_people_read_it() {
    let found = read(
        "Linux 6.1.0 (db1) \t05/31/2024 \t_x86_64_\t(4 CPU)\n\n\
         09:59:59 AM     CPU     %user     %nice   %system   %iowait    %steal     %idle\n\
         10:00:00 AM     all     20.00      0.00      5.00      0.00      0.00     75.00\n\
         10:00:00 AM       0     20.00      0.00      5.00      0.00      0.00     75.00\n\
         10:00:02 AM     all     40.00      0.00     10.00      0.00      0.00     50.00\n\
         10:00:02 AM       0     40.00      0.00     10.00      0.00      0.00     50.00\n\
         Average:        all     30.00      0.00      7.50      0.00      0.00     62.50\n\n\
         09:59:59 AM       DEV       tps     rkB/s     wkB/s     %util\n\
         10:00:00 AM       sda      1.00      1.00      1.00     10.00\n\
         10:00:00 AM       sdb      1.00      1.00      1.00     20.00\n",
    );
    assert_eq!(found.report.format, "sar");
    assert_eq!(found.report.bad_lines, 0, "{:?}", found.report);
    assert_eq!(spans(&found, "db1 cpu"), [(0, 1, 1000), (2, 2, 2000)]);
    assert_eq!(spans(&found, "db1 disk sda"), [(0, 1, 100)]);
    assert_eq!(spans(&found, "db1 disk sdb"), [(0, 1, 200)]);
    assert!(!found.recording.series["db1 cpu"].zoned);
}

#[test]
fn sar_over_midnight_and_in_24_hours() {
    let found = read(
        "Linux 6.1.0 (db1) 2024-05-30 _x86_64_ (1 CPU)\n\n\
         23:59:00        CPU     %user   %iowait    %steal     %idle\n\
         23:59:30        all     20.00      0.00      0.00     80.00\n\
         00:00:30        all     40.00      0.00      0.00     60.00\n\
         12:30:00 PM     all     40.00      0.00      0.00     60.00\n",
    );
    assert_eq!(found.report.bad_lines, 0, "{:?}", found.report);
    let midnight = -10 * 3600;
    // The last interval is longer than any recorder's, so it is a hole.
    assert_eq!(
        spans(&found, "db1 cpu"),
        [(midnight - 30, 30, 200), (midnight + 30, 60, 400)]
    );
}

#[test]
fn vmstat_with_times() {
    let found = read(
        "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu----- -----timestamp-----\n \
         r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st                 UTC\n \
         2  0      0 22324956   6888 2100864    0    0  1240  1999  443  799 50  4 45  0  1 2024-05-31 10:00:00\n \
         2  0      0 22324956   6888 2100864    0    0   240 21516  435  198 45  2 46  0  7 2024-05-31 10:00:01\n \
         2  0      0 22324956   6888 2100864    0    0   240 21516  435  300 45  2 20 10  0 2024-05-31 10:00:02\n",
    );
    assert_eq!(found.report.format, "vmstat -t");
    assert_eq!(found.report.bad_lines, 0, "{:?}", found.report);
    // The first row is of all time.
    assert_eq!(spans(&found, "vmstat cpu"), [(1, 1, 470), (2, 1, 700)]);
    assert_eq!(
        spans(&found, "vmstat context switches/s"),
        [(1, 1, 198_000), (2, 1, 300_000)]
    );
    assert!(found.recording.series["vmstat cpu"].zoned);
}

#[test]
fn a_row_of_vmstat_is_looked_at_as_far_as_a_bound_and_no_further() {
    let bad = |more: usize| {
        let more = " 0".repeat(more);
        let row = |second: u32| format!("2 40{more} 2024-05-31 10:00:0{second}\n");
        let rows = [0, 1, 2].map(row).concat();
        let found = read(&format!("procs -----\nr id UTC\n{rows}"));
        found.report.bad_lines
    };
    assert_eq!(bad(60), 0);
    assert_eq!(bad(61), 3);
}

#[test]
fn scrapes_of_node_exporter() {
    let scrape = |time: &str, busy: f64, io: f64| {
        format!(
            "# HELP node_cpu_seconds_total Seconds\n# TYPE node_cpu_seconds_total counter\n\
             node_cpu_seconds_total{{cpu=\"0\",mode=\"idle\"}} 1e+06\n\
             node_cpu_seconds_total{{cpu=\"0\",mode=\"user\"}} {busy}\n\
             node_cpu_seconds_total{{cpu=\"1\",mode=\"system\"}} {busy}\n\
             node_cpu_seconds_total{{cpu=\"1\",mode=\"iowait\"}} {busy}\n\
             node_disk_io_time_seconds_total{{device=\"sda\"}} {io}\n\
             node_network_receive_bytes_total{{device=\"eth0\"}} {busy}\n\
             node_network_transmit_bytes_total{{device=\"eth0\"}} {busy}\n\
             node_network_transmit_bytes_total{{device=\"lo\"}} {busy}\n\
             node_time_seconds {time}\n"
        )
    };
    let text = scrape("1.7171496e+09", 10.0, 1.0) + &scrape("1.7171496015e+09", 10.6, 1.3);
    let found = read(&text);
    assert_eq!(found.report.format, "node_exporter");
    assert_eq!(found.report.bad_lines, 0, "{:?}", found.report);
    let cpu = &found.recording.series["node cpu"];
    assert_eq!(cpu.unit, Unit::Busy { capacity: 2.0 });
    assert_eq!(cpu.spans.len(), 1);
    assert_eq!(cpu.spans[0].from, AT);
    assert_eq!(cpu.spans[0].to, AT + SECOND * 3 / 2);
    assert!((cpu.spans[0].mean - 0.8).abs() < 1e-6);
    assert_eq!(spans(&found, "node disk sda"), [(1, 1, 200)]);
    assert_eq!(spans(&found, "node net eth0 bytes/s"), [(1, 1, 800)]);
    assert!(!names(&found).iter().any(|name| name.contains("lo")));
    // A machine that was started anew.
    let text = scrape("1717149600", 10.0, 1.0) + &scrape("1717149601", 0.5, 0.0);
    assert!(read(&text).recording.series.is_empty());
}

#[test]
fn samples_with_their_own_time() {
    let line = |millis: &str, busy: f64| {
        format!("node_cpu_seconds_total{{cpu=\"0\",mode=\"user\"}} {busy} {millis}\n")
    };
    let prometheus = line("1717149600000", 5.0) + &line("1717149601000", 5.5);
    assert_eq!(spans(&read(&prometheus), "node cpu"), [(1, 1, 500)]);
    let open_metrics =
        line("1717149600.0", 5.0) + "# EOF\n" + &line("1717149602.000", 5.5) + "# EOF\n";
    assert_eq!(spans(&read(&open_metrics), "node cpu"), [(2, 2, 250)]);
}

#[test]
fn readings_of_our_own() {
    let found = read(
        "time,busy_seconds,capacity,resource\n\
         2024-05-31T10:00:00.000Z,100.0,4,db1 cpu\n\
         2024-05-31T12:00:01+02:00,102.0,4,db1 cpu\n\
         1717149602.5,105.0,4,db1 cpu\n\
         1717149602.5,5.0,1,\n\
         1717149603.5,1.0,4,db1 cpu\n\
         1717149604.5,2.0,4,db1 cpu\n",
    );
    assert_eq!(found.report.bad_lines, 0, "{:?}", found.report);
    assert_eq!(
        spans(&found, "db1 cpu"),
        [(1, 1, 2000), (2, 1, 2000), (4, 1, 1000)]
    );
    assert_eq!(unit(&found, "db1 cpu"), Unit::Busy { capacity: 4.0 });
    let found = read("time,busy_seconds,capacity\n0,1,1\n1,1.25,1\n");
    assert_eq!(names(&found), ["resource"]);
}

#[test]
fn bad_lines_are_counted_and_shown() {
    let found =
        read("time,busy_seconds,capacity\nsoon,1,1\n1,x,1\n2,1,0\n3,-1,1\n4\n5,1,1\n6,1.5,1\n");
    assert_eq!((found.report.lines, found.report.bad_lines), (2, 5));
    let shown: Vec<u64> = found.report.examples.iter().map(|bad| bad.line).collect();
    assert_eq!(shown, [2, 3, 4]);
    assert!(
        found.report.examples[0]
            .expected
            .contains("2024-05-31T10:00:00.000Z")
    );
    let found = read("hello\nworld\n");
    assert_eq!((found.report.lines, found.report.bad_lines), (0, 2));
    assert!(found.report.examples[0].expected.contains("sadf"));
    for text in [
        "# hostname;interval;timestamp;CPU;%idle\ndb1;1;now;-1;1\ndb1;x;2024-05-31 10:00:01 UTC;-1;1\nshort\n",
        "Linux 6.1 (db1) today (4 CPU)\nx y\n10:00:00 1 2 3\n",
        "procs\n r  b  us sy id wa st cs UTC\nfoo\n1 2 3 4 5 6 7 8 yesterday 10:00\n",
        "node_time_seconds x\nnode_cpu_seconds_total{ 1\nnode_time_seconds{} 1 y\n",
        "a\tb\tc\td\te\tf\ndb1\t1\t2024-05-31 10:00:01 UTC\tall\t%user\tx\n",
    ] {
        let found = read(text);
        assert!(found.report.bad_lines >= 2, "{text}: {:?}", found.report);
        assert!(found.recording.series.is_empty());
    }
}

#[test]
fn what_overlaps_counts_once() {
    let found = read(
        "# hostname;interval;timestamp;CPU;%iowait;%steal;%idle\n\
         a;2;2024-05-31 10:00:02 UTC;-1;0;0;50\n\
         a;2;2024-05-31 10:00:03 UTC;-1;0;0;20\n\
         a;2;2024-05-31 10:00:03 UTC;-1;0;0;99\n\
         a;99999;2024-05-31 10:00:05 UTC;-1;0;0;99\n",
    );
    assert_eq!(spans(&found, "a cpu"), [(2, 2, 500), (3, 1, 800)]);
}
