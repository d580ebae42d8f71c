//! How a site looks after its nodes: the table of its checks, the slow start, and what is wrong with either.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hickory_proto::rr::Name;
use http::uri::{Authority, PathAndQuery};
use tidegate_core::topology::{
    BytesCheck, CHECKS_MAX, CheckConfig, CheckMethod, CheckRequest, DnsCheck, DnsRecords, FtpLogin,
    HealthConfig, HttpCheck, NfsVersion, SoaWanted,
};
use tidegate_node::check_program;
use toml::de::DeValue;

use super::file::{AgentFile, SiteFile, defaults};
use super::payload::Payload;
use super::problem::{Problem, Problems};
use super::setting::{At, Encoded, Raw, Setting, names, quoted, table, wrong_type};
use super::soft_limits::soft_limits;
use crate::secret_file;

/// Time between two checks of a node.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
const TIMEOUT_MIN: Duration = Duration::from_millis(10);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Checks in a row.
const ROW_MAX: u32 = 100;
/// Statuses that a final answer can have.
const STATUSES: RangeInclusive<u16> = 200..=599;
/// Bytes of a user's name, and of a password.
const LOGIN_BYTES_MAX: usize = 256;
/// Words of a command, and bytes of all of them.
const WORDS_MAX: usize = 64;
const COMMAND_BYTES_MAX: usize = 8 << 10;
/// Bytes of the name of a service of gRPC.
const SERVICE_BYTES_MAX: usize = 120;
/// Letters of a label.
const LABEL_MAX: usize = 64;
/// The password of a user without a file: `anonymous` may have any.
const ANONYMOUS_PASSWORD: &str = "tidegate-check";

table! {
    /// Asks each node whether it is well, beside what its requests show ([health.md](health.md)). A node that fails gets no
    /// requests until it passes; if all fail, they are used all the same. A site has one check, `[site.check]`, or up to
    /// eight, `[[site.check]]` each: a node is out while any of them fails. Those of `[[agent.check]]` are made by the agent, on
    /// its own host, and their results are in the load record.
    pub(crate) struct CheckFile {
        /// What is asked.
        kind: CheckKindName = CheckKindName::Http;
        /// What the check is called where there are several: letters, digits, `.`, `-` and `_`. Not set: its kind, and its
        /// place among those of that kind if it is not the first (`dns-2`).
        label: Option<String> = None;
        /// http: path and query.
        path: String = "/".into();
        /// http: the host that is asked for. Not set: the site's first whole host, or the address that is asked.
        host: Option<String> = None;
        /// http: how it is asked.
        method: MethodName = MethodName::Get;
        /// http: statuses of a node that is well, each one or a range: `[200, "300-399"]`.
        status: Vec<At<Statuses>> = vec![At::default_of(Statuses(200..=399))];
        /// http: what the first 64 KiB of the body must contain.
        body: Option<String> = None;
        /// tcp, udp: what is sent, like `"PING\r\n"` or `{ hex = "0a0d" }`; udp needs it.
        send: Option<Payload> = None;
        /// tcp, udp: what the first 64 KiB of the answer must contain. Not set: after `send` any answer will do; without
        /// both, a connection.
        expect: Option<Payload> = None;
        /// grpc: the service that is asked about. Not set: the server as a whole.
        service: Option<String> = None;
        /// dns: the name that is asked for.
        name: Option<String> = None;
        /// dns: which records of it.
        record: RecordName = RecordName::A;
        /// dns: one of the records: its address; of SOA the zone's serial or primary server. Not set: any will do.
        answer: Option<String> = None;
        /// ftp: the user that logs in. Not set: the server's greeting is enough.
        user: Option<String> = None;
        /// ftp: a file with the user's password, which others cannot read. Relative to this file. Not set: the password is
        /// `tidegate-check`, which will do for `anonymous`.
        password_file: Option<PathBuf> = None;
        /// nfs: the version that must be there, 3 or 4.
        version: u32 = 4, in 3..=4;
        /// exec: the program and its arguments, which are given to it as they are, without a shell. Only root and the
        /// user that runs it may be able to change it.
        command: Vec<At<String>> = Vec::new();
        /// `[[agent.check]]`: the service's address, if it is not this host's loopback.
        address: Option<String> = None;
        /// Another port than that of requests. Not set: 53 for `dns`, 21 for `ftp`, 2049 for `nfs`, 445 for `smb`.
        /// `[[agent.check]]` needs it for `grpc`, `http`, `tcp` and `udp`.
        port: Option<u32> = None, in Some(1)..=Some(65_535);
        /// http, tcp, grpc: whether nodes are asked through TLS, as the site's `node_tls` has it. Not set: where that is set, and the check has
        /// no `port`.
        tls: Option<bool> = None;
        /// Time between two checks of a node, from each front-end; or of a service, from its agent.
        interval: Duration = Duration::from_secs(2), in INTERVAL_MIN..=INTERVAL_MAX;
        /// How long connection and answer may take.
        timeout: Duration = Duration::from_secs(1), in TIMEOUT_MIN..=TIMEOUT_MAX;
        /// Checks in a row that a node must pass to get requests again.
        rise: u32 = 2, in 1..=ROW_MAX;
        /// Checks in a row that a node must fail to get none.
        fall: u32 = 3, in 1..=ROW_MAX;
    }
}

/// The checks of a site: one table, or a list of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CheckFiles(pub(crate) Vec<At<CheckFile>>);

impl Setting for CheckFiles {
    fn kind() -> String {
        "a table or a list of tables".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        match raw.get_ref() {
            DeValue::Table(_) => At::decode(raw, problems).map(|it| Self(vec![it])),
            DeValue::Array(items) if items.is_empty() || items.len() > CHECKS_MAX => {
                let message = format!(
                    "a list of {} checks; there can be 1 to {CHECKS_MAX}",
                    items.len()
                );
                let label = match items.is_empty() {
                    true => "leave it out",
                    false => "too many",
                };
                problems.push(Problem::new(raw.span(), message, label));
                None
            }
            DeValue::Array(_) => Vec::decode(raw, problems).map(Self),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => wrong_type(raw, &Self::kind(), problems),
        }
    }

    fn encode(&self) -> Encoded {
        match self.0.as_slice() {
            [] => Encoded::Unset,
            [one] => one.encode(),
            _ => self.0.encode(),
        }
    }
}

names! {
    /// What a check asks.
    pub(crate) enum CheckKindName as "kind of check" {
        /// An answer as wanted.
        Http = "http",
        /// A connection, or an answer as wanted.
        Tcp = "tcp",
        /// A datagram that is answered as wanted.
        Udp = "udp",
        /// A name server that knows a name.
        Dns = "dns",
        /// A greeting, or a login.
        Ftp = "ftp",
        /// A call that does nothing.
        Nfs = "nfs",
        /// A dialect.
        Smb = "smb",
        /// A program that ends well.
        Exec = "exec",
        /// gRPC's own word on whether it serves.
        Grpc = "grpc",
    }
}

names! {
    /// How a check asks.
    pub(crate) enum MethodName as "method of a check" {
        Get = "GET",
        Head = "HEAD",
    }
}

names! {
    /// What a name server is asked for.
    pub(crate) enum RecordName as "kind of record" {
        A = "A",
        Aaaa = "AAAA",
        Soa = "SOA",
    }
}

/// A status or a range of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statuses(pub(crate) RangeInclusive<u16>);

impl Setting for Statuses {
    fn kind() -> String {
        "a status or a range like \"200-399\"".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let text = match raw.get_ref() {
            DeValue::Integer(integer) => integer.as_str(),
            DeValue::String(text) => text.as_ref(),
            DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => return wrong_type(raw, &Self::kind(), problems),
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let status = |text: &str| {
            let status = text.trim().parse().ok();
            status.filter(|status| STATUSES.contains(status))
        };
        let range = status(first).zip(status(last));
        let range = range.filter(|(first, last)| first <= last);
        if range.is_none() {
            let (least, most) = (STATUSES.start(), STATUSES.end());
            let message = format!("`{text}` is no status and no range of statuses");
            let problem = Problem::new(raw.span(), message, "here");
            problems.push(problem.help(format!(
                "a number from {least} to {most}, or two like \"200-399\""
            )));
        }
        range.map(|(first, last)| Self(first..=last))
    }

    fn encode(&self) -> Encoded {
        let (first, last) = (self.0.start(), self.0.end());
        match first == last {
            true => Encoded::Inline(first.to_string()),
            false => quoted(&format!("{first}-{last}")),
        }
    }
}

/// How a site looks after its nodes, where those that move here take so long to warm up and paths are relative to `folder`.
/// What is wrong is among the problems.
pub(super) fn health(
    site: &SiteFile,
    warm_up: Duration,
    folder: &Path,
    problems: &mut Problems,
) -> HealthConfig {
    HealthConfig {
        slow_start: site.slow_start.value,
        warm_up,
        checks: checks(&site.check.value, &Asks::EachNode(site), folder, problems),
        ignores_services: !site.service_checks.value,
        soft_limits: soft_limits(&site.soft_limits),
    }
}

/// What is asked by checks.
enum Asks<'a> {
    /// Each node of a site.
    EachNode(&'a SiteFile),
    /// A service of the agent's own host.
    OwnHost,
}

/// A check that an agent makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceCheck {
    /// Where it asks; a program is given no port if it is 0.
    pub(crate) address: SocketAddr,
    /// What, and how often.
    pub(crate) config: CheckConfig,
}

/// The checks of an agent.
pub(super) fn service_checks(
    agent: &AgentFile,
    folder: &Path,
    problems: &mut Problems,
) -> Vec<ServiceCheck> {
    let configs = checks(&agent.check.value, &Asks::OwnHost, folder, problems);
    let each = agent.check.0.iter().zip(configs).map(|(file, config)| {
        let ip = own_address(file, problems);
        ServiceCheck {
            address: (ip, config.port.unwrap_or(0)).into(),
            config,
        }
    });
    each.collect()
}

/// Where an agent's check asks.
fn own_address(file: &CheckFile, problems: &mut Problems) -> IpAddr {
    let loopback = Ipv4Addr::LOCALHOST.into();
    let Some(address) = &file.address.value else {
        return loopback;
    };
    address.parse().unwrap_or_else(|_| {
        let message = format!("bad address `{address}`");
        let label = "an IP address; `port` says which port";
        problems.push(Problem::new(file.address.place(), message, label));
        loopback
    })
}

/// All checks of a site or an agent. Each has a label of its own.
fn checks(
    files: &CheckFiles,
    asks: &Asks<'_>,
    folder: &Path,
    problems: &mut Problems,
) -> Vec<CheckConfig> {
    let labels = labels(&files.0, problems);
    let each = files.0.iter().zip(labels);
    let each = each.map(|(file, label)| check(file, label, asks, folder, problems));
    each.collect()
}

/// What each check is called: as it says, or by its kind.
fn labels(files: &[At<CheckFile>], problems: &mut Problems) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for (place, file) in files.iter().enumerate() {
        let of_kind = files[..place]
            .iter()
            .filter(|it| it.kind.value == file.kind.value);
        let kind = file.kind.value.label();
        let usual = match of_kind.count() {
            0 => kind.to_owned(),
            before => format!("{kind}-{}", before + 1),
        };
        let label = file.label.value.clone().unwrap_or(usual);
        if !is_label(&label) {
            let message = format!("bad label `{label}`");
            let what = format!("1 to {LABEL_MAX} letters, digits, `.`, `-` and `_`");
            problems.push(Problem::new(file.label.place(), message, what));
        }
        if let Some(first) = labels.iter().position(|it| *it == label) {
            let place = |file: &At<CheckFile>| file.label.at.clone().unwrap_or(file.place());
            let message = format!("two checks are called `{label}`");
            let problem = Problem::new(place(file), message, "this one");
            let problem = problem.context(place(&files[first]), "and this one");
            problems.push(problem.help("give one of them another `label`"));
        }
        labels.push(label);
    }
    labels
}

/// Whether it can stand in events, metrics and commands as it is.
fn is_label(label: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=LABEL_MAX).contains(&label.len()) && label.bytes().all(fits)
}

fn check(
    file: &At<CheckFile>,
    label: String,
    asks: &Asks<'_>,
    folder: &Path,
    problems: &mut Problems,
) -> CheckConfig {
    keys_of_other_kinds(file, problems);
    wrong_target(file, asks, problems);
    let kind = file.kind.value;
    let request = match kind {
        CheckKindName::Tcp => CheckRequest::Tcp(bytes_check(file, problems)),
        CheckKindName::Udp => {
            if file.send.is_none() {
                missing(file, "send", "a node is asked by a datagram", problems);
            }
            CheckRequest::Udp(bytes_check(file, problems))
        }
        CheckKindName::Dns => CheckRequest::Dns(dns_check(file, problems)),
        CheckKindName::Ftp => CheckRequest::Ftp(ftp_login(file, folder, problems)),
        CheckKindName::Nfs => CheckRequest::Nfs(match file.version.value {
            3 => NfsVersion::Three,
            _ => NfsVersion::Four,
        }),
        CheckKindName::Smb => CheckRequest::Smb,
        CheckKindName::Exec => CheckRequest::Exec(command(file, asks, problems)),
        CheckKindName::Grpc => CheckRequest::Grpc(grpc_service(file, problems)),
        CheckKindName::Http => {
            wrong_request(file, problems);
            CheckRequest::Http(http_check(file, asks))
        }
    };
    let port = file.port.value.and_then(|port| u16::try_from(port).ok());
    CheckConfig {
        label,
        request,
        port: port.or(usual_port(kind)),
        tls: speaks_tls(file, asks, problems),
        interval: file.interval.value,
        timeout: file.timeout.value,
        rise: file.rise.value,
        fall: file.fall.value,
    }
}

/// Whether a check is made through TLS.
fn speaks_tls(file: &CheckFile, asks: &Asks<'_>, problems: &mut Problems) -> bool {
    let (has_rule, label) = match asks {
        Asks::EachNode(site) => (site.node_tls.is_some(), "the site has no `node_tls`"),
        Asks::OwnHost => (false, "an agent's checks speak none"),
    };
    if file.tls.value == Some(true) && !has_rule {
        let message = "by which rules does this check speak TLS?";
        problems.push(Problem::new(file.tls.place(), message, label));
    }
    let kinds = [CheckKindName::Http, CheckKindName::Tcp, CheckKindName::Grpc];
    let usual = kinds.contains(&file.kind.value) && file.port.is_none();
    has_rule && file.tls.value.unwrap_or(usual)
}

/// Notes where a check's address or port is not as it can be.
fn wrong_target(file: &At<CheckFile>, asks: &Asks<'_>, problems: &mut Problems) {
    use CheckKindName::{Grpc, Http, Tcp, Udp};
    match asks {
        Asks::EachNode(_) if file.address.is_some() => {
            let message = "a site's check has no `address`";
            let label = "each node is asked at its own";
            let problem = Problem::new(file.address.place(), message, label);
            problems.push(problem.help("leave it out; `[[agent.check]]` has one"));
        }
        Asks::OwnHost
            if [Grpc, Http, Tcp, Udp].contains(&file.kind.value) && file.port.is_none() =>
        {
            let message = format!(
                "a service check of kind `{}` needs `port`",
                file.kind.label()
            );
            let place = file.kind.at.clone().unwrap_or(file.place());
            problems.push(Problem::new(
                place,
                message,
                "where does the service listen?",
            ));
        }
        Asks::EachNode(_) | Asks::OwnHost => {}
    }
}

/// Where servers of this kind listen, if it is not where requests go.
fn usual_port(kind: CheckKindName) -> Option<u16> {
    match kind {
        CheckKindName::Http
        | CheckKindName::Tcp
        | CheckKindName::Udp
        | CheckKindName::Exec
        | CheckKindName::Grpc => None,
        CheckKindName::Dns => Some(53),
        CheckKindName::Ftp => Some(21),
        CheckKindName::Nfs => Some(2049),
        CheckKindName::Smb => Some(445),
    }
}

fn missing(file: &CheckFile, key: &str, why: &str, problems: &mut Problems) {
    let kind = file.kind.value.label();
    let message = format!("a check of kind `{kind}` needs `{key}`");
    problems.push(Problem::new(file.kind.place(), message, why));
}

fn bytes_check(file: &CheckFile, problems: &mut Problems) -> BytesCheck {
    for (key, at) in [("send", &file.send), ("expect", &file.expect)] {
        if let Some(payload) = &at.value
            && payload.bytes().is_empty()
        {
            let message = format!("`{key}` is empty");
            let problem = Problem::new(at.place(), message, "leave it out");
            problems.push(problem);
        }
    }
    let bytes = |payload: &Option<Payload>| {
        payload
            .as_ref()
            .map_or(Vec::new(), |it| it.bytes().to_vec())
    };
    BytesCheck {
        send: bytes(&file.send),
        expect: bytes(&file.expect),
    }
}

fn grpc_service(file: &CheckFile, problems: &mut Problems) -> String {
    let service = file.service.value.clone().unwrap_or_default();
    if service.len() > SERVICE_BYTES_MAX {
        let message = format!("a service's name of {} bytes", service.len());
        let label = format!("at most {SERVICE_BYTES_MAX}");
        problems.push(Problem::new(file.service.place(), message, label));
    }
    service
}

fn dns_check(file: &CheckFile, problems: &mut Problems) -> DnsCheck {
    let name = file.name.value.clone().unwrap_or_default();
    if file.name.is_none() {
        missing(file, "name", "which name is asked for?", problems);
    } else if name.is_empty() || Name::from_ascii(&name).is_err() {
        let message = format!("bad name `{name}`");
        let label = "a name in DNS, like \"shop.example\"";
        problems.push(Problem::new(file.name.place(), message, label));
    }
    let records = dns_records(file.record.value, file.answer.value.as_deref());
    let records = records.unwrap_or_else(|wanted| {
        let record = file.record.value.label();
        let message = format!(
            "bad answer `{}`",
            file.answer.as_deref().unwrap_or_default()
        );
        let label = format!("of {record} records this is {wanted}");
        problems.push(Problem::new(file.answer.place(), message, label));
        DnsRecords::A(None)
    });
    DnsCheck { name, records }
}

/// Which records are asked for, and the one that is wanted; or what that should be.
fn dns_records(record: RecordName, answer: Option<&str>) -> Result<DnsRecords, &'static str> {
    match record {
        RecordName::A => match answer.map(str::parse).transpose() {
            Ok(address) => Ok(DnsRecords::A(address)),
            Err(_) => Err("an IPv4 address"),
        },
        RecordName::Aaaa => match answer.map(str::parse).transpose() {
            Ok(address) => Ok(DnsRecords::Aaaa(address)),
            Err(_) => Err("an IPv6 address"),
        },
        RecordName::Soa => {
            let wanted = answer.map(|text| match text.parse() {
                Ok(serial) => Ok(SoaWanted::Serial(serial)),
                Err(_) if !is_number(text) && Name::from_ascii(text).is_ok() => {
                    Ok(SoaWanted::Primary(text.into()))
                }
                Err(_) => Err("a serial, or the name of a server"),
            });
            wanted.transpose().map(DnsRecords::Soa)
        }
    }
}

/// Digits alone, or nothing: no name of a server.
fn is_number(text: &str) -> bool {
    text.bytes().all(|it| it.is_ascii_digit())
}

fn http_check(file: &CheckFile, asks: &Asks<'_>) -> HttpCheck {
    let whole = match asks {
        Asks::EachNode(site) => {
            let mut hosts = site.hosts.iter().map(|host| &host.value);
            hosts.find(|host| !host.contains('*'))
        }
        Asks::OwnHost => None,
    };
    HttpCheck {
        method: match file.method.value {
            MethodName::Get => CheckMethod::Get,
            MethodName::Head => CheckMethod::Head,
        },
        path: file.path.value.clone(),
        host: file.host.value.clone().or_else(|| whole.cloned()),
        statuses: file.status.iter().map(|it| it.value.0.clone()).collect(),
        body: file.body.value.clone(),
    }
}

fn ftp_login(file: &CheckFile, folder: &Path, problems: &mut Problems) -> Option<FtpLogin> {
    let mut problem = |at: Range<usize>, message: String, label: &str| {
        problems.push(Problem::new(at, message, label));
    };
    let password = match file.password_file.value.as_ref() {
        None => ANONYMOUS_PASSWORD.into(),
        Some(path) => match password(&folder.join(path)) {
            Ok(password) => password,
            Err(reason) => {
                let message = format!("cannot use this password file: {reason}");
                problem(file.password_file.place(), message, "here");
                return None;
            }
        },
    };
    let Some(user) = file.user.value.clone() else {
        if file.password_file.is_some() {
            let message = "a password without a user".into();
            problem(file.password_file.place(), message, "set `user` as well");
        }
        return None;
    };
    if !is_ftp_text(&user) {
        let message = format!("bad user `{user}`");
        problem(file.user.place(), message, "one line of 1 to 256 letters");
        return None;
    }
    Some(FtpLogin { user, password })
}

/// Reads a file with a password, at whose end a line may end.
fn password(path: &Path) -> Result<String, String> {
    let text = secret_file::read(path, LOGIN_BYTES_MAX + 2)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    match is_ftp_text(line) {
        true => Ok(line.into()),
        false => Err(format!(
            "a password is one line of 1 to {LOGIN_BYTES_MAX} letters"
        )),
    }
}

/// Whether a command of FTP can have this as its argument.
fn is_ftp_text(text: &str) -> bool {
    (1..=LOGIN_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control)
}

fn command(file: &CheckFile, asks: &Asks<'_>, problems: &mut Problems) -> Vec<String> {
    let mut problem = |at: Range<usize>, message: String, label: &str| {
        problems.push(Problem::new(at, message, label));
    };
    let words = &file.command.value;
    let bytes: usize = words.iter().map(|word| word.len()).sum();
    if words.len() > WORDS_MAX || bytes > COMMAND_BYTES_MAX {
        let message = format!("more than {WORDS_MAX} words or {COMMAND_BYTES_MAX} bytes");
        problem(file.command.place(), message, "put this into a script");
    }
    match words.first() {
        None => missing(file, "command", "which program is run?", problems),
        Some(program) => {
            if let Err(why) = check_program(Path::new(&program.value)) {
                let message = match asks {
                    Asks::EachNode(_) => "a front-end must not run this",
                    Asks::OwnHost => "an agent must not run this",
                };
                problem(program.place(), message.into(), &why);
            }
        }
    }
    words.iter().map(|word| word.value.clone()).collect()
}

/// Keys that a check of this kind does not have. Defaults are no mistake: `tidegate config` prints them.
fn keys_of_other_kinds(file: &CheckFile, problems: &mut Problems) {
    use CheckKindName::{Dns, Exec, Ftp, Grpc, Http, Nfs, Tcp, Udp};
    let usual: CheckFile = defaults();
    let kind = file.kind.value;
    let mut key =
        |key: &str, at: &Option<Range<usize>>, is_usual: bool, kinds: &[CheckKindName]| {
            let (Some(at), false, false) = (at, is_usual, kinds.contains(&kind)) else {
                return;
            };
            let names: Vec<_> = kinds.iter().map(|it| format!("`{}`", it.label())).collect();
            let message = format!("a check of kind `{}` has no `{key}`", kind.label());
            let label = format!("this is for {}", names.join(" and "));
            let problem = Problem::new(at.clone(), message, label);
            problems.push(problem.help(match kinds {
                [one] => format!("set `kind = \"{}\"`, or leave it out", one.label()),
                _ => "set another `kind`, or leave it out".into(),
            }));
        };
    key("path", &file.path.at, *file.path == *usual.path, &[Http]);
    key("host", &file.host.at, file.host.is_none(), &[Http]);
    key(
        "method",
        &file.method.at,
        *file.method == *usual.method,
        &[Http],
    );
    key(
        "status",
        &file.status.at,
        same(&file.status, &usual.status),
        &[Http],
    );
    key("body", &file.body.at, file.body.is_none(), &[Http]);
    key("send", &file.send.at, file.send.is_none(), &[Tcp, Udp]);
    key(
        "expect",
        &file.expect.at,
        file.expect.is_none(),
        &[Tcp, Udp],
    );
    key("tls", &file.tls.at, file.tls.is_none(), &[Http, Tcp, Grpc]);
    key("service", &file.service.at, file.service.is_none(), &[Grpc]);
    key("name", &file.name.at, file.name.is_none(), &[Dns]);
    key(
        "record",
        &file.record.at,
        *file.record == *usual.record,
        &[Dns],
    );
    key("answer", &file.answer.at, file.answer.is_none(), &[Dns]);
    key("user", &file.user.at, file.user.is_none(), &[Ftp]);
    let (password, no_password) = (&file.password_file.at, file.password_file.is_none());
    key("password_file", password, no_password, &[Ftp]);
    key(
        "version",
        &file.version.at,
        *file.version == *usual.version,
        &[Nfs],
    );
    key(
        "command",
        &file.command.at,
        file.command.is_empty(),
        &[Exec],
    );
}

fn same(one: &[At<Statuses>], other: &[At<Statuses>]) -> bool {
    let values = one.iter().map(|it| &it.value);
    values.eq(other.iter().map(|it| &it.value))
}

fn wrong_request(file: &CheckFile, problems: &mut Problems) {
    let mut problem = |at: Range<usize>, message: String, label: &str| {
        problems.push(Problem::new(at, message, label));
    };
    let path = &file.path;
    if !path.starts_with('/') || path.parse::<PathAndQuery>().is_err() || path.contains('#') {
        let message = format!("bad path `{}`", path.value);
        problem(
            path.place(),
            message,
            "a path begins with `/` and has no spaces",
        );
    }
    if let Some(host) = &file.host.value
        && (host.contains('@') || host.parse::<Authority>().is_err())
    {
        let message = format!("bad host `{host}`");
        problem(file.host.place(), message, "a name, or a name and a port");
    }
    if file.status.is_empty() {
        let message = "`status` has no status".into();
        problem(file.status.place(), message, "each node would fail");
    }
    match &file.body.value {
        Some(body) if body.is_empty() => {
            let message = "`body` is empty".into();
            problem(file.body.place(), message, "each body has that");
        }
        Some(_) if file.method.value == MethodName::Head => {
            let message = "an answer to HEAD has no body".into();
            problem(file.body.place(), message, "this needs GET");
        }
        Some(_) | None => {}
    }
}
