//! TIDEGATE-MIB: what an SNMP manager sees of a node, its values and its text, from one table.
//!
//! ```text
//! ROOT.1.1.n.0           names, used shares in percent, `percentageOfOpenFds` of SLBL
//! ROOT.1.2.offset.0      every field of the load record, by its offset there: a published offset never changes
//! ROOT.1.3.1.n.cpu+1     the CPUs, a row each
//! ```
//!
//! What was not measured is not there, never zero. ROOT lies in what Net-SNMP leaves for experiments: the project has no number
//! of its own.
//! Source: RFC 2578 to 2580; SLBL-ARPN §6 (`percentage_of_open_fds`: used descriptors of `/proc/sys/fs/file-nr`, rounded,
//! since SNMP has no fractions).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tidegate_core::record::{CpuLine, FIELDS};

use super::OwnLoad;
use super::agentx::{Oid, SearchRange, SnmpValue};
use super::fields::{FieldKind, FieldUnit, REPORTED, ReportedField};

/// enterprises.netSnmp.netSnmpExperimental.netSnmpPlaypen.84
pub const ROOT: [u32; 10] = [1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 84];
const OBJECTS: u32 = 1;
const NODE: u32 = 1;
const RECORD: u32 = 2;
const CPUS: u32 = 3;
const ENTRY: u32 = 1;
/// The one before is the index, which cannot be read.
const FIRST_COLUMN: u32 = 2;

/// Behind the shares.
const SOFT_LIMIT: u32 = 6;

/// The name of the trap that says that a soft limit is crossed, or is so no more.
pub fn trap(crossed: bool) -> Oid {
    let place = if crossed { 1 } else { 2 };
    [&ROOT[..], &[0, place]].concat()
}

/// Shares of the node, by their place: name, and what it is.
const SHARES: [(&str, &str); 4] = [
    (
        "tidegateCpuUsed",
        "Used share of the CPUs that the scope may use, mean of two seconds.",
    ),
    ("tidegateMemoryUsed", "Used share of the memory."),
    (
        "tidegateFilesUsed",
        "Used share of the file descriptors: the worse of the system and the watched process nearest to its limit.",
    ),
    (
        "tidegatePercentageOfOpenFds",
        "Used share of the file descriptors of the system alone.",
    ),
];

/// A column of the table of CPUs.
struct CpuColumn {
    name: &'static str,
    kind: FieldKind,
    what: &'static str,
    value: fn(&CpuLine) -> u64,
}

const COLUMNS: [CpuColumn; 6] = [
    CpuColumn {
        name: "Number",
        kind: FieldKind::Gauge,
        what: "Number of the CPU.",
        value: |line| line.cpu.into(),
    },
    CpuColumn {
        name: "Busy",
        kind: FieldKind::Counter,
        what: "Time that the CPU was not idle, nanoseconds.",
        value: |line| line.busy_ns,
    },
    CpuColumn {
        name: "Softirq",
        kind: FieldKind::Counter,
        what: "Time in soft interrupts, nanoseconds.",
        value: |line| line.softirq_ns,
    },
    CpuColumn {
        name: "Steal",
        kind: FieldKind::Counter,
        what: "Time stolen by the hypervisor, nanoseconds.",
        value: |line| line.steal_ns,
    },
    CpuColumn {
        name: "RunnableTime",
        kind: FieldKind::Counter,
        what: "Integral of the run-queue length, nanoseconds.",
        value: |line| line.runnable_ns,
    },
    CpuColumn {
        name: "Runnable",
        kind: FieldKind::Gauge,
        what: "Run-queue length, the running task included.",
        value: |line| line.runnable.into(),
    },
];

/// Values at one moment, in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct Snapshot(BTreeMap<Oid, SnmpValue>);

impl Snapshot {
    /// What there is to see of a node; `crossing` says which soft limit it is over.
    pub fn of(node: &str, own: &OwnLoad, cpus: &[CpuLine], crossing: Option<&str>) -> Self {
        let mut all = Self::default();
        all.put(&[NODE, 1, 0], SnmpValue::Text(node.to_owned()));
        let crossing = crossing.unwrap_or_default().to_owned();
        all.put(&[NODE, SOFT_LIMIT, 0], SnmpValue::Text(crossing));
        let Some(record) = own.newest() else {
            return all;
        };
        let load = own.load();
        let of_system = match record.files_max {
            0 => f32::NAN,
            most => (record.files_open as f64 / most as f64) as f32,
        };
        let shares = [load.utilization, load.memory, load.files, of_system];
        for (place, share) in (2..).zip(shares) {
            if let Some(percent) = percent(share) {
                all.put(&[NODE, place, 0], SnmpValue::Integer(percent));
            }
        }
        for field in REPORTED {
            if let Some(value) = (field.value)(record) {
                all.put(&[RECORD, offset(field), 0], value_of(syntax(field), value));
            }
        }
        for line in cpus {
            for (place, column) in (FIRST_COLUMN..).zip(&COLUMNS) {
                let value = value_of(column_syntax(column), (column.value)(line));
                all.put(&[CPUS, ENTRY, place, line.cpu + 1], value);
            }
        }
        all
    }

    /// Numbers below [`ROOT`], for tests.
    #[cfg(test)]
    pub(super) fn from_values(values: Vec<(Oid, u32)>) -> Self {
        let below =
            |(rest, value): (Oid, u32)| ([&ROOT[..], &rest].concat(), SnmpValue::Gauge(value));
        Self(values.into_iter().map(below).collect())
    }

    fn put(&mut self, rest: &[u32], value: SnmpValue) {
        self.0.insert([&ROOT[..], &[OBJECTS], rest].concat(), value);
    }

    /// Those that a trap carries.
    pub fn of_trap(mut self) -> Self {
        let wanted = [1, SOFT_LIMIT].map(|place| [&ROOT[..], &[OBJECTS, NODE, place, 0]].concat());
        self.0.retain(|name, _| wanted.contains(name));
        self
    }

    /// All of them, in order.
    pub fn all(&self) -> impl Iterator<Item = (&Oid, &SnmpValue)> {
        self.0.iter()
    }

    /// The value of a name.
    pub fn get(&self, range: &SearchRange) -> (Oid, SnmpValue) {
        let value = self.0.get(&range.start);
        let value = value.cloned().unwrap_or(SnmpValue::NoSuchObject);
        (range.start.clone(), value)
    }

    /// The first value behind a name (or at it, if that is included), and before the end.
    pub fn next(&self, range: &SearchRange) -> (Oid, SnmpValue) {
        let mut behind = self.0.range(range.start.clone()..);
        let found = behind.find(|(name, _)| range.include || **name != range.start);
        match found.filter(|(name, _)| range.end.is_empty() || **name < range.end) {
            Some((name, value)) => (name.clone(), value.clone()),
            None => (range.start.clone(), SnmpValue::EndOfMibView),
        }
    }
}

/// Rounded, as SLBL does.
fn percent(share: f32) -> Option<i32> {
    (!share.is_nan()).then(|| (share.clamp(0.0, 1.0) * 100.0).round() as i32)
}

/// How a value is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syntax {
    Gauge32,
    Counter64,
    /// A gauge of 64 bits, which travels as a counter.
    Gauge64,
}

impl Syntax {
    fn name(self) -> &'static str {
        match self {
            Self::Gauge32 => "Gauge32",
            Self::Counter64 => "Counter64",
            Self::Gauge64 => "TidegateGauge64",
        }
    }
}

fn syntax(field: &ReportedField) -> Syntax {
    let narrow = FIELDS
        .iter()
        .any(|it| it.name == field.name && it.size <= 4);
    match field.kind {
        FieldKind::Counter => Syntax::Counter64,
        FieldKind::Gauge if narrow => Syntax::Gauge32,
        FieldKind::Gauge => Syntax::Gauge64,
    }
}

fn column_syntax(column: &CpuColumn) -> Syntax {
    match column.kind {
        FieldKind::Counter => Syntax::Counter64,
        FieldKind::Gauge => Syntax::Gauge32,
    }
}

fn value_of(syntax: Syntax, value: u64) -> SnmpValue {
    match syntax {
        Syntax::Gauge32 => SnmpValue::Gauge(u32::try_from(value).unwrap_or(u32::MAX)),
        Syntax::Counter64 | Syntax::Gauge64 => SnmpValue::Counter(value),
    }
}

fn offset(field: &ReportedField) -> u32 {
    let found = FIELDS.iter().find(|it| it.name == field.name);
    found.map_or(0, |it| it.offset as u32)
}

/// `accept_queue_ns` is `tidegateAcceptQueueTime`.
fn object_name(field: &ReportedField) -> String {
    let mut name = "tidegate".to_owned();
    for word in field.label().split('_') {
        let mut letters = word.chars();
        name.extend(letters.next().map(|it| it.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    match field.unit {
        FieldUnit::Nanoseconds => name + "Time",
        FieldUnit::Bytes | FieldUnit::Thousandths | FieldUnit::Number => name,
    }
}

fn units(field: &ReportedField) -> Option<&'static str> {
    match field.unit {
        FieldUnit::Nanoseconds => Some("nanoseconds"),
        FieldUnit::Bytes => Some("bytes"),
        FieldUnit::Thousandths => Some("thousandths of a CPU"),
        FieldUnit::Number => None,
    }
}

/// Modules whose words are used.
const HEAD: &str = r#"-- Generated from crates/node/src/report/mib.rs: do not edit.
TIDEGATE-MIB DEFINITIONS ::= BEGIN

IMPORTS
    MODULE-IDENTITY, OBJECT-TYPE, NOTIFICATION-TYPE, Gauge32, Counter64, Integer32
        FROM SNMPv2-SMI
    DisplayString, TEXTUAL-CONVENTION
        FROM SNMPv2-TC
    MODULE-COMPLIANCE, OBJECT-GROUP, NOTIFICATION-GROUP
        FROM SNMPv2-CONF
    netSnmpPlaypen
        FROM NET-SNMP-MIB;

tidegateMIB MODULE-IDENTITY
    LAST-UPDATED "202611260000Z"
    ORGANIZATION "Tidegate"
    CONTACT-INFO "The issues of the project."
    DESCRIPTION
        "The load of a server, as the agent of Tidegate measures it.
        What was not measured is not there."
    REVISION "202611260000Z"
    DESCRIPTION
        "The first version."
    ::= { netSnmpPlaypen 84 }

TidegateGauge64 ::= TEXTUAL-CONVENTION
    DISPLAY-HINT "d"
    STATUS current
    DESCRIPTION
        "A number that goes up and down, of 64 bits."
    SYNTAX Counter64

tidegateNotifications OBJECT IDENTIFIER ::= { tidegateMIB 0 }
tidegateObjects OBJECT IDENTIFIER ::= { tidegateMIB 1 }
tidegateNode OBJECT IDENTIFIER ::= { tidegateObjects 1 }
tidegateRecord OBJECT IDENTIFIER ::= { tidegateObjects 2 }
tidegateConformance OBJECT IDENTIFIER ::= { tidegateMIB 2 }
"#;

const TRAPS: &str = r#"
tidegateSoftLimitCrossed NOTIFICATION-TYPE
    OBJECTS { tidegateName, tidegateSoftLimit }
    STATUS current
    DESCRIPTION
        "The node is about to run out of something."
    ::= { tidegateNotifications 1 }

tidegateSoftLimitCleared NOTIFICATION-TYPE
    OBJECTS { tidegateName, tidegateSoftLimit }
    STATUS current
    DESCRIPTION
        "It has enough of it again."
    ::= { tidegateNotifications 2 }
"#;

/// An object of the text.
struct Object<'a> {
    name: &'a str,
    syntax: &'a str,
    units: Option<&'a str>,
    what: &'a str,
    parent: &'a str,
    place: u32,
}

impl Object<'_> {
    fn write(&self, text: &mut String) {
        let Self {
            name,
            syntax,
            what,
            parent,
            place,
            ..
        } = self;
        let units = self
            .units
            .map_or_else(String::new, |it| format!("    UNITS \"{it}\"\n"));
        write(
            text,
            format_args!(
                "\n{name} OBJECT-TYPE\n    SYNTAX {syntax}\n{units}    MAX-ACCESS read-only\n    STATUS current\n    \
                 DESCRIPTION\n        \"{what}\"\n    ::= {{ {parent} {place} }}\n"
            ),
        );
    }
}

fn write(text: &mut String, part: std::fmt::Arguments<'_>) {
    // Writing to a text cannot fail.
    text.write_fmt(part).ok();
}

/// The MIB as a file for managers.
pub fn text() -> String {
    let mut text = HEAD.to_owned();
    let mut names = vec!["tidegateName".to_owned()];
    let name = Object {
        name: "tidegateName",
        syntax: "DisplayString (SIZE (0..255))",
        units: None,
        what: "The node, as its key names it.",
        parent: "tidegateNode",
        place: 1,
    };
    name.write(&mut text);
    for (place, (name, what)) in (2..).zip(SHARES) {
        let share = Object {
            name,
            syntax: "Integer32 (0..100)",
            units: Some("percent"),
            what,
            parent: "tidegateNode",
            place,
        };
        share.write(&mut text);
        names.push(name.to_owned());
    }
    let soft_limit = Object {
        name: "tidegateSoftLimit",
        syntax: "DisplayString (SIZE (0..255))",
        units: None,
        what: "Which soft limit the node is over, and by what; empty if it is over none.",
        parent: "tidegateNode",
        place: SOFT_LIMIT,
    };
    soft_limit.write(&mut text);
    names.push(soft_limit.name.to_owned());
    for field in REPORTED {
        let name = object_name(field);
        let object = Object {
            name: &name,
            syntax: syntax(field).name(),
            units: units(field),
            what: &format!("{}.", field.what),
            parent: "tidegateRecord",
            place: offset(field),
        };
        object.write(&mut text);
        names.push(name);
    }
    names.extend(cpu_table(&mut text));
    text.push_str(TRAPS);
    conformance(&mut text, &names);
    text + "\nEND\n"
}

/// The table of CPUs; the names of its columns.
fn cpu_table(text: &mut String) -> Vec<String> {
    text.push_str(
        "\ntidegateCpuTable OBJECT-TYPE\n    SYNTAX SEQUENCE OF TidegateCpuEntry\n    MAX-ACCESS not-accessible\n    \
         STATUS current\n    DESCRIPTION\n        \"The CPUs of the node.\"\n    ::= { tidegateObjects 3 }\n\n\
         tidegateCpuEntry OBJECT-TYPE\n    SYNTAX TidegateCpuEntry\n    MAX-ACCESS not-accessible\n    STATUS current\n    \
         DESCRIPTION\n        \"A CPU.\"\n    INDEX { tidegateCpuIndex }\n    ::= { tidegateCpuTable 1 }\n\n\
         TidegateCpuEntry ::= SEQUENCE {\n    tidegateCpuIndex Integer32",
    );
    let names: Vec<_> = COLUMNS
        .iter()
        .map(|it| format!("tidegateCpu{}", it.name))
        .collect();
    for (name, column) in names.iter().zip(&COLUMNS) {
        write(
            text,
            format_args!(",\n    {name} {}", column_syntax(column).name()),
        );
    }
    text.push_str("\n}\n");
    text.push_str(
        "\ntidegateCpuIndex OBJECT-TYPE\n    SYNTAX Integer32 (1..2147483647)\n    MAX-ACCESS not-accessible\n    \
         STATUS current\n    DESCRIPTION\n        \"Number of the CPU and one.\"\n    ::= { tidegateCpuEntry 1 }\n",
    );
    for (place, (name, column)) in (FIRST_COLUMN..).zip(names.iter().zip(&COLUMNS)) {
        let object = Object {
            name,
            syntax: column_syntax(column).name(),
            units: (column.kind == FieldKind::Counter).then_some("nanoseconds"),
            what: column.what,
            parent: "tidegateCpuEntry",
            place,
        };
        object.write(text);
    }
    names
}

fn conformance(text: &mut String, names: &[String]) {
    write(
        text,
        format_args!(
            "\ntidegateCompliance MODULE-COMPLIANCE\n    STATUS current\n    DESCRIPTION\n        \
             \"What an agent has if it measures all.\"\n    MODULE\n        MANDATORY-GROUPS {{ tidegateGroup, tidegateTraps }}\n    \
             ::= {{ tidegateConformance 1 }}\n\ntidegateGroup OBJECT-GROUP\n    OBJECTS {{\n        {}\n    }}\n    \
             STATUS current\n    DESCRIPTION\n        \"All objects.\"\n    ::= {{ tidegateConformance 2 }}\n\n\
             tidegateTraps NOTIFICATION-GROUP\n    NOTIFICATIONS {{\n        tidegateSoftLimitCrossed,\n        \
             tidegateSoftLimitCleared\n    }}\n    STATUS current\n    DESCRIPTION\n        \"All traps.\"\n    \
             ::= {{ tidegateConformance 3 }}\n",
            names.join(",\n        ")
        ),
    );
}

#[cfg(test)]
mod tests {
    use tidegate_core::record::{LoadRecord, Sources};

    use super::*;

    fn node() -> Snapshot {
        let sources = Sources::BUSY_ACCT
            .with(Sources::FILES)
            .with(Sources::MEMORY);
        let mut own = OwnLoad::default();
        own.note(&LoadRecord {
            t_ns: 1,
            busy_ns: u64::MAX,
            files_open: 1209,
            files_max: 10_000,
            memory_total: 1 << 40,
            on_cpu: 3,
            sources,
            ..LoadRecord::default()
        });
        let lines = [0, 7].map(|cpu| CpuLine {
            cpu,
            runnable: 5,
            ..CpuLine::default()
        });
        Snapshot::of("n1", &own, &lines, None)
    }

    fn get(all: &Snapshot, rest: &[u32]) -> SnmpValue {
        let range = SearchRange {
            start: [&ROOT[..], rest].concat(),
            include: false,
            end: Oid::new(),
        };
        all.get(&range).1
    }

    #[test]
    fn values_are_where_the_text_says() {
        let all = node();
        assert_eq!(get(&all, &[1, 1, 1, 0]), SnmpValue::Text("n1".into()));
        // One sample has no mean; 12.09 % is rounded.
        assert_eq!(get(&all, &[1, 1, 2, 0]), SnmpValue::NoSuchObject);
        assert_eq!(get(&all, &[1, 1, 5, 0]), SnmpValue::Integer(12));
        assert_eq!(get(&all, &[1, 2, 72, 0]), SnmpValue::Counter(u64::MAX));
        assert_eq!(get(&all, &[1, 2, 136, 0]), SnmpValue::Counter(1 << 40));
        assert_eq!(get(&all, &[1, 2, 56, 0]), SnmpValue::Gauge(3));
        assert_eq!(
            get(&all, &[1, 2, 116, 0]),
            SnmpValue::NoSuchObject,
            "not measured"
        );
        assert_eq!(get(&all, &[1, 3, 1, 7, 8]), SnmpValue::Gauge(5));
        for (name, place) in [
            ("tidegateBusyTime", 72),
            ("tidegatePsiIoTime", 168),
            ("tidegateReceived", 264),
        ] {
            let line = format!("{name} OBJECT-TYPE");
            let text = text();
            let object = text.split(&line).nth(1).unwrap();
            let place = format!("::= {{ tidegateRecord {place} }}");
            assert!(
                object.split("OBJECT-TYPE").next().unwrap().contains(&place),
                "{name}"
            );
        }
    }

    #[test]
    fn a_walk_ends_where_the_range_ends() {
        let all = node();
        let mut range = SearchRange {
            start: ROOT.to_vec(),
            include: false,
            end: [&ROOT[..], &[1, 2]].concat(),
        };
        let mut names = 0;
        loop {
            let (name, value) = all.next(&range);
            if value == SnmpValue::EndOfMibView {
                break;
            }
            assert!(name > range.start);
            range.start = name;
            names += 1;
        }
        // The name, three shares, and the soft limit.
        assert_eq!(names, 5);
        range.include = true;
        assert_eq!(all.next(&range).0, range.start);
    }

    /// `UPDATE_EXPECT=1` writes it anew.
    #[test]
    fn the_file_for_managers_is_up_to_date() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../contrib/snmp/TIDEGATE-MIB.txt"
        );
        let now = text();
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, &now).unwrap();
        }
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            there == now,
            "{path} is stale: UPDATE_EXPECT=1 writes it anew"
        );
    }
}
