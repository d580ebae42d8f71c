//! Clients that all ask one site, and after so many requests all the next one: the bursts of Reconfiguration-2004.
//!
//! ```text
//! request number n, of all clients together      goes to site (n / burst) mod sites
//! each client    one request after the other, on a connection that is kept
//! ```
//!
//! An open loop would not do: what a rigid site has not answered in its burst it would answer in the others' bursts. What the
//! clients do not know: nodes; they only see which one the front-end names in its answers.

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use super::service::head;

/// Longest wait for anything.
const WAIT: Duration = Duration::from_secs(10);
/// The header in which the front-end names the node.
const NODE: &str = "x-tidegate-node";
/// A client that had no answer rests so long.
const REST: Duration = Duration::from_millis(20);
/// Longest body.
const BODY_MAX: u64 = 1 << 20;

/// What is asked.
#[derive(Clone, Debug)]
pub(super) struct BurstPlan {
    /// Hosts of the sites. A node that is named and whose name does not begin with the site's has come from another.
    pub(super) sites: Vec<&'static str>,
    /// Path and query.
    pub(super) path: &'static str,
    /// Requests of a burst.
    pub(super) burst: u64,
    /// Requests of all bursts.
    pub(super) requests: u64,
    /// Clients.
    pub(super) clients: usize,
    /// After so long no more are sent.
    pub(super) limit: Duration,
}

/// Clients under way.
#[derive(Debug)]
pub(super) struct BurstRun {
    plan: BurstPlan,
    to: SocketAddr,
    start: Timestamp,
    sent: AtomicU64,
    answered: AtomicU64,
    failed: AtomicU64,
    /// Of each burst: when it began, and the first answer of a node that has come from another site.
    bursts: Mutex<Vec<(Timestamp, Option<Timestamp>)>>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BurstResult {
    /// Requests that were answered with 200.
    pub(super) answered: u64,
    /// The others.
    pub(super) failed: u64,
    /// From the first request to the last answer.
    pub(super) took: Duration,
    /// From the begin of a burst to the first answer of a node that has come from another site, by burst; those without are left
    /// out.
    pub(super) to_serving: Vec<Duration>,
}

impl BurstRun {
    /// Begins now.
    pub(super) fn new(plan: BurstPlan, to: SocketAddr) -> Self {
        Self {
            plan,
            to,
            start: clock::now(),
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            bursts: Mutex::default(),
        }
    }

    /// The site that is asked now; none: all is sent.
    pub(super) fn site(&self) -> Option<&'static str> {
        let number = self.sent.load(Ordering::Relaxed);
        (number < self.plan.requests).then(|| self.site_of(number))
    }

    fn site_of(&self, number: u64) -> &'static str {
        let sites = self.plan.sites.len() as u64;
        self.plan.sites[(number / self.plan.burst % sites) as usize]
    }

    /// Sends all, on as many threads as there are clients.
    pub(super) fn run(&self) -> BurstResult {
        std::thread::scope(|scope| {
            for _ in 0..self.plan.clients {
                scope.spawn(|| self.client());
            }
        });
        let bursts = self.bursts.lock().unwrap_or_else(PoisonError::into_inner);
        let served = bursts
            .iter()
            .filter_map(|(begun, first)| Some(first.as_ref()?.since(*begun)));
        BurstResult {
            answered: self.answered.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            took: clock::now().since(self.start),
            to_serving: served.collect(),
        }
    }

    fn client(&self) {
        let mut connection = None;
        while clock::now().since(self.start) < self.plan.limit {
            let number = self.sent.fetch_add(1, Ordering::Relaxed);
            if number >= self.plan.requests {
                // Others that look see that all is sent.
                self.sent.store(self.plan.requests, Ordering::Relaxed);
                return;
            }
            let burst = (number / self.plan.burst) as usize;
            if number.is_multiple_of(self.plan.burst) {
                self.begin(burst);
            }
            let site = self.site_of(number);
            match self.request(&mut connection, site) {
                Ok(node) => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    if !node.is_empty() && !node.starts_with(site) {
                        self.came(burst);
                    }
                }
                Err(_) => {
                    connection = None;
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    clock::sleep_until(clock::now() + REST);
                }
            }
        }
    }

    fn begin(&self, burst: usize) {
        let mut bursts = self.bursts.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        // One that a slower client begins after the next one has begun at the same time.
        let length = bursts.len().max(burst + 1);
        bursts.resize(length, (now, None));
        bursts[burst].0 = now;
    }

    /// A node of another site has answered.
    fn came(&self, burst: usize) {
        let mut bursts = self.bursts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, first)) = bursts.get_mut(burst) {
            first.get_or_insert_with(clock::now);
        }
    }

    /// One request; the node that answered.
    fn request(
        &self,
        connection: &mut Option<BufReader<TcpStream>>,
        site: &str,
    ) -> io::Result<String> {
        let stream = match connection {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect_timeout(&self.to, WAIT)?;
                stream.set_read_timeout(Some(WAIT))?;
                stream.set_nodelay(true)?;
                connection.insert(BufReader::new(stream))
            }
        };
        let path = self.plan.path;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {site}\r\n\r\n");
        stream.get_mut().write_all(request.as_bytes())?;
        let head = head(stream)?;
        let field = |name: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(':'));
            let mut own = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
            own.next().map(|(_, value)| value.trim().to_owned())
        };
        let length = field("content-length").and_then(|it| it.parse().ok());
        let length: u64 = length.ok_or_else(|| io::Error::other("an answer without a length"))?;
        if !head.starts_with("HTTP/1.1 200 ") || length > BODY_MAX {
            return Err(io::Error::other("not the answer that was asked for"));
        }
        let read = io::copy(&mut stream.take(length), &mut io::sink())?;
        match read == length {
            true => Ok(field(NODE).unwrap_or_default()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Answers with the host as the node of site a.
    fn server(listener: &TcpListener, requests: usize) -> Vec<String> {
        let (stream, _) = listener.accept().unwrap();
        let mut stream = BufReader::new(stream);
        let mut hosts = Vec::new();
        for _ in 0..requests {
            let head = head(&mut stream).unwrap();
            let host = head.lines().find_map(|line| line.strip_prefix("Host: "));
            hosts.push(host.unwrap().to_owned());
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Tidegate-Node: a-n1\r\n\r\nok";
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
        hosts
    }

    #[test]
    fn all_clients_go_on_to_the_next_site_after_a_burst() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || server(&listener, 6));
        let plan = BurstPlan {
            sites: vec!["a", "b"],
            path: "/",
            burst: 2,
            requests: 6,
            clients: 1,
            limit: Duration::from_secs(60),
        };
        let run = BurstRun::new(plan, address);
        assert_eq!(run.site(), Some("a"));
        let result = run.run();
        assert_eq!(server.join().unwrap(), ["a", "a", "b", "b", "a", "a"]);
        assert_eq!((result.answered, result.failed), (6, 0));
        // In b's burst a node of a has answered.
        assert_eq!(result.to_serving.len(), 1);
        assert_eq!(run.site(), None);
    }
}
