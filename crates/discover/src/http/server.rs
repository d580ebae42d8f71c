//! Where an API is: `https://10.0.0.1:6443`, `http://127.0.0.1:8500`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use hyper::Uri;
use tokio_rustls::rustls::pki_types::ServerName;

/// A server: scheme, host and port, and nothing behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    tls: bool,
    host: String,
    port: u16,
}

/// Why a text names no server.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a server is like https://10.0.0.1:6443 or http://127.0.0.1:8500, without a path")]
pub struct ServerError;

impl ServerUrl {
    /// A server that speaks TLS.
    ///
    /// # Errors
    /// The host is neither a name nor an address.
    pub fn tls(host: &str, port: u16) -> Result<Self, ServerError> {
        let host = match host.contains(':') {
            true => format!("[{}]", host.trim_matches(['[', ']'])),
            false => host.to_owned(),
        };
        format!("https://{host}:{port}").parse()
    }

    /// Whether it speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Whether it speaks no TLS and is not this machine, as far as that can be seen: a host name may be.
    pub fn is_plain_elsewhere(&self) -> bool {
        let ip: Option<IpAddr> = self.host().parse().ok();
        !self.tls && ip.is_some_and(|ip| !ip.to_canonical().is_loopback())
    }

    /// The host, an IPv6 address without brackets.
    pub(crate) fn host(&self) -> &str {
        self.host.trim_matches(['[', ']'])
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Host and port as a head has them.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// What its certificate must be for.
    pub(crate) fn tls_name(&self) -> Result<ServerName<'static>, String> {
        let name = ServerName::try_from(self.host().to_owned());
        name.map_err(|error| format!("{self}: {error}"))
    }
}

impl FromStr for ServerUrl {
    type Err = ServerError;

    fn from_str(text: &str) -> Result<Self, ServerError> {
        let uri: Uri = text.parse().map_err(|_| ServerError)?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(_) | None => return Err(ServerError),
        };
        let authority = uri.authority().ok_or(ServerError)?;
        let bare = uri.path() == "/" && uri.query().is_none() && !authority.as_str().contains('@');
        let host = authority.host();
        if !bare || host.is_empty() {
            return Err(ServerError);
        }
        let usual = if tls { 443 } else { 80 };
        let server = Self {
            tls,
            host: host.to_owned(),
            port: match authority.port() {
                Some(port) => port.as_str().parse().map_err(|_| ServerError)?,
                None if authority.as_str() == host => usual,
                // What stands behind the host is no port.
                None => return Err(ServerError),
            },
        };
        server.tls_name().map_err(|_| ServerError)?;
        Ok(server)
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(out, "{scheme}://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_scheme_host_and_port() {
        for (text, shown) in [
            ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
            ("https://api.internal", "https://api.internal:443"),
            ("http://127.0.0.1:8500/", "http://127.0.0.1:8500"),
            ("https://[fd00::1]:6443", "https://[fd00::1]:6443"),
        ] {
            let server: ServerUrl = text.parse().unwrap();
            assert_eq!(server.to_string(), shown);
        }
        for text in [
            "",
            "10.0.0.1:6443",
            "ftp://a",
            "https://",
            "https://a/api",
            "https://a?x=1",
            "https://user@a",
            "https://a:99999",
            "https://a b",
        ] {
            assert!(text.parse::<ServerUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_server_elsewhere_without_tls_is_seen_by_its_address() {
        for (text, elsewhere) in [
            ("http://10.0.0.1:6443", true),
            ("http://[fd00::1]:6443", true),
            ("http://127.0.0.2:6443", false),
            ("http://[::1]:6443", false),
            ("http://localhost:6443", false),
            ("https://10.0.0.1:6443", false),
        ] {
            let server: ServerUrl = text.parse().unwrap();
            assert_eq!(server.is_plain_elsewhere(), elsewhere, "{text}");
        }
    }

    #[test]
    fn an_address_of_the_environment_makes_a_server() {
        let server = |host| ServerUrl::tls(host, 443).unwrap();
        assert_eq!(server("fd00::1").to_string(), "https://[fd00::1]:443");
        assert_eq!(server("fd00::1").host(), "fd00::1");
        assert_eq!(server("10.96.0.1").authority(), "10.96.0.1:443");
        assert!(ServerUrl::tls("a/b", 443).is_err());
    }
}
