//! What each field of the load record is to operators' programs: kind, unit, and whether it was measured. Metrics and the MIB
//! are made from this table; a field of the record that is missing here fails a test.

use tidegate_core::record::{LoadRecord, Sources};

/// How a field's values follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// It only grows, until the agent begins anew.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// What a field's numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldUnit {
    /// Nanoseconds, of an integral too.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// Thousandths of a CPU.
    Thousandths,
    /// Things of one kind.
    Number,
}

/// A field, as it is reported.
#[derive(Clone, Copy, Debug)]
pub struct ReportedField {
    /// Its name in the record.
    pub name: &'static str,
    /// How its values follow one another.
    pub kind: FieldKind,
    /// What they count.
    pub unit: FieldUnit,
    /// What it is, without its unit.
    pub what: &'static str,
    /// Its value, if it was measured.
    pub value: fn(&LoadRecord) -> Option<u64>,
}

impl ReportedField {
    /// Its name without its unit.
    pub fn label(&self) -> &'static str {
        let units = ["_ns", "_milli", "_bytes"];
        let without = units.iter().find_map(|unit| self.name.strip_suffix(unit));
        match without.unwrap_or(self.name) {
            "t" => "clock",
            label => label,
        }
    }
}

/// The bits under any of which CPU time was measured.
const BUSY: &[Sources] = &[Sources::BUSY_SWITCH, Sources::BUSY_ACCT, Sources::BUSY_TICK];

fn measured(record: &LoadRecord, any: &[Sources]) -> bool {
    any.is_empty() || any.iter().any(|it| record.sources.has(*it))
}

macro_rules! reported {
    ($($field:ident $kind:ident $unit:ident $any:expr, $what:literal;)*) => {
        /// All fields but those of the layout, in the record's order.
        pub const REPORTED: &[ReportedField] = &[$(ReportedField {
            name: stringify!($field),
            kind: FieldKind::$kind,
            unit: FieldUnit::$unit,
            what: $what,
            value: |record| measured(record, $any).then(|| u64::from(record.$field)),
        }),*];
    };
}

reported! {
    scope Gauge Number &[], "What the counters cover: 0 is the host, 1 and 2 a cgroup of version 1 or 2";
    rung Gauge Number &[], "Number of the way in which front-ends get the record";
    generation Gauge Number &[], "Changes when counters start anew";
    t_ns Counter Nanoseconds &[], "Monotonic clock of the node at the sample";
    interval_ns Gauge Nanoseconds &[], "Time between two samples; 0 if made at the read";
    services Gauge Number &[Sources::SERVICES], "Service checks that pass, one bit each";
    on_cpu Gauge Number &[], "CPU on which the sample was made";
    cores_milli Gauge Thousandths BUSY, "CPUs that the scope may run on";
    busy_ns Counter Nanoseconds BUSY, "CPU time used";
    steal_ns Counter Nanoseconds &[Sources::STEAL], "CPU time stolen by the hypervisor";
    runnable_ns Counter Nanoseconds &[Sources::RUNNABLE_INTEGRAL], "Integral of the run-queue length";
    throttled_ns Counter Nanoseconds &[Sources::QUOTA], "Time that the scope was held back by its quota";
    psi_cpu_ns Counter Nanoseconds &[Sources::PSI], "Pressure stall, some, CPU";
    quota_milli Gauge Thousandths &[Sources::QUOTA], "CPU quota of the scope; 0: none";
    runnable Gauge Number &[Sources::RUNNABLE], "Run-queue length, running tasks included";
    softirqs_pending Gauge Number &[Sources::SOFTIRQ], "CPUs with soft interrupts pending";
    uninterruptible Gauge Number &[Sources::UNINTERRUPTIBLE], "Tasks in uninterruptible sleep";
    memory_total Gauge Bytes &[Sources::MEMORY], "Memory of the scope";
    memory_available Gauge Bytes &[Sources::MEMORY], "Memory that can be had without swapping";
    disk_ns Counter Nanoseconds &[Sources::DISK], "Time that the busiest disk had work";
    psi_memory_ns Counter Nanoseconds &[Sources::PSI], "Pressure stall, some, memory";
    psi_io_ns Counter Nanoseconds &[Sources::PSI], "Pressure stall, some, IO";
    uninterruptible_ns Counter Nanoseconds &[Sources::UNINTERRUPTIBLE], "Integral of the tasks in uninterruptible sleep";
    tasks Gauge Number &[], "Tasks in the scope; 0 if not counted";
    tcp_established Gauge Number &[Sources::SOCKETS], "Established TCP connections";
    files_open Gauge Number &[Sources::FILES], "Open files, system wide";
    files_max Gauge Number &[Sources::FILES], "Limit of open files, system wide";
    process_files_open Gauge Number &[Sources::PROCESS_FILES], "Open files of the watched process nearest to its limit";
    process_files_max Gauge Number &[Sources::PROCESS_FILES], "Limit of open files of that process";
    accept_queue_ns Counter Nanoseconds &[Sources::ACCEPT_INTEGRAL], "Integral of the accept-queue length";
    accept_overflows Counter Number &[Sources::ACCEPT_OVERFLOWS], "Connections dropped because an accept queue was full";
    accept_queue Gauge Number &[Sources::ACCEPT_QUEUE], "Connections waiting to be accepted";
    time_wait Gauge Number &[Sources::SOCKETS], "TCP connections in TIME_WAIT";
    process_id Gauge Number &[Sources::PROCESS_FILES], "The watched process nearest to its limit";
    in_flight Gauge Number &[Sources::IN_FLIGHT], "Requests in flight at the node";
    received_bytes Counter Bytes &[Sources::NETWORK], "Bytes received from the network";
    sent_bytes Counter Bytes &[Sources::NETWORK], "Bytes sent to the network";
    in_flight_ns Counter Nanoseconds &[Sources::COMPLETIONS], "Integral of the requests in flight";
    completions Counter Number &[Sources::COMPLETIONS], "Requests completed";
    softirq_ns Counter Nanoseconds &[Sources::PER_CPU], "CPU time in soft interrupts";
    context_switches Counter Number &[Sources::CONTEXT_SWITCHES], "Switches from one task to another";
    services_checked Gauge Number &[Sources::SERVICES], "Service checks that there are, one bit each";
}

#[cfg(test)]
mod tests {
    use tidegate_core::record::FIELDS;

    use super::*;

    /// What the record says of itself.
    const LAYOUT: [&str; 6] = [
        "sequence",
        "magic",
        "version",
        "lines",
        "cpu_lines",
        "sources",
    ];

    #[test]
    fn every_field_of_the_record_is_reported_in_its_order() {
        let fields = FIELDS.iter().map(|field| field.name);
        let wanted: Vec<_> = fields.filter(|name| !LAYOUT.contains(name)).collect();
        let names: Vec<_> = REPORTED.iter().map(|field| field.name).collect();
        assert_eq!(names, wanted);
    }

    #[test]
    fn names_tell_units() {
        for field in REPORTED {
            let nanos = field.name.ends_with("_ns");
            assert_eq!(
                field.unit == FieldUnit::Nanoseconds,
                nanos,
                "{}",
                field.name
            );
            let milli = field.name.ends_with("_milli");
            assert_eq!(
                field.unit == FieldUnit::Thousandths,
                milli,
                "{}",
                field.name
            );
        }
    }

    #[test]
    fn labels_with_their_units_are_distinct() {
        let both = |it: &ReportedField| (it.label(), format!("{:?}", it.unit));
        let all: std::collections::BTreeSet<_> = REPORTED.iter().map(both).collect();
        assert_eq!(all.len(), REPORTED.len());
        let labels: Vec<_> = all.iter().map(|(label, _)| *label).collect();
        for label in ["clock", "psi_io", "received", "cores"] {
            assert!(labels.contains(&label), "{labels:?}");
        }
    }

    #[test]
    fn what_was_not_measured_has_no_value() {
        let value = |name: &str, record: &LoadRecord| {
            let field = REPORTED.iter().find(|it| it.name == name).unwrap();
            (field.value)(record)
        };
        let mut record = LoadRecord {
            busy_ns: 7,
            files_open: 5,
            on_cpu: 1,
            ..LoadRecord::default()
        };
        assert_eq!(value("busy_ns", &record), None);
        assert_eq!(value("on_cpu", &record), Some(1));
        record.sources = Sources::BUSY_TICK;
        assert_eq!(value("busy_ns", &record), Some(7));
        assert_eq!(value("files_open", &record), None);
    }
}
