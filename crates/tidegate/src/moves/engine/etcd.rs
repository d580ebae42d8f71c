//! Words of the home in etcd, by its JSON gateway: for those whose home must outlive a host.
//!
//! ```text
//! keys   PREFIX/K, PREFIX/S/<site>: 16 hexadecimal digits; a key that is not there is a blank word
//!        PREFIX/U/<site>: its version is the count, since etcd adds 1 to it with each put
//! read   range of PREFIX/, linearizable
//! swap   txn: if the value is the expected one (or the key is not there), put; else get
//! count  put, with the version before
//! ```
//!
//! A question is sent once, to one endpoint. What is not answered may have happened: nothing is known of it, as of a lost
//! datagram. The next question goes to the next endpoint. Words of nodes stay in their regions.
//!
//! Inputs: endpoints, words. Failure case: a cluster without a majority answers nothing, and moves stop. An etcd that is
//! restored from a copy has old words: a front-end that has slept since then takes a lock for the one that it
//! knew. Delete the keys after that: locks of a blank home begin at random sequences.
//! Source: Etcd-2019 (KV, Txn, versions of keys, the JSON gateway); not in Reconfiguration-2004.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use data_encoding::BASE64;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_core::moves::atomics::{HomeWords, WordAtomic};
use tidegate_core::moves::steps::MoveReply;
use tidegate_core::moves::words::{CONSTITUTION_WORD, SITES_MAX, SiteNumber};
use tidegate_discover::Session;
use tidegate_remote::clock;
use tokio::runtime::{Builder, Runtime};

use super::Home;
use crate::config::EtcdHomeConfig;

/// Longest wait for an answer: an election of a leader takes about as long.
const LIMIT: Duration = Duration::from_secs(1);
/// Longest answer: 225 keys and their values.
const BYTES_MAX: usize = 128 << 10;

/// A home in etcd.
pub(super) struct EtcdHome {
    runtime: Runtime,
    endpoints: Vec<Session>,
    current: usize,
    prefix: String,
}

impl fmt::Debug for EtcdHome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = &self.endpoints[self.current];
        write!(out, "etcd at {}", current.server())
    }
}

/// An answer of etcd has a header: `{}` is none, and not one without keys.
#[derive(Debug, Deserialize)]
struct Answer<T> {
    #[serde(rename = "header")]
    _header: IgnoredAny,
    #[serde(flatten)]
    own: T,
}

/// A key and its value, both in Base64.
#[derive(Debug, Deserialize)]
struct Pair {
    key: String,
    #[serde(default)]
    value: String,
    /// How often it was put, as a number in a text.
    #[serde(default)]
    version: String,
}

/// What a range or a get gives.
#[derive(Debug, Default, Deserialize)]
struct Pairs {
    #[serde(default)]
    kvs: Vec<Pair>,
}

/// What a put gives.
#[derive(Debug, Deserialize)]
struct Put {
    prev_kv: Option<Pair>,
}

/// What a transaction gives.
#[derive(Debug, Deserialize)]
struct Done {
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<Branch>,
}

#[derive(Debug, Deserialize)]
struct Branch {
    response_range: Option<Pairs>,
}

impl EtcdHome {
    /// Asks nothing yet.
    ///
    /// # Errors
    /// The system has no way to wait for answers.
    pub(super) fn new(config: &EtcdHomeConfig) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let session = |server: &tidegate_discover::ServerUrl| {
            Session::new(server.clone(), config.ca_file.clone())
        };
        Ok(Self {
            runtime,
            endpoints: config.endpoints.iter().map(session).collect(),
            current: 0,
            prefix: config.prefix.clone(),
        })
    }

    /// The key of a word of the home.
    fn key(&self, word: u32) -> String {
        let prefix = &self.prefix;
        let place = word.saturating_sub(SiteNumber(0).lock_word());
        match (word, place % 4) {
            (CONSTITUTION_WORD, _) => format!("{prefix}/K"),
            (_, 0) => format!("{prefix}/S/{}", place / 4),
            (_, _) => format!("{prefix}/U/{}", place / 4),
        }
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        target: &str,
        question: &impl Serialize,
    ) -> Result<T, String> {
        let question = serde_json::to_string(question).map_err(|error| error.to_string())?;
        let session = &mut self.endpoints[self.current];
        let answer = session.post(target, question, BYTES_MAX, LIMIT);
        let answer = self.runtime.block_on(answer);
        let answer = answer.map_err(|error| error.to_string()).and_then(|bytes| {
            let answer = serde_json::from_slice::<Answer<T>>(&bytes);
            let answer = answer.map_err(|error| format!("not understood: {error}"));
            answer.map(|it| it.own)
        });
        if answer.is_err() {
            self.current = (self.current + 1) % self.endpoints.len();
        }
        answer
    }

    /// What a word holds.
    fn get(&mut self, word: u32) -> Result<u64, String> {
        let key = BASE64.encode(self.key(word).as_bytes());
        let pairs: Pairs = self.ask("/v3/kv/range", &json!({ "key": key }))?;
        pairs.kvs.first().map_or(Ok(0), |pair| word_of(word, pair))
    }

    /// Swaps a word; what it held.
    fn swap(&mut self, word: u32, expected: u64, new: u64) -> Result<u64, String> {
        let key = BASE64.encode(self.key(word).as_bytes());
        let question = json!({
            "compare": [compared(&key, expected)],
            "success": [{ "request_put": { "key": key, "value": encoded(new) } }],
            "failure": [{ "request_range": { "key": key } }],
        });
        let done: Done = self.ask("/v3/kv/txn", &question)?;
        if done.succeeded {
            return Ok(expected);
        }
        let branch = done.responses.into_iter().next();
        let pairs = branch.and_then(|it| it.response_range);
        let pairs = pairs.ok_or("not understood: a transaction without an answer")?;
        pairs.kvs.first().map_or(Ok(0), value)
    }

    /// Adds 1; what it was before.
    fn count(&mut self, word: u32) -> Result<u64, String> {
        let key = BASE64.encode(self.key(word).as_bytes());
        let question = json!({ "key": key, "value": "", "prev_kv": true });
        let put: Put = self.ask("/v3/kv/put", &question)?;
        put.prev_kv.as_ref().map_or(Ok(0), version)
    }
}

/// Whether a word of the home is a count.
fn is_count(word: u32) -> bool {
    word % 4 == SiteNumber(0).updates_word() % 4
}

fn word_of(word: u32, pair: &Pair) -> Result<u64, String> {
    match is_count(word) {
        true => version(pair),
        false => value(pair),
    }
}

/// How often a key was put.
fn version(pair: &Pair) -> Result<u64, String> {
    let wrong = |_| format!("not understood: version `{}`", pair.version);
    pair.version.parse().map_err(wrong)
}

/// That a key has a value, or is not there.
fn compared(key: &str, expected: u64) -> Value {
    match expected {
        0 => json!({ "key": key, "target": "VERSION", "result": "EQUAL", "version": "0" }),
        word => {
            json!({ "key": key, "target": "VALUE", "result": "EQUAL", "value": encoded(word) })
        }
    }
}

fn encoded(word: u64) -> String {
    BASE64.encode(format!("{word:016x}").as_bytes())
}

fn text(base64: &str) -> Option<String> {
    let bytes = BASE64.decode(base64.as_bytes()).ok()?;
    String::from_utf8(bytes).ok()
}

fn value(pair: &Pair) -> Result<u64, String> {
    let value = text(&pair.value);
    let word = value.as_ref().filter(|it| it.len() == 16);
    let word = word.and_then(|it| u64::from_str_radix(it, 16).ok());
    word.ok_or_else(|| {
        let key = text(&pair.key).unwrap_or_default();
        let value = value.unwrap_or_default();
        format!("the value of {key} is `{value}`, expected 16 hexadecimal digits")
    })
}

impl Home for EtcdHome {
    fn read(&mut self, sites: usize) -> Result<HomeWords, String> {
        let (from, to) = (format!("{}/", self.prefix), format!("{}0", self.prefix));
        let question = json!({
            "key": BASE64.encode(from.as_bytes()),
            "range_end": BASE64.encode(to.as_bytes()),
        });
        let pairs: Pairs = self.ask("/v3/kv/range", &question)?;
        let mut found = BTreeMap::new();
        for pair in &pairs.kvs {
            found.insert(text(&pair.key).unwrap_or_default(), pair);
        }
        let word = |word| {
            let pair = found.get(&self.key(word));
            pair.map_or(Ok(0), |pair| word_of(word, pair))
        };
        let numbers = (0..sites.min(SITES_MAX)).map(|number| SiteNumber(number as u8));
        let sites = numbers.map(|site| Ok((word(site.lock_word())?, word(site.updates_word())?)));
        Ok(HomeWords {
            constitution: word(CONSTITUTION_WORD)?,
            sites: sites.collect::<Result<_, String>>()?,
            at: clock::now(),
        })
    }

    fn atomic(&mut self, word: u32, atomic: WordAtomic) -> MoveReply {
        let held = match atomic {
            WordAtomic::Read(_) => self.get(word),
            WordAtomic::Count(_) => self.count(word),
            WordAtomic::Swap { expected, new, .. } => self.swap(word, expected, new),
        };
        held.map_or(MoveReply::Lost, MoveReply::Held)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// A home whose only endpoint gives this answer to all questions.
    fn home(answer: &'static str) -> EtcdHome {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut question) = (stream.unwrap(), [0; 4096]);
                // One segment of loopback has the whole question.
                let length = stream.read(&mut question).unwrap();
                assert!(question[..length].starts_with(b"POST /v3/kv/"));
                let length = answer.len();
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{answer}"
                )
                .unwrap();
            }
        });
        let config = EtcdHomeConfig {
            endpoints: vec![format!("http://{address}").parse().unwrap()],
            prefix: "tidegate".into(),
            ca_file: None,
        };
        EtcdHome::new(&config).unwrap()
    }

    #[test]
    fn an_answer_without_a_header_is_none_of_etcds() {
        let why = home("{}").read(1).unwrap_err();
        assert!(
            why.contains("not understood: missing field `header`"),
            "{why}"
        );
        let swap = WordAtomic::Swap {
            place: tidegate_core::moves::atomics::WordPlace::Home(CONSTITUTION_WORD),
            expected: 0,
            new: 1,
            born: None,
        };
        assert_eq!(home("{}").atomic(CONSTITUTION_WORD, swap), MoveReply::Lost);
        // That is a home without words.
        let blank = home(r#"{"header":{"revision":"1"}}"#).read(1).unwrap();
        assert_eq!((blank.constitution, blank.sites), (0, vec![(0, 0)]));
    }
}
