//! Loads that other programs report, for nodes without an agent of ours: what answers is asked again and again, and what it
//! says becomes a `NodeLoad` by the rules of `tidegate_core::load::ReportedLoad`.
//!
//! ```text
//! SNMP ────────┬─ Poll ──> values ──> ReportedLoad ──> LoadTable
//! ORCA ────────┤      │
//! agent check ─┘      ├──> words  ──> AgentState ────> whatever polls it: the director
//!                     └──> fault  ──> ReportStatus ──> status, `why`
//! ```
//!
//! | file | what |
//! |---|---|
//! | `reader` | one thread: which node is asked when, what is kept of it |
//! | `source` | what a node can be asked by, and what can be wrong |
//! | `agent_check` | one line of words, as HAProxy's agents answer |
//! | `orca` | reports that a node streams |
//! | `snmp` | the questions of SNMP; `snmp/objects` what the answers mean |
//!
//! Each question has a time-out, each answer a limit on its size, and a node has one poll under way at most. Nothing that a
//! node answers makes this crate panic.

mod agent_check;
mod orca;
mod reader;
mod snmp;
mod source;

pub use agent_check::{AgentCheckConfig, AgentLine, LINE_BYTES_MAX};
pub use orca::OrcaConfig;
pub use reader::{AgentHeard, AgentSaid, ReportReader, ReportReaderHandle, ReportStatus, Target};
pub use snmp::{
    AuthKind, CustomObject, ObjectId, Periods, PrivacyKind, SnmpConfig, SnmpUser, SnmpVersion,
};
pub use source::{PollFault, Probe, Secret, SourceConfig, probe};
