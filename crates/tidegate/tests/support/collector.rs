//! A collector of OTLP over HTTP/1.1: it keeps the spans of batches that it takes, and answers by a script. Messages are read field
//! by field, in another way than they are written.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use tidegate_core::protobuf::{FieldValue, Fields};

use super::server::head;

/// How one batch is answered.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// With this status, these fields and this body.
    Now(u16, &'static str, Vec<u8>),
    /// Never.
    Hang,
}

/// A span as it came.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    /// 2: a server's, 3: a client's.
    pub(crate) kind: u64,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    /// Its status is that of an error.
    pub(crate) is_error: bool,
    /// The attributes of its resource.
    pub(crate) resource: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct Collected {
    spans: Vec<Span>,
    heads: Vec<String>,
    replies: VecDeque<Reply>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Collected>>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), &[])
    }

    /// One that answers so first, and then takes all.
    pub(crate) fn start_at(address: SocketAddr, replies: &[Reply]) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Collected {
            replies: replies.iter().cloned().collect(),
            ..Collected::default()
        }));
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, seen) = (stream.unwrap(), Arc::clone(&shared));
                std::thread::spawn(move || serve(stream, &seen));
            }
        });
        Self { address, seen }
    }

    /// The span of this kind whose attribute has this value, if it has come.
    pub(crate) fn find(&self, kind: u64, key: &str, value: &str) -> Option<Span> {
        let spans = self.spans().into_iter();
        let is_it = |it: &Span| it.attributes.get(key).is_some_and(|it| it == value);
        spans.filter(|it| it.kind == kind).find(is_it)
    }

    /// All that it took.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.seen.lock().unwrap().spans.clone()
    }

    /// The heads of all batches.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.seen.lock().unwrap().heads.clone()
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Collected>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    while let Some(head) = head(&mut reader) {
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            (name.eq_ignore_ascii_case("content-length")).then(|| value.parse().ok())?
        });
        let mut body = vec![0; length?];
        reader.read_exact(&mut body).ok()?;
        let reply = {
            let mut seen = seen.lock().unwrap();
            seen.heads.push(head);
            let reply = seen.replies.pop_front();
            let reply = reply.unwrap_or(Reply::Now(200, "", Vec::new()));
            if matches!(reply, Reply::Now(200, ..)) {
                seen.spans.extend(spans(&body));
            }
            reply
        };
        match reply {
            Reply::Now(status, fields, body) => {
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} -\r\n{fields}content-length: {length}\r\n\r\n");
                stream.write_all(head.as_bytes()).ok()?;
                stream.write_all(&body).ok()?;
            }
            // Until the other side gives up.
            Reply::Hang => drop(reader.read_exact(&mut [0])),
        }
    }
    Some(())
}

/// All fields of a message, each with its number.
fn fields(message: &[u8]) -> Vec<(u64, FieldValue<'_>)> {
    let mut fields = Fields::of(message);
    std::iter::from_fn(|| fields.next().expect("a sound message")).collect()
}

fn messages(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    let fields = fields(message).into_iter();
    fields.filter_map(move |(at, value)| match value {
        FieldValue::Bytes(bytes) if at == number => Some(bytes),
        FieldValue::Bytes(_)
        | FieldValue::Number(_)
        | FieldValue::Double(_)
        | FieldValue::Other => None,
    })
}

fn number(message: &[u8], number: u64) -> u64 {
    let mut fields = fields(message).into_iter();
    let found = fields.find_map(|(at, value)| match value {
        FieldValue::Number(found) if at == number => Some(found),
        FieldValue::Double(found) if at == number => Some(found.to_bits()),
        FieldValue::Bytes(_)
        | FieldValue::Number(_)
        | FieldValue::Double(_)
        | FieldValue::Other => None,
    });
    found.unwrap_or_default()
}

fn text(message: &[u8], number: u64) -> String {
    let found = messages(message, number).next().unwrap_or_default();
    String::from_utf8(found.to_vec()).unwrap()
}

fn hex(message: &[u8], number: u64) -> String {
    let found = messages(message, number).next().unwrap_or_default();
    found.iter().map(|it| format!("{it:02x}")).collect()
}

/// Keys and values, which are texts, numbers or flags.
fn attributes(message: &[u8], field: u64) -> BTreeMap<String, String> {
    let pairs = messages(message, field).map(|pair| {
        let value = messages(pair, 2).next().expect("a value");
        let value = match fields(value)[..] {
            [(1, FieldValue::Bytes(text))] => String::from_utf8(text.to_vec()).unwrap(),
            [(2, FieldValue::Number(flag))] => (flag != 0).to_string(),
            [(3, FieldValue::Number(number))] => number.to_string(),
            _ => panic!("no value: {value:?}"),
        };
        (text(pair, 1), value)
    });
    pairs.collect()
}

fn spans(request: &[u8]) -> Vec<Span> {
    let mut all = Vec::new();
    for of_resource in messages(request, 1) {
        let resource = messages(of_resource, 1).next().expect("a resource");
        let resource = attributes(resource, 1);
        let scopes = messages(of_resource, 2);
        for span in scopes.flat_map(|scope| messages(scope, 2)) {
            let status = messages(span, 15).next();
            all.push(Span {
                trace: hex(span, 1),
                id: hex(span, 2),
                state: text(span, 3),
                parent: hex(span, 4),
                name: text(span, 5),
                kind: number(span, 6),
                begun: number(span, 7),
                ended: number(span, 8),
                attributes: attributes(span, 9),
                is_error: status.is_some_and(|it| number(it, 3) == 2),
                resource: resource.clone(),
            });
        }
    }
    all
}
