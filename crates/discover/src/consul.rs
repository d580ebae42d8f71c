//! The instances of a service in Consul that pass their checks, by blocking queries of its health endpoint.
//!
//! Each question names the index of the answer before and is held by the server until something has changed, for
//! [`WAIT`] at the most. An index that goes back is not used, as Consul's documentation asks for: the next question gets
//! its answer at once. An instance has the address of its service, or of its node if that is empty, and as its weight
//! the one that it has while it passes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::http::{Question, ServerUrl, TokenFile};
use crate::source::{Answer, Found, SourceError};

/// Longest time for which the server holds a question; it adds a sixteenth of it at random.
const WAIT: Duration = Duration::from_secs(5);
const WAIT_MORE: Duration = Duration::from_millis(500);
/// Shortest time between two questions: a server that holds none is not asked more often.
const PAUSE: Duration = Duration::from_millis(200);
/// Largest answer, bytes.
const BYTES_MAX: usize = 8 << 20;
/// Longest name that a node may have.
const NAME_MAX: usize = 64;

/// A service in Consul.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsulConfig {
    /// The agent that is asked.
    pub server: ServerUrl,
    /// The service.
    pub service: String,
    /// Only instances with this tag.
    pub tag: Option<String>,
    /// Another data centre than the agent's.
    pub datacenter: Option<String>,
    /// A token, if Consul wants one.
    pub token_file: Option<PathBuf>,
    /// The CA of an agent that speaks TLS.
    pub ca_file: Option<PathBuf>,
    /// Time for an answer, besides that for which it is held.
    pub timeout: Duration,
}

impl fmt::Display for ConsulConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "consul {}", self.service)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ConsulSource {
    config: ConsulConfig,
    /// That of the answer before.
    index: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    node: Node,
    service: Service,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Node {
    #[serde(default)]
    address: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Service {
    #[serde(default, rename = "ID")]
    id: String,
    #[serde(default)]
    address: String,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    weights: Option<Weights>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Weights {
    #[serde(default)]
    passing: u16,
}

impl ConsulSource {
    pub(crate) fn new(config: ConsulConfig) -> Self {
        Self {
            config,
            index: None,
        }
    }

    pub(crate) async fn ask(&mut self) -> Result<Answer, SourceError> {
        // If this fails or is dropped, the next answer comes at once.
        let before = self.index.take();
        let config = &self.config;
        let held = before.map_or(Duration::ZERO, |_| WAIT + WAIT_MORE);
        let question = Question {
            server: &config.server,
            ca_file: config.ca_file.as_deref(),
            token: config.token_file.as_deref().map(|path| TokenFile {
                path,
                field: "x-consul-token",
                scheme: "",
            }),
            target: target(config, before),
            timeout: config.timeout + held,
        };
        let reply = question.ask().await?;
        let index = reply.field("x-consul-index").and_then(|it| it.parse().ok());
        let entries: Vec<Entry> = reply.json(BYTES_MAX, config.timeout).await?;
        let nodes: Vec<_> = entries.into_iter().filter_map(found).collect();
        self.index = index.filter(|index| *index > 0 && before.is_none_or(|it| *index >= it));
        match nodes.is_empty() {
            true => Err(SourceError::NoneReady(format!(
                "{config}: no instance passes its checks"
            ))),
            false => Ok(Answer {
                nodes,
                ending: Vec::new(),
                again: PAUSE,
            }),
        }
    }
}

fn target(config: &ConsulConfig, index: Option<u64>) -> String {
    let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut target = format!(
        "/v1/health/service/{}?passing=true",
        escaped(&config.service)
    );
    for (key, value) in [("tag", &config.tag), ("dc", &config.datacenter)] {
        if let Some(value) = value {
            target.push_str(&format!("&{key}={}", escaped(value)));
        }
    }
    if let Some(index) = index {
        target.push_str(&format!("&index={index}&wait={}s", WAIT.as_secs()));
    }
    target
}

/// The instance, if it has an address and a port.
fn found(entry: Entry) -> Option<Found> {
    let Service {
        id,
        address,
        port,
        weights,
    } = entry.service;
    let address = match address.is_empty() {
        true => entry.node.address,
        false => address,
    };
    let ip: IpAddr = address.parse().ok()?;
    let passing = weights.map(|weights| weights.passing).filter(|it| *it > 0);
    Some(Found {
        name: (1..=NAME_MAX).contains(&id.len()).then_some(id),
        address: SocketAddr::new(ip, port),
        weight: passing.map(f32::from),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::http::testing::{Act, Server, answer, file};

    fn instances(hosts: &[u8]) -> String {
        let entry = |host: &u8| {
            json!({
                "Node": {"Address": "10.9.9.9"},
                "Service": {"ID": format!("web-{host}"), "Address": format!("10.0.0.{host}"), "Port": 80,
                    "Weights": {"Passing": 3, "Warning": 1}},
            })
        };
        Value::from(hosts.iter().map(entry).collect::<Vec<_>>()).to_string()
    }

    fn reply(index: &str, hosts: &[u8]) -> Vec<Act> {
        answer(
            "200 OK",
            &format!("X-Consul-Index: {index}\r\n"),
            &instances(hosts),
        )
    }

    async fn source(scripts: Vec<Vec<Act>>) -> (Server, ConsulSource) {
        let server = Server::start(scripts).await;
        let source = ConsulSource::new(ConsulConfig {
            server: server.url(),
            service: "web".into(),
            tag: Some("blue green".into()),
            datacenter: None,
            token_file: Some(file("consul-token", "t0ken")),
            ca_file: None,
            timeout: Duration::from_millis(400),
        });
        (server, source)
    }

    async fn ask(source: &mut ConsulSource) -> Result<Vec<String>, String> {
        let answer = source.ask().await.map_err(|error| error.to_string())?;
        let shown = |it: &Found| format!("{} {}", it.name.as_deref().unwrap_or("-"), it.address);
        Ok(answer.nodes.iter().map(shown).collect())
    }

    #[tokio::test]
    async fn a_question_names_the_index_of_the_answer_before_if_it_goes_on() {
        let scripts = vec![
            reply("7", &[1, 2]),
            reply("9", &[2]),
            reply("3", &[3]),
            reply("0", &[4]),
            reply("none", &[5]),
            reply("11", &[6]),
        ];
        let (server, mut source) = source(scripts).await;
        assert_eq!(
            ask(&mut source).await.unwrap(),
            ["web-1 10.0.0.1:80", "web-2 10.0.0.2:80"]
        );
        for host in 2..=6 {
            let wanted = format!("web-{host} 10.0.0.{host}:80");
            assert_eq!(ask(&mut source).await, Ok(vec![wanted]));
        }
        let index = |head: &String| {
            let target = head.split(' ').nth(1).unwrap();
            let rest = target.strip_prefix("/v1/health/service/web?passing=true&tag=blue%20green");
            rest.unwrap().to_owned()
        };
        let asked: Vec<_> = server.heads().iter().map(index).collect();
        assert_eq!(
            asked,
            ["", "&index=7&wait=5s", "&index=9&wait=5s", "", "", ""]
        );
        assert!(server.heads()[0].contains("\r\nx-consul-token: t0ken\r\n"));
    }

    #[tokio::test]
    async fn answers_that_are_no_good_are_failures_and_the_next_question_begins_anew() {
        let scripts = vec![
            answer("500 Internal Server Error", "", "No cluster leader"),
            answer("200 OK", "", "[{\"Node\": {}"),
            answer("200 OK", "X-Consul-Index: 5\r\n", "[]"),
            vec![Act::Hang],
            answer("200 OK", "", &format!("[\"{}\"]", "x".repeat(BYTES_MAX))),
            reply("8", &[1]),
        ];
        let (server, mut source) = source(scripts).await;
        for wanted in [
            "No cluster leader",
            "not understood",
            "no instance passes",
            "no answer within",
            "longer than",
        ] {
            let error = ask(&mut source).await.unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
        assert_eq!(ask(&mut source).await.unwrap().len(), 1);
        assert!(!server.heads()[5].contains("index="));
    }

    #[test]
    fn an_instance_has_the_address_of_its_service_or_of_its_node() {
        let found_of = |entry: Value| found(serde_json::from_value(entry).unwrap());
        let node = json!({"Address": "10.0.0.1"});
        let of_node =
            found_of(json!({"Node": node, "Service": {"ID": "a", "Port": 8080}})).unwrap();
        assert_eq!(
            (of_node.address, of_node.weight),
            (([10, 0, 0, 1], 8080).into(), None)
        );
        let name = json!({"Node": node, "Service": {"Address": "web.internal", "Port": 80}});
        assert_eq!(found_of(name), None);
    }
}
