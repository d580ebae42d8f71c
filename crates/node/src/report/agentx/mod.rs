//! A subagent of a stock `snmpd`, as a state machine: PDUs in, PDUs out. The socket is the agent's.
//!
//! ```text
//! Open ──> answered ──> Register (the MIB's subtree) ──> answered ──> Get, GetNext, GetBulk are answered
//!               └ error: the session is over, with the master's reason ┘
//! ```
//!
//! Nothing can be set: a TestSet is answered `notWritable`. Failure case: a master that answers nothing is noticed by the
//! pings that the socket's owner sends.
//! Source: RFC 2741 §7.

mod pdu;

pub use pdu::{
    HEADER_BYTES, Header, Oid, PAYLOAD_BYTES_MAX, PduError, PduKind, SearchRange, SnmpValue,
};

use super::mib::{ROOT, Snapshot};
use pdu::Writer;

/// Seconds that the master may wait for an answer.
const TIMEOUT_SECONDS: u8 = 5;
/// Least specific priority that masters use by default.
const PRIORITY: u8 = 127;
/// Bindings of one answer: a bulk that asks for more gets less, and asks again.
const BINDINGS_MAX: usize = 512;
/// `sysUpTime.0` and `snmpTrapOID.0`, by which a notification begins.
const TRAP_OID: [u32; 11] = [1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0];

const NO_ERROR: u16 = 0;
const NOT_WRITABLE: u16 = 17;
const COMMIT_FAILED: u16 = 14;
const UNDO_FAILED: u16 = 15;

/// What comes of a PDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// This is to be said.
    Say(Vec<u8>),
    /// The subtree is registered.
    Registered,
    /// Nothing.
    Nothing,
    /// The session is over, and why.
    Ended(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Registering,
    Registered,
}

/// See the module.
#[derive(Debug)]
pub struct Session {
    phase: Phase,
    id: u32,
    packet: u32,
}

impl Session {
    /// A session, and the PDU by which it begins.
    pub fn open(description: &str) -> (Self, Vec<u8>) {
        let mut session = Self {
            phase: Phase::Opening,
            id: 0,
            packet: 0,
        };
        let mut writer = session.begin(PduKind::Open);
        writer.bytes([TIMEOUT_SECONDS, 0, 0, 0]);
        writer.oid(&ROOT);
        writer.octets(description.as_bytes());
        (session, writer.finish())
    }

    fn begin(&mut self, kind: PduKind) -> Writer {
        self.packet = self.packet.wrapping_add(1);
        Writer::new(kind, self.id, 0, self.packet)
    }

    fn register(&mut self) -> Vec<u8> {
        let mut writer = self.begin(PduKind::Register);
        writer.bytes([0, PRIORITY, 0, 0]);
        writer.oid(&ROOT);
        writer.finish()
    }

    /// A question whether the master is there.
    pub fn ping(&mut self) -> Vec<u8> {
        self.begin(PduKind::Ping).finish()
    }

    /// A trap, with these bindings.
    pub fn notify(&mut self, trap: &[u32], bindings: &Snapshot) -> Vec<u8> {
        let mut writer = self.begin(PduKind::Notify);
        writer.binding(&TRAP_OID, &SnmpValue::Name(trap.to_vec()));
        bindings
            .all()
            .for_each(|(name, value)| writer.binding(name, value));
        writer.finish()
    }

    /// Takes a PDU in. `values` gives what there is, if that is asked for.
    ///
    /// # Errors
    /// If the payload makes no sense: the session cannot go on.
    pub fn on_pdu(
        &mut self,
        header: &Header,
        payload: &[u8],
        values: impl FnOnce() -> Snapshot,
    ) -> Result<Step, PduError> {
        let Some(kind) = header.kind else {
            // RFC 2741 §7.2.2 has an answer for it only where it is one to answer.
            return Ok(Step::Nothing);
        };
        let mut reader = header.payload(payload)?;
        let step = match kind {
            PduKind::Response => {
                reader.number("an answer")?;
                return Ok(self.on_answer(header, reader.short("an answer")?));
            }
            PduKind::Close => return Ok(Step::Ended("snmpd has closed the session".into())),
            PduKind::Get => {
                let ranges = reader.ranges()?;
                answer_values(header, &values(), &ranges, Snapshot::get)
            }
            PduKind::GetNext => {
                let ranges = reader.ranges()?;
                answer_values(header, &values(), &ranges, Snapshot::next)
            }
            PduKind::GetBulk => {
                let (first, times) = (reader.short("a bulk")?, reader.short("a bulk")?);
                bulk(
                    header,
                    &values(),
                    first.into(),
                    times.into(),
                    &reader.ranges()?,
                )
            }
            PduKind::TestSet => refuse(header, NOT_WRITABLE),
            PduKind::CommitSet => refuse(header, COMMIT_FAILED),
            PduKind::UndoSet => refuse(header, UNDO_FAILED),
            // A subagent's own, or without an answer.
            PduKind::Open
            | PduKind::Register
            | PduKind::CleanupSet
            | PduKind::Notify
            | PduKind::Ping => return Ok(Step::Nothing),
        };
        Ok(Step::Say(step))
    }

    fn on_answer(&mut self, header: &Header, error: u16) -> Step {
        if header.packet != self.packet && self.phase != Phase::Registered {
            return Step::Nothing;
        }
        match (self.phase, error) {
            (Phase::Opening, NO_ERROR) => {
                self.id = header.session;
                self.phase = Phase::Registering;
                Step::Say(self.register())
            }
            (Phase::Registering, NO_ERROR) => {
                self.phase = Phase::Registered;
                Step::Registered
            }
            (Phase::Registered, NO_ERROR) => Step::Nothing,
            (_, error) => Step::Ended(format!("snmpd refuses it: {}", error_name(error))),
        }
    }
}

/// RFC 2741 §6.2.16.
fn error_name(error: u16) -> String {
    let name = match error {
        256 => "openFailed",
        257 => "notOpen",
        262 => "duplicateRegistration: another agent answers for this subtree",
        // What snmpd 5.9 says for the same.
        263 => "unknownRegistration: another agent answers for this subtree",
        265 => "parseError",
        266 => "requestDenied",
        267 => "processingError",
        _ => return format!("error {error}"),
    };
    name.to_owned()
}

fn response(header: &Header, error: u16, index: u16) -> Writer {
    let mut writer = Writer::new(
        PduKind::Response,
        header.session,
        header.transaction,
        header.packet,
    );
    // The time that the master is up is its own to know.
    writer.number(0);
    writer.short(error);
    writer.short(index);
    writer
}

fn refuse(header: &Header, error: u16) -> Vec<u8> {
    response(header, error, 1).finish()
}

fn answer_values(
    header: &Header,
    values: &Snapshot,
    ranges: &[SearchRange],
    find: impl Fn(&Snapshot, &SearchRange) -> (Oid, SnmpValue),
) -> Vec<u8> {
    let mut writer = response(header, NO_ERROR, 0);
    for range in ranges {
        let (name, value) = find(values, range);
        writer.binding(&name, &value);
    }
    writer.finish()
}

/// The first names once, the others so many times, one behind the other (RFC 2741 §7.2.3.3).
fn bulk(
    header: &Header,
    values: &Snapshot,
    first: usize,
    times: usize,
    ranges: &[SearchRange],
) -> Vec<u8> {
    let mut writer = response(header, NO_ERROR, 0);
    let (once, again) = ranges.split_at(first.min(ranges.len()));
    for range in once {
        let (name, value) = values.next(range);
        writer.binding(&name, &value);
    }
    let mut again = again.to_vec();
    let rounds = times.min(BINDINGS_MAX / again.len().max(1)).max(1);
    for _ in 0..rounds {
        let mut ended = true;
        for range in &mut again {
            let (name, value) = values.next(range);
            writer.binding(&name, &value);
            ended &= value == SnmpValue::EndOfMibView;
            (range.start, range.include) = (name, false);
        }
        if ended {
            break;
        }
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request of the master, with ranges from these names to the end.
    fn request(kind: PduKind, bulk: Option<(u16, u16)>, starts: &[&[u32]]) -> Vec<u8> {
        let mut writer = Writer::new(kind, 5, 6, 7);
        if let Some((first, times)) = bulk {
            writer.short(first);
            writer.short(times);
        }
        for start in starts {
            writer.oid(start);
            writer.oid(&[]);
        }
        writer.finish()
    }

    fn answer(session: u32, packet: u32, error: u16) -> Vec<u8> {
        let mut writer = Writer::new(PduKind::Response, session, 0, packet);
        writer.number(0);
        writer.short(error);
        writer.short(0);
        writer.finish()
    }

    fn step(session: &mut Session, bytes: &[u8]) -> Step {
        let (head, payload) = bytes.split_at(HEADER_BYTES);
        let header = Header::parse(head.try_into().unwrap()).unwrap();
        let values =
            || Snapshot::from_values(vec![(vec![1, 1], 10), (vec![1, 2], 20), (vec![2, 1], 30)]);
        session.on_pdu(&header, payload, values).unwrap()
    }

    /// Values of an answer: names below the root, and numbers.
    fn said(session: &mut Session, bytes: &[u8]) -> Vec<String> {
        let Step::Say(bytes) = step(session, bytes) else {
            panic!("no answer");
        };
        let (head, payload) = bytes.split_at(HEADER_BYTES);
        let header = Header::parse(head.try_into().unwrap()).unwrap();
        assert_eq!(
            (header.session, header.transaction, header.packet),
            (5, 6, 7)
        );
        let mut reader = header.payload(payload).unwrap();
        reader.number("time").unwrap();
        let error = reader.short("error").unwrap();
        reader.short("index").unwrap();
        if error != NO_ERROR {
            return vec![format!("error {error}")];
        }
        let bindings = reader.bindings().unwrap().into_iter();
        let text = |(name, value): (Oid, String)| {
            format!("{:?}={value}", &name[ROOT.len().min(name.len())..])
        };
        bindings.map(text).collect()
    }

    fn registered() -> Session {
        let (mut session, open) = Session::open("it");
        assert_eq!(open[1], PduKind::Open as u8);
        let Step::Say(register) = step(&mut session, &answer(5, 1, 0)) else {
            panic!("it registers");
        };
        assert_eq!(register[1], PduKind::Register as u8);
        assert_eq!(step(&mut session, &answer(5, 2, 0)), Step::Registered);
        session
    }

    fn below(rest: &[u32]) -> Oid {
        [&ROOT[..], rest].concat()
    }

    #[test]
    fn a_session_opens_registers_and_pings() {
        let mut session = registered();
        let ping = session.ping();
        assert_eq!(ping[1], PduKind::Ping as u8);
        assert_eq!(step(&mut session, &answer(5, 3, 0)), Step::Nothing);
        let Step::Ended(why) = step(&mut session, &answer(5, 3, 257)) else {
            panic!("it is over");
        };
        assert!(why.contains("notOpen"), "{why}");
    }

    #[test]
    fn a_second_agent_is_refused_with_the_reason() {
        let (mut session, _) = Session::open("it");
        step(&mut session, &answer(5, 1, 0));
        let Step::Ended(why) = step(&mut session, &answer(5, 2, 262)) else {
            panic!("it is over");
        };
        assert!(why.contains("another agent"), "{why}");
    }

    #[test]
    fn values_are_got_by_name_and_one_after_the_other() {
        let mut session = registered();
        let names = [below(&[1, 1]), below(&[1, 9])];
        let names = names.each_ref().map(Vec::as_slice);
        let got = said(&mut session, &request(PduKind::Get, None, &names));
        assert_eq!(got, ["[1, 1]=Gauge(10)", "[1, 9]=NoSuchObject"]);
        let names = [below(&[]), below(&[1, 1]), below(&[1, 2]), below(&[2, 1])];
        let names = names.each_ref().map(Vec::as_slice);
        let got = said(&mut session, &request(PduKind::GetNext, None, &names));
        assert_eq!(
            got,
            [
                "[1, 1]=Gauge(10)",
                "[1, 2]=Gauge(20)",
                "[2, 1]=Gauge(30)",
                "[2, 1]=EndOfMibView"
            ]
        );
    }

    #[test]
    fn a_bulk_walks_to_the_end_and_no_further() {
        let mut session = registered();
        let (root, second) = (below(&[]), below(&[1, 2]));
        let bulk = request(PduKind::GetBulk, Some((1, 9)), &[&root, &second]);
        let got = said(&mut session, &bulk);
        assert_eq!(
            got,
            [
                "[1, 1]=Gauge(10)",
                "[2, 1]=Gauge(30)",
                "[2, 1]=EndOfMibView"
            ]
        );
        let bulk = request(PduKind::GetBulk, Some((u16::MAX, u16::MAX)), &[&root]);
        assert_eq!(said(&mut session, &bulk), ["[1, 1]=Gauge(10)"]);
    }

    #[test]
    fn nothing_can_be_set() {
        let mut session = registered();
        let test = request(PduKind::TestSet, None, &[]);
        assert_eq!(said(&mut session, &test), ["error 17"]);
        assert_eq!(
            step(&mut session, &request(PduKind::CleanupSet, None, &[])),
            Step::Nothing
        );
    }

    #[test]
    fn any_bytes_are_borne() {
        let mut seed = 1_u64;
        let mut byte = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        };
        for round in 0..20_000_usize {
            let mut session = registered();
            let mut head = [0; HEADER_BYTES];
            head.iter_mut().for_each(|it| *it = byte());
            head[0] = 1;
            head[1] = (round % 20) as u8;
            let payload: Vec<_> = (0..4 * (round % 40))
                .map(|at| byte() & if at % 4 == 0 { 7 } else { 0xff })
                .collect();
            head[16..].copy_from_slice(&(payload.len() as u32).to_be_bytes());
            let Ok(header) = Header::parse(&head) else {
                continue;
            };
            let values = || Snapshot::from_values(vec![(vec![1, 1], 10)]);
            if let Ok(Step::Say(said)) = session.on_pdu(&header, &payload, values) {
                assert!(said.len() < 64 * BINDINGS_MAX * 8);
            }
        }
    }
}
