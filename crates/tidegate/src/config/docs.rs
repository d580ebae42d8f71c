//! docs/config.md, made from the tables themselves.

use tidegate_core::admission::AdmissionKind;
use tidegate_core::units::{size_units, time_units};

use super::acme::AcmeFile;
use super::agent_moves::{AgentMovesFile, SiteHookFile};
use super::agent_reports::{
    AgentCheckFile, AgentHeartbeatFile, AgentMetricsFile, AgentOrcaFile, AgentSnmpFile,
};
use super::answers::{PriorityFile, RetryBudgetFile, SessionFile};
use super::apis::{ConsulFile, KubernetesFile};
use super::check::CheckFile;
use super::culprits::CulpritsFile;
use super::discover::{DiscoverFile, DiscoverLoadFile, DnsFile};
use super::events::EventsFile;
use super::file::{
    AdminFile, AdmissionFile, AgentFile, CapacityFile, ClusterFile, ConfigFile, ForwardedFile,
    LimitsFile, ListenerFile, LoadFile, NodeFile, NodeLoadFile, PerSourceFile, ProcessFile,
    SiteFile, StateTable, TimeoutsFile,
};
use super::group::GroupFile;
use super::log::LogFile;
use super::policy::PolicySetting;
use super::reconfigure::{ReconfigureFile, SiteNodesFile};
use super::reported::{ObjectFile, PeriodsFile};
use super::route::{HedgeFile, MirrorFile, RouteFile, RouteTimeoutsFile};
use super::setting::{Encoded, KeyDocs, Table, TableDocs, inline};
use super::soft_limits::{AgentSoftLimitsFile, SoftLimitsFile};
use super::sticky::StickyFile;
use super::throttle::ThrottleFile;
use super::tls::{CertificateFile, ClientCertificatesFile, NodeTlsFile, TlsFile};
use super::traces::TracesFile;

/// The table that the modes are listed under.
pub(super) const ADMISSION: &str = "[[site]] admission = { … }";

/// The page.
pub(crate) fn page() -> String {
    let mut out = format!(
        "# Configuration\n\n\
         One TOML file, for a front-end (`tidegate run -c FILE`), an agent \
         (`tidegate agent -c FILE`) or both. `tidegate check FILE` says what is wrong with it, with \
         line, column and a caret; `tidegate config FILE` prints it with every default.\n\n\
         * Unknown keys are errors.\n\
         * Durations are a whole number and a unit ({}), sizes too ({}): `\"50ms\"`, `\"64KiB\"`.\n\
         * Paths are relative to the file itself.\n\
         * The file is read at the start, and by a front-end again by `tidegate reload` or SIGHUP; see \
         [operating.md](operating.md#tidegate-reload) for what takes effect then. An agent ends with SIGHUP. SIGUSR1 opens the access log anew after it \
         was renamed; SIGTERM and SIGINT drain and end, a second one ends at once.\n\n\
         This page is made from the tables that read the file; a test compares the two.\n",
        time_units(),
        size_units()
    );
    out.push_str(&format!("\n{}\n", flow(ConfigFile::docs().about)));
    for (title, docs) in sections() {
        section(&mut out, title, &docs);
        if title == ADMISSION {
            modes(&mut out);
        }
    }
    out.push_str("\nThe policies are in [policies.md](policies.md); sources have the keys of [references.md](references.md).\n");
    out
}

/// The tables of the file in the order of the page, each with its title.
pub(super) fn sections() -> Vec<(&'static str, TableDocs)> {
    let sections = [
        ("[[site]]", SiteFile::docs()),
        ("[[site.route]]", RouteFile::docs()),
        ("[[site.route]] timeouts = { … }", RouteTimeoutsFile::docs()),
        ("[[site.route]] mirror = { … }", MirrorFile::docs()),
        ("[[site.route]] hedge = { … }", HedgeFile::docs()),
        ("[[site]] policy = { … }", PolicySetting::table_docs()),
        (ADMISSION, AdmissionFile::docs()),
        (
            "[[site]] admission = { priority = { … } }",
            PriorityFile::docs(),
        ),
        (
            "[[site]] admission = { session = { … } }",
            SessionFile::docs(),
        ),
        ("[[site]] sticky = { … }", StickyFile::docs()),
        ("[[site]] retry_budget = { … }", RetryBudgetFile::docs()),
        ("[[site.check]]` and `[[agent.check]]", CheckFile::docs()),
        ("[site.soft_limits]", SoftLimitsFile::docs()),
        ("[[site]] nodes = { … }", SiteNodesFile::docs()),
        ("[site.node_tls]", NodeTlsFile::docs()),
        ("[[node]]", NodeFile::docs()),
        ("[[node]] capacity = { … }", CapacityFile::docs()),
        ("[[node]] load = { … }", NodeLoadFile::docs()),
        ("[[node]] load = { periods = { … } }", PeriodsFile::docs()),
        ("[[node]] load = { oids = [{ … }] }", ObjectFile::docs()),
        ("[[discover]]", DiscoverFile::docs()),
        ("[[discover]] kubernetes = { … }", KubernetesFile::docs()),
        ("[[discover]] consul = { … }", ConsulFile::docs()),
        ("[[discover]] load = { … }", DiscoverLoadFile::docs()),
        ("[dns]", DnsFile::docs()),
        ("[[group]]", GroupFile::docs()),
        ("[[throttle]]", ThrottleFile::docs()),
        ("[culprits]", CulpritsFile::docs()),
        ("[load]", LoadFile::docs()),
        ("[acme]", AcmeFile::docs()),
    ];
    let process = [
        ("[process]", ProcessFile::docs()),
        ("[state]", StateTable::docs()),
        ("[cluster]", ClusterFile::docs()),
        ("[limits]", LimitsFile::docs()),
        ("[limits] per_source = { … }", PerSourceFile::docs()),
        ("[timeouts]", TimeoutsFile::docs()),
        ("[forwarded]", ForwardedFile::docs()),
        ("[log]", LogFile::docs()),
        ("[traces]", TracesFile::docs()),
        ("[events]", EventsFile::docs()),
        ("[reconfigure]", ReconfigureFile::docs()),
    ];
    let before = clients().into_iter();
    before
        .chain(sections)
        .chain(agent())
        .chain(process)
        .collect()
}

/// The tables of what operators and clients connect to.
fn clients() -> [(&'static str, TableDocs); 5] {
    [
        ("[admin]", AdminFile::docs()),
        ("[[listener]]", ListenerFile::docs()),
        ("[[listener]] tls = { … }", TlsFile::docs()),
        (
            "[[listener]] tls = { certificates = [{ … }] }",
            CertificateFile::docs(),
        ),
        (
            "[[listener]] tls = { client_certificates = { … } }",
            ClientCertificatesFile::docs(),
        ),
    ]
}

/// The agent's tables.
fn agent() -> [(&'static str, TableDocs); 9] {
    [
        ("[agent]", AgentFile::docs()),
        ("[agent.moves]", AgentMovesFile::docs()),
        ("[[agent.moves.site]]", SiteHookFile::docs()),
        ("[agent.soft_limits]", AgentSoftLimitsFile::docs()),
        ("[agent.agent_check]", AgentCheckFile::docs()),
        ("[agent.heartbeat]", AgentHeartbeatFile::docs()),
        ("[agent.metrics]", AgentMetricsFile::docs()),
        ("[agent.orca]", AgentOrcaFile::docs()),
        ("[agent.snmp]", AgentSnmpFile::docs()),
    ]
}

/// The admission modes, a line each.
fn modes(out: &mut String) {
    out.push_str("\n| mode | what it does |\n|---|---|\n");
    for (kind, name) in AdmissionKind::ALL {
        out.push_str(&format!("| `{name}` | {} |\n", cell(kind.what())));
    }
}

fn section(out: &mut String, title: &str, docs: &TableDocs) {
    out.push_str(&format!("\n## `{title}`\n\n{}\n", flow(docs.about)));
    if docs.keys.iter().any(|key| !key.about.is_empty()) {
        out.push_str("\n| key | type | default | what it is for |\n|---|---|---|---|\n");
    }
    for key in &docs.keys {
        let name = key.name;
        let (kind, default) = (cell(&kind(key)), cell(&default(key)));
        out.push_str(&format!(
            "| `{name}` | {kind} | {default} | {} |\n",
            cell(&flow(key.about))
        ));
    }
    if !docs.later.is_empty() {
        let names: Vec<_> = docs
            .later
            .iter()
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        out.push_str(&format!(
            "\nNot available in this version: {}.\n",
            names.join(", ")
        ));
    }
}

/// A key's type and range.
pub(super) fn kind(key: &KeyDocs) -> String {
    let Some((least, most)) = &key.range else {
        return key.kind.clone();
    };
    let text = |value| inline(value).unwrap_or_default();
    format!("{}, {} to {}", key.kind, text(least), text(most))
}

/// A key's default.
pub(super) fn default(key: &KeyDocs) -> String {
    match &key.default {
        None => "required".into(),
        Some(Encoded::Table(_)) => "see below".into(),
        Some(default) => inline(default).map_or("not set".into(), |text| format!("`{text}`")),
    }
}

/// Lines of a comment as one line.
pub(super) fn flow(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    lines.join(" ").trim().into()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
