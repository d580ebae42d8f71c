//! An API that can be wrong: it announces servers as Kubernetes or Consul do, as it is ordered to.
//!
//! ```text
//! Kubernetes  GET …/endpointslices?…           one slice with all servers, its version the number of the order
//!             GET …/endpointslices?…&watch=1…  an event for each order after the version that is named
//! Consul      GET /v1/health/service/…         instances; with the index of the last order held until the next one
//! ```
//!
//! | order | an answer | a watch that is open |
//! |---|---|---|
//! | addresses | has them | MODIFIED; each other time ERROR 410, which has everything listed again |
//! | empty | has none | DELETED |
//! | silence | none | half an event, then nothing |
//! | garbage | in turn no JSON, half of some, 410 and 500 | an event that means nothing |
//!
//! What is silent is closed by the next order, as by a server that was started again. What it does not know: what asks.

use std::fmt;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::Place;

use super::super::ExperimentError;
use super::reply::Reply;
use super::service::{Service, head};

/// Longest time without an answer: of a watch and of what is silent, and of a question to Consul.
const WATCH: Duration = Duration::from_secs(60);
const HELD: Duration = Duration::from_secs(5);
/// What means nothing: statuses and bodies.
const GARBAGE: [(&str, &str); 4] = [
    ("200 OK", "<html>"),
    ("200 OK", "{\"metadata\": {\"resour"),
    ("410 Gone", "{\"message\": \"too old resource version\"}"),
    ("500 Internal Server Error", "no leader"),
];
/// How an answer without a length begins.
const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";

/// Which API it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    Kubernetes,
    Consul,
}

/// See the module. Its servers have all the same port.
#[derive(Debug)]
pub(super) struct ApiServer {
    shared: Arc<Shared>,
    service: Service,
}

#[derive(Debug)]
struct Shared {
    api: Api,
    port: u16,
    order: Mutex<Order>,
    changed: Condvar,
}

/// The order in force.
#[derive(Clone, Debug)]
struct Order {
    /// From 1 on.
    number: u64,
    reply: Reply,
    /// How many answers were garbage.
    wrong: usize,
    over: bool,
}

impl ApiServer {
    /// One at loopback in this place: secrets are sent there without TLS, too.
    pub(super) fn start(
        place: &Place,
        api: Api,
        port: u16,
        reply: Reply,
    ) -> Result<Self, ExperimentError> {
        let order = Order {
            number: 1,
            reply,
            wrong: 0,
            over: false,
        };
        let shared = Arc::new(Shared {
            api,
            port,
            order: Mutex::new(order),
            changed: Condvar::new(),
        });
        let serving = Arc::clone(&shared);
        let serve = move |stream| serving.serve(stream);
        let service = Service::start(place, Ipv4Addr::LOCALHOST.into(), serve)?;
        Ok(Self { shared, service })
    }

    /// Where it is.
    pub(super) fn address(&self) -> SocketAddr {
        self.service.address()
    }

    /// It answers so from now on.
    pub(super) fn order(&self, reply: Reply) {
        let mut order = self.shared.lock();
        order.number += 1;
        order.reply = reply;
        self.shared.changed.notify_all();
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is another order than this one, or for so long.
    fn wait(&self, number: u64, limit: Duration) -> Order {
        let waits = |order: &mut Order| order.number == number && !order.over;
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), limit, waits)
            .unwrap_or_else(PoisonError::into_inner);
        waited.0.clone()
    }

    /// One question.
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let head = head(&mut stream)?;
        let target = head.split(' ').nth(1).unwrap_or_default();
        match self.api {
            Api::Kubernetes if target.contains("&watch=1&") || target.contains("?watch=1&") => {
                self.watch(&mut stream, number_in(target, "resourceVersion="))
            }
            Api::Kubernetes => self.answer(&mut stream, None),
            Api::Consul => self.answer(&mut stream, number_in(target, "index=")),
        }
    }

    /// Answers when there is another order than the one that is known.
    fn answer(&self, stream: &mut TcpStream, known: Option<u64>) -> io::Result<()> {
        if let Some(known) = known {
            self.wait(known, HELD);
        }
        let order = {
            let mut order = self.lock();
            order.wrong += usize::from(order.reply == Reply::Garbage);
            order.clone()
        };
        match self.body(&order) {
            Some((status, body)) => write!(
                stream,
                "HTTP/1.1 {status}\r\nX-Consul-Index: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                order.number,
                body.len()
            ),
            None => {
                self.wait(order.number, WATCH);
                Ok(())
            }
        }
    }

    /// Status and body, if there is an answer.
    fn body(&self, order: &Order) -> Option<(&'static str, String)> {
        let number = order.number;
        let addresses: &[_] = match &order.reply {
            Reply::Silence => return None,
            Reply::Garbage => {
                let (status, body) = GARBAGE[order.wrong % GARBAGE.len()];
                return Some((status, body.into()));
            }
            Reply::Empty => &[],
            Reply::Addresses(all) => all,
        };
        let body = match self.api {
            Api::Consul => {
                let instances = addresses.iter().map(|ip| instance(*ip, self.port));
                Value::from(instances.collect::<Vec<_>>())
            }
            Api::Kubernetes => {
                let slice = || slice(number, addresses, self.port);
                let items: Vec<_> = (!addresses.is_empty()).then(slice).into_iter().collect();
                json!({ "metadata": { "resourceVersion": number.to_string() }, "items": items })
            }
        };
        Some(("200 OK", body.to_string()))
    }

    /// Events for the orders after this one, until one of them ends it.
    fn watch(&self, stream: &mut TcpStream, known: Option<u64>) -> io::Result<()> {
        stream.write_all(STREAM.as_bytes())?;
        let mut known = known.unwrap_or_default();
        loop {
            let order = self.wait(known, WATCH);
            if order.over || order.number == known {
                return Ok(());
            }
            known = order.number;
            let (text, goes_on) = self.event(&order);
            stream.write_all(text.as_bytes())?;
            if order.reply == Reply::Silence {
                self.wait(known, WATCH);
            }
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// What an order makes of a watch, and whether that goes on.
    fn event(&self, order: &Order) -> (String, bool) {
        let number = order.number;
        let line = |kind: &str, object: Value| format!("{}\n", event(kind, object));
        match &order.reply {
            Reply::Addresses(_) if !number.is_multiple_of(2) => {
                let gone = json!({ "code": 410, "message": "too old resource version" });
                (line("ERROR", gone), false)
            }
            Reply::Addresses(all) => (line("MODIFIED", slice(number, all, self.port)), true),
            Reply::Empty => (line("DELETED", slice(number, &[], self.port)), true),
            Reply::Silence => {
                let whole = line("MODIFIED", slice(number, &[], self.port));
                (whole[..whole.len() / 2].into(), false)
            }
            Reply::Garbage => (line("SHOUTED", json!({})), false),
        }
    }
}

/// The number behind this in a target.
fn number_in(target: &str, key: &str) -> Option<u64> {
    let (_, rest) = target.split_once(key)?;
    rest.split('&').next()?.parse().ok()
}

fn event(kind: &str, object: Value) -> impl fmt::Display {
    json!({ "type": kind, "object": object })
}

/// All servers, as Kubernetes has them.
fn slice(version: u64, addresses: &[Ipv4Addr], port: u16) -> Value {
    let endpoint =
        |ip: &Ipv4Addr| json!({ "addresses": [ip.to_string()], "conditions": { "ready": true } });
    json!({
        "metadata": { "name": "lab", "resourceVersion": version.to_string() },
        "addressType": "IPv4",
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{ "name": "http", "port": port, "protocol": "TCP" }],
    })
}

/// A server, as Consul has it.
fn instance(ip: Ipv4Addr, port: u16) -> Value {
    json!({
        "Node": { "Address": ip.to_string() },
        "Service": { "ID": format!("lab-{ip}"), "Address": ip.to_string(), "Port": port },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn shared(api: Api) -> Shared {
        let order = order(1, Reply::Silence);
        Shared {
            api,
            port: 80,
            order: Mutex::new(order),
            changed: Condvar::new(),
        }
    }

    fn order(number: u64, reply: Reply) -> Order {
        Order {
            number,
            reply,
            wrong: 0,
            over: false,
        }
    }

    #[test]
    fn an_answer_is_as_ordered() {
        let body = |api, reply| shared(api).body(&order(7, reply));
        let list = body(Api::Kubernetes, Reply::Addresses(vec![ONE])).unwrap();
        let list: Value = serde_json::from_str(&list.1).unwrap();
        assert_eq!(list["metadata"]["resourceVersion"], "7");
        let endpoints = &list["items"][0]["endpoints"];
        assert_eq!(endpoints[0]["addresses"], json!(["10.0.0.1"]));
        let instances = body(Api::Consul, Reply::Addresses(vec![ONE])).unwrap();
        let instances: Value = serde_json::from_str(&instances.1).unwrap();
        assert_eq!(instances[0]["Service"]["Address"], "10.0.0.1");
        assert_eq!(body(Api::Consul, Reply::Empty).unwrap().1, "[]");
        assert_eq!(body(Api::Kubernetes, Reply::Silence), None);
        let mut wrong = order(7, Reply::Garbage);
        wrong.wrong = 2;
        let (status, _) = shared(Api::Kubernetes).body(&wrong).unwrap();
        assert_eq!(status, "410 Gone");
    }

    #[test]
    fn a_watch_follows_orders_and_ends_by_those_that_are_wrong() {
        let event = |number, reply| shared(Api::Kubernetes).event(&order(number, reply));
        let (text, goes_on) = event(2, Reply::Addresses(vec![ONE]));
        assert!(text.contains("MODIFIED") && text.ends_with("}\n") && goes_on);
        let (text, goes_on) = event(3, Reply::Addresses(vec![ONE]));
        assert!(text.contains("410") && !goes_on);
        let (text, goes_on) = event(4, Reply::Silence);
        assert!(!text.contains('\n') && !goes_on, "{text}");
    }

    #[test]
    fn a_target_names_what_is_known() {
        let target = "/v1/health/service/x?passing=true&index=12&wait=5s";
        assert_eq!(number_in(target, "index="), Some(12));
        assert_eq!(
            number_in("/a?resourceVersion=9", "resourceVersion="),
            Some(9)
        );
        assert_eq!(number_in("/a", "index="), None);
    }
}
