//! Simulated sites as their operators would have them on disk, for tests: an access log of Apache
//! with `%D` and times in whole seconds, and what sysstat wrote each second.

use std::fmt::Write as _;

use tidegate_sim::elephants::{Resource, START_MS, Trace};

/// When recordings begin, Unix seconds.
pub(super) const START: i64 = 1_717_149_600;

/// The path of a class: folding leaves such paths as they are, however many there are.
pub(super) fn path(class: usize) -> String {
    const WORDS: [&str; 8] = ["ash", "birch", "cedar", "elm", "fir", "larch", "oak", "yew"];
    let word = |digit: usize| WORDS[digit % 8];
    format!("/{}/{}/{}", word(class / 64), word(class / 8), word(class))
}

/// `LogFormat "%h %l %u %t \"%r\" %>s %b %D"`: a line when a request is over, with the second in which
/// it came.
pub(super) fn apache(trace: &Trace) -> String {
    let mut ended: Vec<_> = trace
        .requests
        .iter()
        .filter_map(|it| Some((it.ended?, it)))
        .collect();
    ended.sort_by_key(|(ended, _)| *ended);
    let mut log = String::new();
    for (ended, request) in ended {
        let second = START + since_start(request.sent.nanos()) / 1_000_000_000;
        let at = jiff::Timestamp::from_second(second).unwrap();
        let at = at.strftime("%d/%b/%Y:%H:%M:%S +0000");
        let path = path(request.class.index());
        let micros = ended.nanos_since(request.sent) / 1000;
        writeln!(
            log,
            "10.0.0.1 - - [{at}] \"GET {path} HTTP/1.1\" 200 512 {micros}"
        )
        .unwrap();
    }
    log
}

/// `sadf -d -- -u` of the database's host.
pub(super) fn sadf(trace: &Trace, interval_seconds: i64) -> String {
    let points = &trace.usage[Resource::Database.index()];
    let cores = trace.cores[Resource::Database.index()];
    let mut text = String::from(
        "# hostname;interval;timestamp;CPU;%user;%nice;%system;%iowait;%steal;%idle\n",
    );
    let step = usize::try_from(interval_seconds * 100).unwrap();
    for (from, to) in points
        .iter()
        .step_by(step)
        .zip(points[step..].iter().step_by(step))
    {
        let second = START + (since_start(to.at.nanos()) + 500_000_000) / 1_000_000_000;
        let at = jiff::Timestamp::from_second(second).unwrap();
        let at = at.strftime("%Y-%m-%d %H:%M:%S UTC");
        let length = to.at.nanos_since(from.at) as f64;
        let used = 100.0 * (to.busy_ns - from.busy_ns) as f64 / length / cores;
        let idle = (100.0 - used).clamp(0.0, 100.0);
        writeln!(
            text,
            "db1;{interval_seconds};{at};-1;{used:.2};0.00;0.00;0.00;0.00;{idle:.2}"
        )
        .unwrap();
    }
    text
}

fn since_start(nanos: u64) -> i64 {
    nanos as i64 - START_MS as i64 * 1_000_000
}
