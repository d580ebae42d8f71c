//! How nodes are checked: what they are asked, how often, and what may be wrong with the answer. Plain data.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

/// How nodes are checked: one of a site's checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckConfig {
    /// What sets it apart from others of its site.
    pub label: String,
    /// What is asked.
    pub request: CheckRequest,
    /// Another port than that of requests.
    pub port: Option<u16>,
    /// Through TLS, as its site has it with nodes. Of checks that ask HTTP or a connection.
    pub tls: bool,
    /// Time between two checks of a node.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Checks in a row that bring a node back.
    pub rise: u32,
    /// Checks in a row that take a node out.
    pub fall: u32,
}

/// What a check asks a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckRequest {
    /// Whether it accepts a connection, and what it answers there.
    Tcp(BytesCheck),
    /// What it answers to a datagram.
    Udp(BytesCheck),
    /// Whether it knows a name.
    Dns(DnsCheck),
    /// Whether it greets, and lets this user in if there is one.
    Ftp(Option<FtpLogin>),
    /// Whether it has NFS in this version.
    Nfs(NfsVersion),
    /// Whether it speaks a dialect of SMB 2 or 3.
    Smb,
    /// What a program on this machine says of it, with these arguments.
    Exec(Vec<String>),
    /// What it answers.
    Http(HttpCheck),
    /// Whether this service of gRPC serves; empty: the whole server.
    Grpc(String),
}

/// Bytes, and what is wanted of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BytesCheck {
    /// What is sent; may be empty.
    pub send: Vec<u8>,
    /// What must be in the answer. If it is empty, any answer to what was sent will do.
    pub expect: Vec<u8>,
}

impl BytesCheck {
    /// A connection, and nothing on it.
    pub const NOTHING: Self = Self {
        send: Vec::new(),
        expect: Vec::new(),
    };
}

/// A question to a name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsCheck {
    /// The name that is asked for.
    pub name: String,
    /// Its records.
    pub records: DnsRecords,
}

/// Which records are asked for, and one that must be among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsRecords {
    /// IPv4 addresses.
    A(Option<Ipv4Addr>),
    /// IPv6 addresses.
    Aaaa(Option<Ipv6Addr>),
    /// The start of a zone.
    Soa(Option<SoaWanted>),
}

/// What the start of a zone must say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SoaWanted {
    /// The zone's version.
    Serial(u32),
    /// The zone's primary server.
    Primary(String),
}

/// A user of an FTP server.
#[derive(Clone, PartialEq, Eq)]
pub struct FtpLogin {
    /// The user.
    pub user: String,
    /// The user's password.
    pub password: String,
}

impl fmt::Debug for FtpLogin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FtpLogin({}, …)", self.user)
    }
}

/// Versions of NFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NfsVersion {
    /// RFC 1813.
    Three,
    /// RFC 7530 and its later minor versions.
    Four,
}

impl NfsVersion {
    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Self::Three => 3,
            Self::Four => 4,
        }
    }
}

/// A request whose answer says how a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCheck {
    /// GET or HEAD.
    pub method: CheckMethod,
    /// Path and query.
    pub path: String,
    /// The host that is asked for; none: one of the site's.
    pub host: Option<String>,
    /// Statuses of a node that is well.
    pub statuses: Vec<RangeInclusive<u16>>,
    /// What must be in the body.
    pub body: Option<String>,
}

/// How a check asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckMethod {
    /// With a body in the answer.
    #[default]
    Get,
    /// Without one.
    Head,
}

impl CheckMethod {
    /// Every method with its name.
    pub const ALL: &'static [(Self, &'static str)] = &[(Self::Get, "GET"), (Self::Head, "HEAD")];

    /// Its name in a request.
    pub fn label(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
        }
    }
}

impl HttpCheck {
    /// Whether a node that answers so is well, as far as the status says.
    pub fn takes(&self, status: u16) -> bool {
        self.statuses.iter().any(|range| range.contains(&status))
    }
}

/// What became of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The node is well.
    Passed,
    /// It is not.
    Failed(CheckFailure),
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckFailure {
    /// There was no connection.
    Connect,
    /// There was no TLS on it, for this reason.
    Tls(&'static str),
    /// The machine says that nothing takes datagrams at the port.
    Refused,
    /// Nothing came in time.
    Timeout,
    /// The connection broke off.
    Broken,
    /// What came is not of this protocol, or too long.
    Malformed(&'static str),
    /// The HTTP status is none of those that are wanted.
    Status(u16),
    /// The body does not have what is wanted.
    Body,
    /// The answer does not have what is wanted.
    Answer,
    /// The program did not start.
    NotStarted,
    /// The program is not executable any more, or others than root and the user that runs it can change it.
    NotTrusted,
    /// The code of this name says that something is wrong.
    Code(&'static str, u32),
}

impl CheckFailure {
    /// Its name in the API and the metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Tls(_) => "tls",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
            Self::Malformed(_) => "malformed",
            Self::Status(_) => "status",
            Self::Body => "body",
            Self::Answer => "answer",
            Self::NotStarted => "not_started",
            Self::NotTrusted => "not_trusted",
            Self::Code(..) => "code",
        }
    }
}
