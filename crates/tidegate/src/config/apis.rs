//! Sources of nodes that are APIs: the tables of Kubernetes and Consul in `[[discover]]`.

use std::path::PathBuf;

use tidegate_discover::{PortChoice, ServerUrl};
use toml::de::DeValue;

use super::problem::{Problem, Problems};
use super::setting::{Encoded, Raw, Setting, quoted, table, wrong_type};

/// Where a pod finds its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Where an agent of Consul listens, if nothing else is said.
const CONSUL: &str = "http://127.0.0.1:8500";

/// A file of the service account.
fn account(name: &str) -> PathBuf {
    PathBuf::from(format!("{ACCOUNT}/{name}"))
}

table! {
    /// A service in Kubernetes, whose EndpointSlices are listed and watched. The service account needs the verbs `list` and `watch` of
    /// `endpointslices` there.
    pub(crate) struct KubernetesFile {
        /// The namespace of the service.
        namespace: String;
        /// The service.
        service: String;
        /// Its port, by the name or the number that its pods have. Not set: the only one.
        port: Option<PortSetting> = None;
        /// The API server, like `https://10.0.0.1:6443`. Not set: that of the pod's environment. Plain `http` is for this machine only.
        server: Option<ServerUrl> = None;
        /// File with the token; it is read again for each connection.
        token_file: PathBuf = account("token");
        /// File with the CA of the API server, in PEM; it is read again as well.
        ca_file: PathBuf = account("ca.crt");
    }
}

table! {
    /// A service in Consul, whose instances that pass their checks are nodes.
    pub(crate) struct ConsulFile {
        /// The service.
        service: String;
        /// The agent that is asked.
        server: ServerUrl = default_agent();
        /// Only instances with this tag.
        tag: Option<String> = None;
        /// Another data centre than the agent's.
        datacenter: Option<String> = None;
        /// File with a token. It is sent over `https` only, or to this machine.
        token_file: Option<PathBuf> = None;
        /// File with the CA of an agent that speaks TLS, in PEM.
        ca_file: Option<PathBuf> = None;
    }
}

fn default_agent() -> ServerUrl {
    CONSUL.parse().expect("a server")
}

/// A port by its name or its number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PortSetting(pub(crate) PortChoice);

impl Setting for PortSetting {
    fn kind() -> String {
        "a port's name or number".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        match raw.get_ref() {
            DeValue::String(name) if (1..=63).contains(&name.len()) => {
                Some(Self(PortChoice::Name(name.to_string())))
            }
            DeValue::Integer(_) => {
                let number = u32::decode(raw, problems)?;
                let port = u16::try_from(number).ok().filter(|port| *port > 0);
                if port.is_none() {
                    let problem = Problem::new(raw.span(), "no such port", "from 1 to 65535");
                    problems.push(problem);
                }
                port.map(|port| Self(PortChoice::Number(port)))
            }
            DeValue::String(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => wrong_type(raw, &Self::kind(), problems),
        }
    }

    fn encode(&self) -> Encoded {
        match &self.0 {
            PortChoice::Name(name) => quoted(name),
            PortChoice::Number(port) => Encoded::Inline(port.to_string()),
            PortChoice::Only => Encoded::Unset,
        }
    }
}

impl Setting for ServerUrl {
    fn kind() -> String {
        "a server".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let text = String::decode(raw, problems)?;
        match text.parse() {
            Ok(server) => Some(server),
            Err(why) => {
                problems.push(Problem::new(raw.span(), format!("{why}"), "no server"));
                None
            }
        }
    }

    fn encode(&self) -> Encoded {
        quoted(&self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_that_is_asked_if_nothing_else_is_said_is_a_server() {
        assert_eq!(default_agent().to_string(), CONSUL);
    }
}
