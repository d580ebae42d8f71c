//! Clients that all ask one site, and after so many requests all the next one: the bursts of Reconfiguration-2004.
//!
//! ```text
//! request number n, of all clients together      goes to site (n / burst) mod sites
//! each client    one request after the other, on a connection that is kept
//! ```
//!
//! An open loop would not do: what a rigid site has not answered in its burst it would answer in the others' bursts. What the
//! clients do not know: nodes; they only see which one the front-end names in its answers. A node has come to a site if the site
//! that it answered for before was another one.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::time::Timestamp;
use tidegate_remote::clock;

use super::moves_seen::ms;
use super::service::head;

/// Longest wait for anything.
const WAIT: Duration = Duration::from_secs(10);
/// The header in which the front-end names the node.
const NODE: &str = "x-tidegate-node";
/// A client that had no answer rests so long.
const REST: Duration = Duration::from_millis(20);
/// Files of a site.
const SITE_FILES_MAX: usize = 100_000;
/// Longest body.
const BODY_MAX: u64 = 1 << 20;

/// What is asked.
#[derive(Clone, Debug)]
pub(super) struct BurstPlan {
    /// Hosts of the sites. At first a node serves the one with which its name begins.
    pub(super) sites: Vec<&'static str>,
    /// Files of each site, which are asked for in this order, again and again.
    pub(super) files: Arc<[AskedFile]>,
    /// Requests of a burst.
    pub(super) burst: u64,
    /// Requests of all bursts.
    pub(super) requests: u64,
    /// Clients.
    pub(super) clients: usize,
    /// After so long no more are sent.
    pub(super) limit: Duration,
}

/// What a request asks for; each takes 0.2 ms of CPU beside what its file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AskedFile {
    /// Its number within its site, if caches matter: a node that does not have it takes longer.
    pub(super) number: Option<u32>,
    /// Bytes of the answer.
    pub(super) bytes: u32,
}

impl AskedFile {
    /// Of one size, the same for all.
    pub(super) fn of(bytes: u32) -> Self {
        let number = None;
        Self { number, bytes }
    }

    /// Path and query. Sites have no file in common.
    fn path(self, site: usize) -> String {
        let Self { number, bytes } = self;
        let file = number.map(|it| it as usize + site * SITE_FILES_MAX);
        let file = file.map_or(String::new(), |it| format!("file={it}&"));
        format!("/work?{file}cpu=200us&bytes={bytes}")
    }
}

/// Clients under way.
#[derive(Debug)]
pub(super) struct BurstRun {
    plan: BurstPlan,
    /// Front-ends, which clients have in turn.
    to: Vec<SocketAddr>,
    start: Timestamp,
    sent: AtomicU64,
    answered: AtomicU64,
    failed: AtomicU64,
    /// Of each burst.
    bursts: Mutex<Vec<Burst>>,
    /// The site that each node has answered for last.
    serves: Mutex<BTreeMap<String, &'static str>>,
}

/// The instants of a burst, in microseconds since 1970, as front-ends say theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Burst {
    /// Of its first request.
    pub(super) begun_us: u64,
    /// Of the first answer of a node that has come to its site; none without one.
    pub(super) came_us: Option<u64>,
}

impl Burst {
    /// Milliseconds from its begin to the first answer of a node that has come.
    pub(super) fn to_serving_ms(self) -> Option<f64> {
        self.came_us.map(|came| ms(self.begun_us, came))
    }
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
    /// All that were begun.
    pub(super) bursts: Vec<Burst>,
}

impl BurstRun {
    /// Begins now.
    pub(super) fn new(plan: BurstPlan, to: Vec<SocketAddr>) -> Self {
        Self {
            plan,
            to,
            start: clock::now(),
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            bursts: Mutex::default(),
            serves: Mutex::default(),
        }
    }

    /// The site that is asked now; none: all is sent.
    pub(super) fn site(&self) -> Option<&'static str> {
        let number = self.sent.load(Ordering::Relaxed);
        (number < self.plan.requests).then(|| self.site_of(number))
    }

    fn site_of(&self, number: u64) -> &'static str {
        self.plan.sites[self.site_index(number)]
    }

    fn site_index(&self, number: u64) -> usize {
        let sites = self.plan.sites.len() as u64;
        (number / self.plan.burst % sites) as usize
    }

    fn path_of(&self, number: u64) -> String {
        let files = &self.plan.files;
        files[number as usize % files.len()].path(self.site_index(number))
    }

    /// Sends all, on as many threads as there are clients.
    pub(super) fn run(&self) -> BurstResult {
        std::thread::scope(|scope| {
            for client in 0..self.plan.clients {
                let to = self.to[client % self.to.len()];
                scope.spawn(move || self.client(to));
            }
        });
        let bursts = self.bursts.lock().unwrap_or_else(PoisonError::into_inner);
        BurstResult {
            answered: self.answered.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            took: clock::now().since(self.start),
            bursts: bursts.clone(),
        }
    }

    fn client(&self, to: SocketAddr) {
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
            match self.request(&mut connection, to, site, &self.path_of(number)) {
                Ok(node) => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                    if self.has_come(&node, site) {
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
        let begun = Burst {
            begun_us: clock::unix().as_micros() as u64,
            came_us: None,
        };
        // One that a slower client begins after the next one has begun at the same time.
        let length = bursts.len().max(burst + 1);
        bursts.resize(length, begun);
        bursts[burst].begun_us = begun.begun_us;
    }

    /// Whether a node that answers for a site has answered for another one before. One without a name never has.
    fn has_come(&self, node: &str, site: &'static str) -> bool {
        if node.is_empty() {
            return false;
        }
        let mut serves = self.serves.lock().unwrap_or_else(PoisonError::into_inner);
        match serves.get_mut(node) {
            Some(before) => std::mem::replace(before, site) != site,
            None => {
                serves.insert(node.to_owned(), site);
                !node.starts_with(site)
            }
        }
    }

    /// A node that has come has answered.
    fn came(&self, burst: usize) {
        let mut bursts = self.bursts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(burst) = bursts.get_mut(burst) {
            let came = &mut burst.came_us;
            came.get_or_insert_with(|| clock::unix().as_micros() as u64);
        }
    }

    /// One request; the node that answered.
    fn request(
        &self,
        connection: &mut Option<BufReader<TcpStream>>,
        to: SocketAddr,
        site: &str,
        path: &str,
    ) -> io::Result<String> {
        let stream = match connection {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect_timeout(&to, WAIT)?;
                stream.set_read_timeout(Some(WAIT))?;
                stream.set_nodelay(true)?;
                connection.insert(BufReader::new(stream))
            }
        };
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
    fn sites_have_no_file_in_common() {
        let file = AskedFile {
            number: Some(7),
            bytes: 4096,
        };
        assert_eq!(file.path(2), "/work?file=200007&cpu=200us&bytes=4096");
        assert_eq!(AskedFile::of(1).path(2), "/work?cpu=200us&bytes=1");
    }

    #[test]
    fn all_clients_go_on_to_the_next_site_after_a_burst() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || server(&listener, 6));
        let plan = BurstPlan {
            sites: vec!["a", "b"],
            files: Arc::new([AskedFile::of(2)]),
            burst: 2,
            requests: 6,
            clients: 1,
            limit: Duration::from_secs(60),
        };
        let run = BurstRun::new(plan, vec![address]);
        assert_eq!(run.site(), Some("a"));
        let result = run.run();
        assert_eq!(server.join().unwrap(), ["a", "a", "b", "b", "a", "a"]);
        assert_eq!((result.answered, result.failed), (6, 0));
        // In b's burst a node of a has answered, which was back in the last one.
        let came: Vec<_> = result
            .bursts
            .iter()
            .map(|it| it.came_us.is_some())
            .collect();
        assert_eq!(came, [false, true, true]);
        let first = result.bursts[1];
        assert!(first.came_us.unwrap() >= first.begun_us);
        assert_eq!(run.site(), None);
    }
}
