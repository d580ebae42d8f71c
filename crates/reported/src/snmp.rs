//! SNMP (RFC 3416; with users RFC 3414): which objects are asked for, when, and what an agent's refusals mean.
//!
//! ```text
//! first, and each minute   which built-in objects there are      GET of all, those that are missing are left out then
//! each period of a metric  the objects that the metric is made of      GET
//! each period of cpu       hrProcessorLoad, if nothing better tells the used share; each minute for the number of CPUs
//!                                                                 GETBULK, version 1 GETNEXT
//! ```
//!
//! Nothing is sent a second time: the next period asks again. An answer comes from the node's own address or is none.
//!
//! Failure case: an agent that does not know our community is silent, like one that is not there. One that does not know our
//! user, or has other keys, says so in a report that nothing proves to be the agent's: a session that answers believes none. After
//! silence the next one is opened to be told why; what it is told is said, and no load comes of it.
//! Source: RFC 3416, RFC 3414; HOST-RESOURCES-MIB (RFC 2790), UCD-SNMP-MIB, our TIDEGATE-MIB.

mod objects;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use async_snmp::transport::{UdpHandle, UdpTransport};
use async_snmp::v3::{AuthProtocol, PrivProtocol, ReportStatus};
use async_snmp::{Auth, Client, Error, ErrorStatus, Oid, Retry, UsmConfig, Value};
use tidegate_core::load::{ReportedMetric, ReportedValue};

use crate::source::{PollFault, Secret};
use objects::{Answers, BuiltIn, Meaning};

/// Longest and shortest wait for an answer.
const WAIT_MIN: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Objects in one question.
const OBJECTS_MAX: usize = 24;
/// Rows in one answer to GETBULK, and of a table.
const BULK_ROWS: u32 = 40;
const ROWS_MAX: usize = 1024;
/// How often it is looked which objects there are, and how many CPUs.
const LOOK_EVERY: Duration = Duration::from_secs(60);

const SILENT_COMMUNITY: &str =
    "does an agent of SNMP listen there, and does it know our community and address?";
const SILENT_USER: &str =
    "does an agent of SNMP listen there, and does it know our user with these passwords?";
const NOTHING: &str =
    "no such object: it has none of those that tell a load, or its view does not show them to us";

/// An object's name: up to 128 numbers, the first two of them small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectId(Vec<u32>);

impl ObjectId {
    /// Reads `1.3.6.1…`, with or without a dot in front.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('.').unwrap_or(text);
        let numbers: Result<Vec<u32>, _> = text.split('.').map(str::parse).collect();
        let numbers = numbers.ok()?;
        let oid = Oid::new(numbers.iter().copied());
        (numbers.len() >= 3 && oid.validate_for_wire().is_ok()).then_some(Self(numbers))
    }

    fn oid(&self) -> Oid {
        Oid::from_slice(&self.0)
    }
}

/// Which version is spoken, and by which name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnmpVersion {
    /// Version 1, with a community.
    V1(Secret),
    /// Version 2c, with a community.
    V2c(Secret),
    /// Version 3, as a user.
    V3(SnmpUser),
}

/// A user of version 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnmpUser {
    /// Its name.
    pub name: String,
    /// How messages are authenticated, with which password; none: they are not.
    pub auth: Option<(AuthKind, Secret)>,
    /// How they are encrypted; only with `auth`.
    pub privacy: Option<(PrivacyKind, Secret)>,
}

macro_rules! protocols {
    ($(#[doc = $about:literal])* $name:ident: $theirs:ident { $($variant:ident $doc:literal,)* }) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $( #[doc = $doc] $variant, )* }

        impl $name {
            fn protocol(self) -> $theirs {
                match self { $( Self::$variant => $theirs::$variant, )* }
            }
        }
    };
}

protocols! {
    /// How messages are authenticated.
    AuthKind: AuthProtocol {
        Md5 "HMAC-MD5-96, for devices that know nothing better.",
        Sha1 "HMAC-SHA-96.",
        Sha224 "HMAC-SHA-224.",
        Sha256 "HMAC-SHA-256.",
        Sha384 "HMAC-SHA-384.",
        Sha512 "HMAC-SHA-512.",
    }
}

protocols! {
    /// How messages are encrypted.
    PrivacyKind: PrivProtocol {
        Des "DES, for devices that know nothing better.",
        Aes128 "AES with a key of 128 bits.",
        Aes192Blumenthal "AES with a key of 192 bits.",
        Aes256Blumenthal "AES with a key of 256 bits.",
    }
}

/// An object that the configuration names.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomObject {
    /// Its name.
    pub id: ObjectId,
    /// What its value says.
    pub metric: ReportedMetric,
    /// What the value is multiplied with, finite.
    pub scale: f32,
}

impl Eq for CustomObject {}

/// How often each metric is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Periods {
    /// All but those below.
    pub usual: Duration,
    /// Memory.
    pub memory: Duration,
    /// File descriptors.
    pub files: Duration,
}

impl Periods {
    /// The shortest of them.
    pub fn shortest(&self) -> Duration {
        self.usual.min(self.memory).min(self.files)
    }

    fn of(&self, metric: ReportedMetric) -> Duration {
        match metric {
            ReportedMetric::Memory => self.memory,
            ReportedMetric::Files => self.files,
            ReportedMetric::Cpu
            | ReportedMetric::Capacity
            | ReportedMetric::Runnable
            | ReportedMetric::LoadAverage
            | ReportedMetric::InFlight => self.usual,
        }
    }
}

/// How a node is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnmpConfig {
    /// Where its agent listens.
    pub address: SocketAddr,
    /// In which words.
    pub version: SnmpVersion,
    /// How often.
    pub periods: Periods,
    /// Objects that go before the built-in ones of their metric.
    pub objects: Vec<CustomObject>,
}

impl SnmpConfig {
    /// What is wrong with it, if anything is: passwords that are too short.
    ///
    /// # Errors
    /// A sentence that names no secret.
    pub fn check(&self) -> Result<(), String> {
        self.auth().map(drop)
    }

    fn auth(&self) -> Result<Auth, String> {
        let user = match &self.version {
            SnmpVersion::V1(community) => return Ok(Auth::v1(community.reveal())),
            SnmpVersion::V2c(community) => return Ok(Auth::v2c(community.reveal())),
            SnmpVersion::V3(user) => user,
        };
        let config = UsmConfig::new(user.name.clone().into_bytes());
        let config = match (&user.auth, &user.privacy) {
            (None, _) => Ok(config),
            (Some((auth, password)), None) => config.auth(auth.protocol(), password.reveal()),
            (Some((auth, password)), Some((privacy, other))) => config.auth_priv(
                auth.protocol(),
                password.reveal(),
                privacy.protocol(),
                other.reveal(),
            ),
        };
        config.map(Auth::from).map_err(|error| error.to_string())
    }

    fn wait(&self) -> Duration {
        self.periods.shortest().clamp(WAIT_MIN, WAIT_MAX)
    }

    fn silent(&self) -> &'static str {
        match self.version {
            SnmpVersion::V1(_) | SnmpVersion::V2c(_) => SILENT_COMMUNITY,
            SnmpVersion::V3(_) => SILENT_USER,
        }
    }
}

/// Asks one node.
pub(crate) struct SnmpPoll {
    config: SnmpConfig,
    client: Option<Client<UdpHandle>>,
    /// It was silent, or has refused us: reports that are not authenticated are listened to.
    asks_why: bool,
    meaning: Meaning,
    /// When each metric is due, and the look at what there is.
    due: [Duration; ReportedMetric::COUNT],
    look_due: Duration,
}

impl SnmpPoll {
    pub(crate) fn new(config: SnmpConfig) -> Self {
        let own = config.objects.iter().map(|it| it.metric).collect();
        Self {
            config,
            client: None,
            asks_why: false,
            meaning: Meaning::new(own),
            due: [Duration::ZERO; ReportedMetric::COUNT],
            look_due: Duration::ZERO,
        }
    }

    /// Asks for what is due `now`, since the first poll. An agent that is silent may have come back as another engine, which
    /// knows nothing of our session with the former one: the next poll begins anew.
    pub(crate) async fn ask(&mut self, now: Duration) -> Result<Vec<ReportedValue>, PollFault> {
        let asked = self.ask_once(now).await;
        let is_unheard = matches!(asked, Err(PollFault::NoAnswer(_) | PollFault::Refused(_)));
        // The session in which it answers again is not to believe such reports either.
        if is_unheard || self.asks_why {
            self.client = None;
        }
        self.asks_why = is_unheard;
        asked
    }

    /// Whether the next answer tells the used share of the CPUs.
    pub(crate) fn counts_cpu(&self) -> bool {
        self.meaning.counts_cpu()
    }

    async fn ask_once(&mut self, now: Duration) -> Result<Vec<ReportedValue>, PollFault> {
        let client = self.client().await?;
        let looks = now >= self.look_due;
        if looks {
            self.meaning.expect_all();
        }
        let due: Vec<_> = ReportedMetric::ALL
            .iter()
            .map(|(metric, _)| *metric)
            .filter(|metric| now >= self.due[*metric as usize])
            .collect();
        let mut answers = Answers::default();
        self.get(&client, &due, &mut answers).await?;
        let wants_rows = looks || (due.contains(&ReportedMetric::Cpu) && self.meaning.needs_rows());
        if wants_rows {
            answers.rows = self.processor_loads(&client).await?;
        }
        let values = self.meaning.values(&answers, now);
        if values.is_empty() && self.meaning.is_empty() && self.config.objects.is_empty() {
            return Err(PollFault::NothingThere(NOTHING));
        }
        if looks {
            self.look_due = now + LOOK_EVERY;
        }
        for metric in &due {
            self.due[*metric as usize] = now + self.config.periods.of(*metric);
        }
        let values: Vec<_> = (values.into_iter().chain(self.own_values(&answers)))
            .map(|value| ReportedValue {
                period: value.period.max(self.config.periods.of(value.metric)),
                ..value
            })
            .collect();
        if values.is_empty() && looks {
            return Err(PollFault::NothingThere(NOTHING));
        }
        Ok(values)
    }

    /// The values of objects that the configuration names.
    fn own_values(&self, answers: &Answers) -> Vec<ReportedValue> {
        let own = self.config.objects.iter().zip(&answers.own);
        let value = |(object, answer): (&CustomObject, &Option<f64>)| {
            let number = (*answer)? as f32 * object.scale;
            Some(objects::reported(object.metric, number))
        };
        own.filter_map(value).collect()
    }

    /// Asks for the objects of these metrics. One that is missing is left out until the next look.
    async fn get(
        &mut self,
        client: &Client<UdpHandle>,
        due: &[ReportedMetric],
        answers: &mut Answers,
    ) -> Result<(), PollFault> {
        let own = &self.config.objects;
        answers.own = vec![None; own.len()];
        let wanted = self.meaning.wanted(due).into_iter().map(Wanted::BuiltIn);
        let own = own.iter().enumerate();
        let own = own.filter(|(_, object)| due.contains(&object.metric));
        let mut wanted: Vec<_> = wanted.chain(own.map(|(at, _)| Wanted::Own(at))).collect();
        let oid = |wanted: &Wanted| match wanted {
            Wanted::BuiltIn(object) => Oid::from_slice(object.oid()),
            Wanted::Own(at) => self.config.objects[*at].id.oid(),
        };
        while !wanted.is_empty() {
            let oids: Vec<_> = wanted.iter().map(oid).collect();
            let missing = match client.get_many(&oids).await {
                Ok(response) => {
                    for varbind in &response.varbinds {
                        let Some(at) = oids.iter().position(|it| *it == varbind.oid) else {
                            continue;
                        };
                        let number = number(&varbind.value);
                        match wanted[at] {
                            Wanted::BuiltIn(object) => match number {
                                Some(number) => answers.set(object, number),
                                None => self.meaning.is_missing(object),
                            },
                            Wanted::Own(own) => answers.own[own] = number,
                        }
                    }
                    return Ok(());
                }
                // Version 1 names the first that is missing and answers none of the others.
                Err(error) => missing(&error).ok_or_else(|| fault(&error, &self.config))?,
            };
            match (missing < wanted.len()).then(|| wanted.remove(missing)) {
                Some(Wanted::BuiltIn(object)) => self.meaning.is_missing(object),
                Some(Wanted::Own(_)) => {}
                None => return Err(PollFault::Malformed),
            }
        }
        Ok(())
    }

    /// The column hrProcessorLoad: a row for each CPU.
    async fn processor_loads(&self, client: &Client<UdpHandle>) -> Result<Vec<f64>, PollFault> {
        let column = Oid::from_slice(objects::PROCESSOR_LOADS);
        let is_first = matches!(self.config.version, SnmpVersion::V1(_));
        let (mut at, mut rows) = (column.clone(), Vec::new());
        while rows.len() < ROWS_MAX {
            let asked = std::slice::from_ref(&at);
            let answered = match is_first {
                true => client.get_next(&at).await.map(|it| it.varbinds),
                false => client.get_bulk(asked, 0, BULK_ROWS).await,
            };
            let answered = match answered {
                Err(error) if missing(&error).is_some() => break,
                answered => answered.map_err(|error| fault(&error, &self.config))?,
            };
            let before = rows.len();
            for varbind in answered {
                let number = number(&varbind.value);
                let follows = varbind.oid.starts_with(&column) && varbind.oid.arcs() > at.arcs();
                let (true, Some(number)) = (follows, number) else {
                    return Ok(rows);
                };
                at = varbind.oid;
                rows.push(number);
            }
            if rows.len() == before {
                break;
            }
        }
        Ok(rows)
    }

    async fn client(&mut self) -> Result<Client<UdpHandle>, PollFault> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let unsent = |error: &dyn std::fmt::Display| PollFault::Unsent(error.to_string());
        let any: IpAddr = match self.config.address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let transport = UdpTransport::bind(SocketAddr::new(any, 0).to_string()).await;
        let transport = transport.map_err(|error| unsent(&error))?;
        let auth = self.config.auth().map_err(|error| unsent(&error))?;
        let client = Client::builder(self.config.address, auth)
            .request_timeout(self.config.wait())
            .retry(Retry::none())
            .strict_source(true)
            .allow_unauthenticated_v3_time_correction(self.asks_why)
            .max_oids_per_request(OBJECTS_MAX)
            .build_with(&transport)
            .await
            .map_err(|error| unsent(&error))?;
        self.client = Some(client.clone());
        Ok(client)
    }
}

/// An object in a question.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    BuiltIn(BuiltIn),
    /// By its place in the configuration.
    Own(usize),
}

/// A value as a number; nothing if it is none.
fn number(value: &Value) -> Option<f64> {
    if let Some(number) = value.as_f64() {
        return Some(number);
    }
    if let Some(number) = value.as_opaque_float() {
        return Some(number.into());
    }
    // Percents and averages come as texts as well.
    value.as_str()?.trim().parse().ok()
}

/// The place of the object that version 1 says is missing.
fn missing(error: &Error) -> Option<usize> {
    let Error::Snmp { status, index, .. } = error.exchange_source() else {
        return None;
    };
    let is_missing = *status == ErrorStatus::NoSuchName;
    is_missing.then_some(index.saturating_sub(1) as usize)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "others may join the faults of the library"
)]
fn fault(error: &Error, config: &SnmpConfig) -> PollFault {
    match error.exchange_source() {
        Error::Timeout { .. } => PollFault::NoAnswer(config.silent()),
        Error::Network { source, .. } => PollFault::Unsent(source.to_string()),
        Error::Closed { .. } => PollFault::Unsent("its socket was closed".into()),
        Error::Report { status, .. } => PollFault::Refused(match **status {
            ReportStatus::UnknownUserName { .. } => "wrong user: it knows none of this name",
            ReportStatus::WrongDigest { .. } => "wrong password or `auth` for this user",
            ReportStatus::DecryptionError { .. } => "wrong password or `privacy` for this user",
            ReportStatus::UnsupportedSecurityLevel { .. } => {
                "it wants other `auth` or `privacy` of this user"
            }
            ReportStatus::NotInTimeWindow { .. } => "it says that our message is old",
            _ => "it reports a fault of our message",
        }),
        Error::Auth { .. } => PollFault::Refused("its answer is not authenticated as wanted"),
        Error::Snmp {
            status: ErrorStatus::AuthorizationError | ErrorStatus::NoAccess,
            ..
        } => PollFault::Refused("this community or user may not read there"),
        Error::Snmp { .. } => PollFault::Refused("it answers with an error"),
        _ => PollFault::Malformed,
    }
}

#[cfg(test)]
mod tests;
