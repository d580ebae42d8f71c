//! The load as an ORCA report (Open Request Cost Aggregation), which Envoy and gRPC weigh servers by, and the question of a
//! client that wants such reports: as much of Protocol Buffers and of gRPC's framing as these two messages need.
//!
//! ```text
//! cpu_utilization          used share of the CPUs
//! mem_utilization          used share of the memory
//! utilization["files"]     used share of the file descriptors
//! rps_fractional           network bytes per second / bytes per request, if these are configured: an agent sees no requests
//! application_utilization  max(cpu, run queue / CPUs); a hundredfold, 100 at least, while a soft limit is crossed
//! ```
//!
//! A client weighs a server by rps / utilization, and takes `application_utilization` for that where it is there: the run
//! queue goes on growing where used CPU time cannot. Inputs: a [`NodeLoad`] whose means look back on seconds. Failure case:
//! what is not known is left out; without `rps_fractional` clients leave the weight as it is.
//! Sources: ORCA-2023 (messages), GrpcA51-2023 (intervals), GrpcA58-2023 (weights).

use std::time::Duration;

use tidegate_core::load::NodeLoad;
use tidegate_core::protobuf::{FieldValue, Fields};

/// Longest question that is looked at, bytes: names of request costs, which an agent has none of, may be in it.
pub const QUESTION_BYTES_MAX: usize = 4096;
/// Before each message: whether it is compressed, and its length.
const FRAME_HEAD: usize = 5;
/// What utilization is multiplied by at a soft limit: the weight is a hundredth.
const AT_LIMIT: f32 = 100.0;

/// Wire types of Protocol Buffers.
const FIXED_64: u8 = 1;
const LENGTH: u8 = 2;

/// What a client has asked for, as far as its bytes have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// More bytes are needed.
    Unfinished,
    /// Reports at this interval; zero if none was named.
    Interval(Duration),
    /// A compressed one, which is not understood.
    Compressed,
    /// Longer than [`QUESTION_BYTES_MAX`], or no such message.
    Malformed,
}

impl Question {
    /// From the start of a request's body.
    pub fn parse(sent: &[u8]) -> Self {
        let Some((head, message)) = sent.split_first_chunk::<FRAME_HEAD>() else {
            return Self::Unfinished;
        };
        let [flag, length @ ..] = *head;
        let length = u32::from_be_bytes(length) as usize;
        if length > QUESTION_BYTES_MAX || flag > 1 {
            return Self::Malformed;
        }
        if flag == 1 {
            return Self::Compressed;
        }
        match message.get(..length) {
            None => Self::Unfinished,
            Some(message) => interval(message).map_or(Self::Malformed, Self::Interval),
        }
    }
}

/// `report_interval` of an `OrcaLoadReportRequest`; nothing if it is malformed.
fn interval(message: &[u8]) -> Option<Duration> {
    let mut asked = Duration::ZERO;
    let mut rest = Fields::of(message);
    while let Some((number, value)) = rest.next()? {
        if let (1, FieldValue::Bytes(message)) = (number, value) {
            asked = duration(message)?;
        }
    }
    Some(asked)
}

/// A `google.protobuf.Duration`; a negative one is none.
fn duration(message: &[u8]) -> Option<Duration> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut rest = Fields::of(message);
    while let Some((number, value)) = rest.next()? {
        match (number, value) {
            (1, FieldValue::Number(value)) => seconds = value.cast_signed(),
            (2, FieldValue::Number(value)) => nanos = value.cast_signed(),
            _ => {}
        }
    }
    let (seconds, nanos) = (u64::try_from(seconds), u32::try_from(nanos));
    Some(match (seconds, nanos) {
        (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => Duration::new(seconds, nanos),
        _ => Duration::ZERO,
    })
}

/// An `OrcaLoadReport` with gRPC's head before it. `crossed`: a soft limit is; `bytes_per_request`: on the network, NaN if that
/// is not configured.
pub fn report(load: &NodeLoad, crossed: bool, bytes_per_request: f32) -> Vec<u8> {
    let mut out = vec![0; FRAME_HEAD];
    double(&mut out, 1, load.utilization);
    double(&mut out, 2, load.memory);
    entry(&mut out, 5, "files", load.files);
    double(&mut out, 6, load.network / bytes_per_request);
    double(&mut out, 9, application_utilization(load, crossed));
    let length = out.len() - FRAME_HEAD;
    // A report is shorter than a hundred bytes.
    out[1..FRAME_HEAD].copy_from_slice(&(length as u32).to_be_bytes());
    out
}

fn application_utilization(load: &NodeLoad, crossed: bool) -> f32 {
    // `max` of a number and NaN is the number.
    let wanted = load.utilization.max(load.run_queue / load.capacity);
    match crossed {
        true => AT_LIMIT * wanted.max(1.0),
        false => wanted,
    }
}

/// A field of type `double`; what is not known, or zero, is left out.
fn double(out: &mut Vec<u8>, number: u8, value: f32) {
    if value.is_finite() && value > 0.0 {
        out.push(number << 3 | FIXED_64);
        out.extend(f64::from(value).to_le_bytes());
    }
}

/// An entry of a field of type `map<string, double>`.
fn entry(out: &mut Vec<u8>, number: u8, name: &str, value: f32) {
    let mut within = vec![1 << 3 | LENGTH, name.len() as u8];
    within.extend(name.as_bytes());
    let named = within.len();
    double(&mut within, 2, value);
    if within.len() > named {
        out.extend([number << 3 | LENGTH, within.len() as u8]);
        out.extend(within);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        let length = message.len() as u32;
        [&[0], &length.to_be_bytes()[..], message].concat()
    }

    fn asked(message: &[u8]) -> Question {
        Question::parse(&framed(message))
    }

    #[test]
    fn an_interval_is_read_and_what_else_is_asked_is_left_out_of_account() {
        let seconds = |seconds| Question::Interval(Duration::from_secs(seconds));
        assert_eq!(asked(&[]), seconds(0));
        assert_eq!(asked(&[0x0a, 2, 8, 10]), seconds(10));
        // 100 ms, and the name of a cost before it.
        let message = [0x12, 2, b'd', b'b', 0x0a, 5, 0x10, 0x80, 0xc2, 0xd7, 0x2f];
        assert_eq!(
            asked(&message),
            Question::Interval(Duration::from_millis(100))
        );
        // Fields that came later than this: a number, eight bytes, four bytes.
        let other = [0x18, 1, 0x21, 0, 0, 0, 0, 0, 0, 0, 0, 0x2d, 0, 0, 0, 0];
        assert_eq!(asked(&other), seconds(0));
        // Minus one second, and more nanoseconds than a second has.
        let minus = [0x0a, 11, 8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        assert_eq!(asked(&minus), seconds(0));
        assert_eq!(
            asked(&[0x0a, 6, 0x10, 0x80, 0x94, 0xeb, 0xdc, 3]),
            seconds(0)
        );
    }

    #[test]
    fn a_question_comes_in_pieces() {
        let whole = framed(&[0x0a, 2, 8, 10]);
        for length in 0..whole.len() {
            assert_eq!(Question::parse(&whole[..length]), Question::Unfinished);
        }
        let more = [&whole[..], b"more"].concat();
        assert_eq!(
            Question::parse(&more),
            Question::Interval(Duration::from_secs(10))
        );
    }

    #[test]
    fn what_is_no_question_is_refused() {
        for message in [
            &[0x0a][..],
            &[0x0a, 9, 8],
            &[0x0a, 1, 0x0b],
            &[0x0b, 0],
            &[0xff; 11],
            &[0x21, 0],
        ] {
            assert_eq!(asked(message), Question::Malformed, "{message:?}");
        }
        assert_eq!(Question::parse(b"GET / "), Question::Malformed);
        assert_eq!(Question::parse(&[0, 0, 0, 16, 1]), Question::Malformed);
        assert_eq!(Question::parse(&[1, 0, 0, 0, 9]), Question::Compressed);
    }

    fn loaded() -> NodeLoad {
        NodeLoad {
            capacity: 2.0,
            run_queue: 3.0,
            utilization: 0.5,
            memory: 0.25,
            files: 0.125,
            network: 3000.0,
            ..NodeLoad::UNKNOWN
        }
    }

    fn eight(number: f64) -> [u8; 8] {
        number.to_le_bytes()
    }

    #[test]
    fn a_report_has_what_is_known_and_nothing_else() {
        let bytes = report(&loaded(), false, f32::NAN);
        let mut wanted = vec![0x09];
        wanted.extend(eight(0.5));
        wanted.push(0x11);
        wanted.extend(eight(0.25));
        wanted.extend([0x2a, 16, 0x0a, 5]);
        wanted.extend(b"files");
        wanted.push(0x11);
        wanted.extend(eight(0.125));
        wanted.push(0x49);
        wanted.extend(eight(1.5));
        assert_eq!(bytes, framed(&wanted));
        assert_eq!(report(&NodeLoad::UNKNOWN, false, 100.0), framed(&[]));
    }

    #[test]
    fn requests_go_by_their_bytes() {
        let report = report(&loaded(), false, 1500.0);
        let at = report.iter().position(|it| *it == 0x31).unwrap();
        assert_eq!(report[at + 1..at + 9], eight(2.0));
    }

    #[test]
    fn at_a_soft_limit_the_weight_is_a_hundredth() {
        let load = loaded();
        assert_eq!(application_utilization(&load, false), 1.5);
        assert_eq!(application_utilization(&load, true), 150.0);
        assert_eq!(application_utilization(&NodeLoad::UNKNOWN, true), 100.0);
        assert!(application_utilization(&NodeLoad::UNKNOWN, false).is_nan());
    }
}
