//! `sadf -j`: one object with hosts, their statistics and the time of each.

use serde_json::Value;

use super::{Recording, row};
use crate::time::{SECOND, Stamp};

/// Reads the object; how many samples it has. An error has the line and what was expected.
pub(super) fn read(text: &str, recording: &mut Recording) -> Result<u64, (u64, &'static str)> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| (error.line() as u64, "JSON as `sadf -j` writes it"))?;
    let hosts = value.pointer("/sysstat/hosts").and_then(Value::as_array);
    let hosts = hosts.ok_or((1, "an object `sysstat` with `hosts`"))?;
    let mut samples = 0;
    for host in hosts {
        let name = host
            .get("nodename")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let cpus = host.get("number-of-cpus").and_then(Value::as_f64);
        let cpus = cpus.filter(|cpus| *cpus >= 1.0);
        let statistics = host.get("statistics").and_then(Value::as_array);
        for sample in statistics.into_iter().flatten() {
            let Some(time) = sample.get("timestamp").and_then(interval) else {
                continue;
            };
            samples += 1;
            one(sample, (name, cpus), time, recording);
        }
    }
    Ok(samples)
}

/// What a column of sysstat's tables is called in an object.
type Key = fn(&str) -> Option<&'static str>;

fn one(sample: &Value, host: (&str, Option<f64>), time: (Stamp, i64), recording: &mut Recording) {
    let rows = |way: &str| sample.pointer(way).and_then(Value::as_array);
    let tables: [(&str, &str, Key); 5] = [
        ("/cpu-load", "cpu", cpu),
        ("/cpu-load-all", "cpu", cpu),
        ("/disk", "disk-device", disk),
        ("/network/net-dev", "iface", net),
        ("/process-and-context-switch", "", switches),
    ];
    for (way, device, key) in tables {
        let single = sample.pointer(way).filter(|table| table.is_object());
        let all = rows(way).into_iter().flatten().chain(single);
        for values in all {
            let device = values
                .get(device)
                .and_then(Value::as_str)
                .unwrap_or_default();
            row(recording, host, time, device, |name| {
                let own = key(name)?;
                // Older releases leave the `-percent` away.
                let value = values
                    .get(own)
                    .or_else(|| values.get(own.trim_end_matches("-percent")));
                value.and_then(Value::as_f64)
            });
        }
    }
}

/// The end and the length of an interval.
fn interval(timestamp: &Value) -> Option<(Stamp, i64)> {
    let text = |name: &str| timestamp.get(name).and_then(Value::as_str);
    let end = Stamp::iso(&format!("{} {}", text("date")?, text("time")?))?;
    let utc = timestamp.get("utc").and_then(Value::as_u64) == Some(1) || text("tz") == Some("UTC");
    let seconds = timestamp.get("interval").and_then(Value::as_i64)?;
    Some((Stamp { zoned: utc, ..end }, seconds.checked_mul(SECOND)?))
}

// What the columns of a table are called here.

fn cpu(column: &str) -> Option<&'static str> {
    match column {
        "%idle" => Some("idle"),
        "%iowait" => Some("iowait"),
        "%steal" => Some("steal"),
        _ => None,
    }
}

fn disk(column: &str) -> Option<&'static str> {
    (column == "%util").then_some("util-percent")
}

fn net(column: &str) -> Option<&'static str> {
    match column {
        "rxkB/s" => Some("rxkB"),
        "txkB/s" => Some("txkB"),
        _ => None,
    }
}

fn switches(column: &str) -> Option<&'static str> {
    (column == "cswch/s").then_some("cswch")
}
