//! How nodes without an agent of ours are asked for their load: keys of a node's `load`, and what is wrong with them.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::load::ReportedMetric;
use tidegate_reported::{
    AgentCheckConfig, AuthKind, CustomObject, ObjectId, OrcaConfig, Periods, PrivacyKind, Secret,
    SnmpConfig, SnmpUser, SnmpVersion, SourceConfig,
};

use super::NodeRead;
use super::file::{NodeLoadFile, TransportName};
use super::problem::Problem;
use super::setting::{At, names, table};
use super::validate::Checker;

/// Port of agents of SNMP.
const SNMP_PORT: u16 = 161;
/// Time between two polls.
const PERIOD: Duration = Duration::from_millis(500);
pub(super) const PERIOD_MIN: Duration = Duration::from_millis(100);
/// Four of them are the longest for which a load is believed.
pub(super) const PERIOD_MAX: Duration = Duration::from_secs(15);
/// The same of agents of HAProxy's agent check, as HAProxy has it.
const AGENT_PERIOD: Duration = Duration::from_secs(2);
/// The same of ORCA's reports.
const ORCA_PERIOD: Duration = Duration::from_secs(1);
/// Longest question to one, bytes.
const QUESTION_BYTES_MAX: usize = 512;
/// Most objects of one node.
const OBJECTS_MAX: usize = 16;
/// Longest community, password and user's name, bytes.
const SECRET_BYTES_MAX: usize = 256;
const USER_BYTES_MAX: usize = 32;

names! {
    /// Versions of SNMP.
    pub(crate) enum SnmpVersionName as "version" {
        V1 = "1",
        V2c = "2c",
        V3 = "3",
    }
}

names! {
    /// How messages of SNMP are authenticated.
    pub(crate) enum AuthName as "way to authenticate" {
        Sha256 = "sha256",
        Sha512 = "sha512",
        Sha384 = "sha384",
        Sha224 = "sha224",
        Sha1 = "sha1",
        Md5 = "md5",
    }
}

names! {
    /// How messages of SNMP are encrypted.
    pub(crate) enum PrivacyName as "way to encrypt" {
        Aes128 = "aes128",
        Aes192 = "aes192",
        Aes256 = "aes256",
        Des = "des",
    }
}

names! {
    /// What an object's value says.
    pub(crate) enum MetricName as "metric" {
        Cpu = "cpu",
        Memory = "memory",
        Files = "files",
        Capacity = "capacity",
        Runnable = "runnable",
        LoadAverage = "load_average",
        InFlight = "in_flight",
    }
}

impl MetricName {
    fn metric(self) -> ReportedMetric {
        match self {
            Self::Cpu => ReportedMetric::Cpu,
            Self::Memory => ReportedMetric::Memory,
            Self::Files => ReportedMetric::Files,
            Self::Capacity => ReportedMetric::Capacity,
            Self::Runnable => ReportedMetric::Runnable,
            Self::LoadAverage => ReportedMetric::LoadAverage,
            Self::InFlight => ReportedMetric::InFlight,
        }
    }
}

table! {
    /// Metrics that are asked for more rarely than each `period`, or more often.
    pub(crate) struct PeriodsFile {
        /// Memory.
        memory: Option<Duration> = None, in Some(PERIOD_MIN)..=Some(PERIOD_MAX);
        /// File descriptors.
        files: Option<Duration> = None, in Some(PERIOD_MIN)..=Some(PERIOD_MAX);
    }
}

table! {
    /// An object of SNMP whose value is a metric, in place of the objects that are known for it.
    pub(crate) struct ObjectFile {
        /// Its name in numbers, like `1.3.6.1.4.1.2021.4.6.0`: a scalar ends in `.0`.
        oid: String;
        /// What it says: used shares of `cpu`, `memory` and `files` from 0 to 1; CPUs (`capacity`); tasks that run or wait
        /// (`runnable`), and their mean over a minute (`load_average`); requests `in_flight`.
        metric: MetricName;
        /// What the value is multiplied with: 0.01 makes a share of a percentage.
        scale: f64 = 1.0;
        /// What the value is at most; then it counts as a share of that. Not set: 1.
        max: Option<f64> = None;
    }
}

impl Checker<'_> {
    /// A node whose load comes by SNMP. Without an address of its own, the agent is where the node is.
    pub(super) fn snmp_read(&mut self, load: &NodeLoadFile, at: IpAddr) -> Option<NodeRead> {
        let address = match load.address.value {
            Some(address) => Some(address),
            None if at.is_unspecified() => {
                let message = "a node with a host name needs the `address` of its SNMP agent";
                self.problem(load.transport.place(), message, "needs `address`");
                None
            }
            None => Some(SocketAddr::new(at, SNMP_PORT)),
        };
        let version = match spoken(load) {
            SnmpVersionName::V1 => self.community(load).map(SnmpVersion::V1),
            SnmpVersionName::V2c => self.community(load).map(SnmpVersion::V2c),
            SnmpVersionName::V3 => self.user(load).map(SnmpVersion::V3),
        };
        self.version_fits(load);
        let objects = self.objects(load);
        let usual = load.period.value.unwrap_or(PERIOD);
        let periods = load.periods.value.as_ref();
        let of = |own: Option<&At<Option<Duration>>>| own.and_then(|it| it.value).unwrap_or(usual);
        let config = SnmpConfig {
            address: address?,
            version: version?,
            periods: Periods {
                usual,
                memory: of(periods.map(|it| &it.memory)),
                files: of(periods.map(|it| &it.files)),
            },
            objects: objects?,
        };
        if let Err(why) = config.check() {
            let at = load.auth_file.place();
            self.problem(at, format!("cannot use this user: {why}"), "here");
            return None;
        }
        Some(NodeRead::Reported(Box::new(SourceConfig::Snmp(config))))
    }

    /// A node whose agent is asked as HAProxy asks it.
    pub(super) fn agent_check_read(&mut self, load: &NodeLoadFile) -> Option<NodeRead> {
        let address = load.address.value;
        if address.is_none() {
            let message = "`address` is missing: where does the node's agent answer?";
            self.problem(load.transport.place(), message, "needs `address`");
        }
        let send = load.send.value.clone().unwrap_or_default();
        if send.len() > QUESTION_BYTES_MAX {
            let message = format!("`send` is longer than {QUESTION_BYTES_MAX} bytes");
            self.problem(load.send.place(), message, "too long");
            return None;
        }
        let config = AgentCheckConfig {
            address: address?,
            send,
            period: load.period.value.unwrap_or(AGENT_PERIOD),
        };
        Some(NodeRead::Reported(Box::new(SourceConfig::AgentCheck(
            config,
        ))))
    }

    fn community(&mut self, load: &NodeLoadFile) -> Option<Secret> {
        let missing = "versions 1 and 2c ask with a community";
        self.needed_secret(&load.community_file, load, ("community_file", missing))
    }

    fn user(&mut self, load: &NodeLoadFile) -> Option<SnmpUser> {
        let name = load.user.value.clone().unwrap_or_default();
        if !(1..=USER_BYTES_MAX).contains(&name.len()) {
            let at = match load.user.at {
                Some(_) => load.user.place(),
                None => load.transport.place(),
            };
            let message = format!("version 3 asks as a `user` of 1 to {USER_BYTES_MAX} letters");
            self.problem(at, message, "which user?");
            return None;
        }
        let auth = match (&load.auth_file.value, load.auth.value) {
            (None, None) => None,
            (_, kind) => {
                let missing = "`auth` goes with the password";
                let secret = self.needed_secret(&load.auth_file, load, ("auth_file", missing))?;
                Some((auth_kind(kind.unwrap_or(AuthName::Sha256)), secret))
            }
        };
        let privacy = match (&load.privacy_file.value, load.privacy.value) {
            (None, None) => None,
            (_, kind) => {
                let missing = "`privacy` goes with the password";
                let secret =
                    self.needed_secret(&load.privacy_file, load, ("privacy_file", missing))?;
                Some((privacy_kind(kind.unwrap_or(PrivacyName::Aes128)), secret))
            }
        };
        if privacy.is_some() && auth.is_none() {
            let at = load.privacy_file.place();
            let message = "messages that are encrypted are authenticated as well";
            self.problem(at, message, "needs `auth_file`");
            return None;
        }
        Some(SnmpUser {
            name,
            auth,
            privacy,
        })
    }

    /// The secret in a file that must be given.
    fn needed_secret(
        &mut self,
        file: &At<Option<PathBuf>>,
        load: &NodeLoadFile,
        (key, missing): (&str, &str),
    ) -> Option<Secret> {
        let Some(path) = &file.value else {
            let message = format!("`{key}` is missing: {missing}");
            self.problem(load.transport.place(), message, format!("needs `{key}`"));
            return None;
        };
        match self.secret(path) {
            Ok(secret) => Some(secret),
            Err(why) => {
                let message = format!("cannot use this {key}: {why}");
                self.problem(file.place(), message, "here");
                None
            }
        }
    }

    /// The text in a file for its owner alone, without the line's end.
    fn secret(&mut self, path: &Path) -> Result<Secret, String> {
        let text = self.secret_text(self.path(path), SECRET_BYTES_MAX)?;
        text.line().ok_or_else(|| "it is to hold one line".into())
    }

    /// Keys of one version mean nothing with another.
    fn version_fits(&mut self, load: &NodeLoadFile) {
        let is_third = spoken(load) == SnmpVersionName::V3;
        for (name, at, fits) in [
            ("community_file", &load.community_file.at, !is_third),
            ("user", &load.user.at, is_third),
            ("auth", &load.auth.at, is_third),
            ("auth_file", &load.auth_file.at, is_third),
            ("privacy", &load.privacy.at, is_third),
            ("privacy_file", &load.privacy_file.at, is_third),
        ] {
            if let (Some(at), false) = (at, fits) {
                let message = format!("version {} of SNMP has no `{name}`", spoken(load).label());
                self.problem(at.clone(), message, "means nothing here");
            }
        }
    }

    fn objects(&mut self, load: &NodeLoadFile) -> Option<Vec<CustomObject>> {
        let oids = load.oids.value.as_deref().unwrap_or_default();
        if oids.len() > OBJECTS_MAX {
            let message = format!("more than {OBJECTS_MAX} objects of one node");
            self.problem(load.oids.place(), message, "too many");
            return None;
        }
        let objects = oids.iter().map(|object| self.object(object));
        let objects: Vec<_> = objects.collect();
        objects.into_iter().collect()
    }

    fn object(&mut self, file: &ObjectFile) -> Option<CustomObject> {
        let Some(id) = ObjectId::parse(&file.oid.value) else {
            self.problems.push(
                Problem::new(
                    file.oid.place(),
                    format!("`{}` is no name of an object", file.oid.value),
                    "not an OID",
                )
                .help("numbers with dots between them, like 1.3.6.1.4.1.2021.4.6.0"),
            );
            return None;
        };
        let max = file.max.value.unwrap_or(1.0);
        let scale = (file.scale.value / max) as f32;
        if !(scale.is_finite() && scale > 0.0) {
            let message = "`scale` and `max` are to be above 0";
            self.problem(file.oid.place(), message, "of this object");
            return None;
        }
        Some(CustomObject {
            id,
            metric: file.metric.value.metric(),
            scale,
        })
    }

    /// Keys of loads that others report, with whether they fit the way in which the node is read.
    pub(super) fn reported_keys(
        load: &NodeLoadFile,
    ) -> [(&'static str, Option<Range<usize>>, bool); 11] {
        let orca = load.transport.value == TransportName::Orca;
        let agent_check = load.transport.value == TransportName::AgentCheck;
        let snmp = load.transport.value == TransportName::Snmp;
        [
            ("version", load.version.at.clone(), snmp),
            ("community_file", load.community_file.at.clone(), snmp),
            ("user", load.user.at.clone(), snmp),
            ("auth", load.auth.at.clone(), snmp),
            ("auth_file", load.auth_file.at.clone(), snmp),
            ("privacy", load.privacy.at.clone(), snmp),
            ("privacy_file", load.privacy_file.at.clone(), snmp),
            ("send", load.send.at.clone(), agent_check),
            (
                "period",
                load.period.at.clone(),
                snmp || agent_check || orca,
            ),
            ("periods", load.periods.at.clone(), snmp),
            ("oids", load.oids.at.clone(), snmp),
        ]
    }
}

/// A node whose load comes by ORCA: with its responses, or streamed where it says from where.
pub(super) fn orca_read(load: &NodeLoadFile) -> NodeRead {
    let period = load.period.value;
    match load.address.value {
        None => NodeRead::Responses {
            period: period.unwrap_or(ORCA_PERIOD),
        },
        Some(address) => {
            let period = period.unwrap_or(PERIOD);
            let config = OrcaConfig { address, period };
            NodeRead::Reported(Box::new(SourceConfig::Orca(config)))
        }
    }
}

fn spoken(load: &NodeLoadFile) -> SnmpVersionName {
    load.version.value.unwrap_or(SnmpVersionName::V2c)
}

fn auth_kind(name: AuthName) -> AuthKind {
    match name {
        AuthName::Sha256 => AuthKind::Sha256,
        AuthName::Sha512 => AuthKind::Sha512,
        AuthName::Sha384 => AuthKind::Sha384,
        AuthName::Sha224 => AuthKind::Sha224,
        AuthName::Sha1 => AuthKind::Sha1,
        AuthName::Md5 => AuthKind::Md5,
    }
}

fn privacy_kind(name: PrivacyName) -> PrivacyKind {
    match name {
        PrivacyName::Aes128 => PrivacyKind::Aes128,
        PrivacyName::Aes192 => PrivacyKind::Aes192Blumenthal,
        PrivacyName::Aes256 => PrivacyKind::Aes256Blumenthal,
        PrivacyName::Des => PrivacyKind::Des,
    }
}
