//! Nodes whose load another program reports: asked once, as the front-end's reader asks; what came of it, and what did not.
//!
//! Failure case: a number that a front-end knows from the second answer on (CPU time that is counted) is not known here.

use std::time::Duration;

use tidegate_core::load::{ReportedMetric, ReportedValue};
use tidegate_core::topology::{AgentHealth, AgentWeight};
use tidegate_remote::clock;
use tidegate_reported::{AgentLine, PollFault, Probe, SourceConfig, probe};

use super::{Diagnosis, runtime};

const CHECK: &str = "load";
const WHICH_PROGRAM: &str =
    "see which program answers there; docs/integrations.md says what is asked for";

/// Asks for a node's load.
pub(super) fn ask(name: &str, source: &SourceConfig) -> Diagnosis {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return of_probe(name, source, Err(PollFault::Unsent(error.to_string()))),
    };
    let begun = clock::now();
    let probed = runtime.block_on(probe(source));
    let took = clock::now().since(begun);
    of_probe(name, source, probed.map(|it| (it, took)))
}

fn of_probe(
    name: &str,
    source: &SourceConfig,
    probed: Result<(Probe, Duration), PollFault>,
) -> Diagnosis {
    let (protocol, address) = (source.label(), source.address());
    let (probe, took) = match probed {
        Ok(probed) => probed,
        Err(fault) => {
            let text = format!("the load of {name} is not known: {protocol} at {address}: {fault}");
            return Diagnosis::warn(CHECK, text, remedy(source, &fault));
        }
    };
    let ms = took.as_secs_f64() * 1000.0;
    if let Some(line) = &probe.agent {
        let text = format!(
            "the agent of {name} answers at {address} within {ms:.2} ms: {}",
            words(line)
        );
        return Diagnosis::ok(CHECK, text);
    }
    let Probe {
        values, counts_cpu, ..
    } = probe;
    let is_known = |metric| values.iter().any(|it: &ReportedValue| it.metric == metric);
    let known: Vec<_> = values.iter().map(said).collect();
    let counted = match counts_cpu && !is_known(ReportedMetric::Cpu) {
        true => "; cpu from the second answer on",
        false => "",
    };
    let missing = ReportedMetric::ALL.iter();
    let missing = missing.filter(|(metric, _)| {
        let is_counted = counts_cpu && *metric == ReportedMetric::Cpu;
        !is_known(*metric) && !is_counted
    });
    let missing: Vec<_> = missing.map(|(_, label)| *label).collect();
    let missing = match missing.is_empty() {
        true => String::new(),
        false => format!("; nothing of {}", missing.join(", ")),
    };
    let text = format!(
        "the load of {name} is read at {address} within {ms:.2} ms ({protocol}): {}{counted}{missing}",
        known.join(", ")
    );
    let tells_load = [
        ReportedMetric::Cpu,
        ReportedMetric::Runnable,
        ReportedMetric::LoadAverage,
        ReportedMetric::InFlight,
    ];
    match counts_cpu || tells_load.into_iter().any(is_known) {
        true => Diagnosis::ok(CHECK, text),
        false => Diagnosis::warn(CHECK, text, show_more(source)),
    }
}

/// How a source comes to tell a load.
fn show_more(source: &SourceConfig) -> &'static str {
    match source {
        SourceConfig::Snmp(_) => {
            "let its view show UCD-SNMP-MIB or HOST-RESOURCES-MIB, or name objects of its own by `oids`"
        }
        SourceConfig::AgentCheck(_) | SourceConfig::Orca(_) => WHICH_PROGRAM,
    }
}

/// What an agent says, in words.
fn words(line: &AgentLine) -> String {
    let answer = &line.answer;
    let weight = answer.weight.map(|it| match it {
        AgentWeight::Share(share) => format!("weight {:.0} %", 100.0 * share),
        AgentWeight::Absolute(weight) => format!("weight {weight}"),
    });
    let state = answer.state.map(|it| it.label().to_owned());
    let health = answer.health.as_ref().map(|it| match it {
        AgentHealth::Up => "up".to_owned(),
        AgentHealth::Down { word, .. } => (*word).to_owned(),
    });
    let most = answer.most.map(|it| format!("maxconn {it}"));
    let ignored = line.ignored_word.as_ref();
    let ignored = ignored.map(|it| format!("`{it}` is not understood"));
    let all = [weight, state, health, most, ignored];
    let all: Vec<_> = all.into_iter().flatten().collect();
    match all.is_empty() {
        true => "nothing".into(),
        false => all.join(", "),
    }
}

/// A number in words.
fn said(value: &ReportedValue) -> String {
    let label = value.metric.label();
    match value.metric {
        ReportedMetric::Cpu | ReportedMetric::Memory | ReportedMetric::Files => {
            format!("{label} {:.0} %", 100.0 * value.value)
        }
        ReportedMetric::Capacity
        | ReportedMetric::Runnable
        | ReportedMetric::LoadAverage
        | ReportedMetric::InFlight => format!("{label} {}", value.value),
    }
}

fn remedy(source: &SourceConfig, fault: &PollFault) -> &'static str {
    match fault {
        PollFault::NoAnswer(_) => {
            "start what answers there, have it listen for this host, open its port, or correct `load` in [[node]]"
        }
        PollFault::Refused(_) => "correct `load` in [[node]], or the user and its rights there",
        PollFault::NothingThere(_) => show_more(source),
        PollFault::Malformed | PollFault::Implausible => WHICH_PROGRAM,
        PollFault::Unsent(_) => "correct `address` of `load` in [[node]], or this host's routes",
    }
}

#[cfg(test)]
mod tests {
    use tidegate_reported::{Periods, Secret, SnmpConfig, SnmpVersion};

    use super::super::Level;
    use super::*;

    fn source() -> SourceConfig {
        let period = Duration::from_millis(500);
        SourceConfig::Snmp(SnmpConfig {
            address: ([10, 0, 0, 1], 161).into(),
            version: SnmpVersion::V2c(Secret::new("public")),
            periods: Periods {
                usual: period,
                memory: period,
                files: period,
            },
            objects: Vec::new(),
        })
    }

    fn value(metric: ReportedMetric, value: f32) -> ReportedValue {
        ReportedValue {
            metric,
            value,
            period: Duration::ZERO,
            age: Duration::ZERO,
        }
    }

    fn of(values: Vec<ReportedValue>, counts_cpu: bool) -> Diagnosis {
        let probe = Probe {
            values,
            counts_cpu,
            ..Probe::default()
        };
        of_probe("n1", &source(), Ok((probe, Duration::from_millis(2))))
    }

    #[test]
    fn what_was_read_is_said_and_what_was_not() {
        let values = vec![
            value(ReportedMetric::Memory, 0.43),
            value(ReportedMetric::Capacity, 4.0),
        ];
        let found = of(values.clone(), true);
        assert_eq!(found.level, Level::Ok);
        assert_eq!(
            found.text,
            "the load of n1 is read at 10.0.0.1:161 within 2.00 ms (snmp): memory 43 %, capacity 4; cpu from the second \
             answer on; nothing of files, runnable, load_average, in_flight"
        );
        let found = of(values, false);
        assert_eq!(found.level, Level::Warn, "no number of these is a load");
        assert!(
            found.text.contains("nothing of cpu, files"),
            "{}",
            found.text
        );
    }

    #[test]
    fn what_an_agent_says_is_said_in_words() {
        let words = |line: &str| words(&AgentLine::parse(line.as_bytes()).unwrap());
        assert_eq!(
            words("75% drain maxconn:9 fast\n"),
            "weight 75 %, drain, maxconn 9, `fast` is not understood"
        );
        assert_eq!(words("weight:3 stopped #by hand\n"), "weight 3, stopped");
        assert_eq!(words("\n"), "nothing");
    }

    #[test]
    fn what_is_wrong_is_said_as_by_a_running_front_end() {
        let wrong = PollFault::Refused("wrong user: it knows none of this name");
        let found = of_probe("n1", &source(), Err(wrong));
        assert_eq!(found.level, Level::Warn);
        assert_eq!(
            found.text,
            "the load of n1 is not known: snmp at 10.0.0.1:161: refused: wrong user: it knows none of this name"
        );
    }
}
