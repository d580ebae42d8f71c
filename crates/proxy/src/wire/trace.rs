//! The trace that a request belongs to: `traceparent` (W3C-TRACE-CONTEXT §3.2).
//!
//! ```text
//! 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//! version, trace of 32 digits, caller of 16, flags: 1 if the caller has recorded it
//! ```
//!
//! What a client sends goes on as it is. Where traces are made, a request without one, or with what is none, gets one: a new trace
//! and a new caller, recorded as often as is asked for. Then `tracestate` goes, since it belongs to what was none (§3.3.1).
//! Where traces are exported, a request of one that is recorded names us as the caller: our own span, and towards a node that of the try.
//! Failure case: identifiers are not secret, and clients can choose theirs.

use std::cell::RefCell;
use std::num::{NonZeroU64, NonZeroU128};

use http::{HeaderMap, HeaderName, HeaderValue};
use ring::rand::{SecureRandom as _, SystemRandom};
use tidegate_core::prng::Prng;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// Digits of a trace, and of its caller.
const TRACE: usize = 32;
const CALLER: usize = 16;
/// Bytes of a field of version 0.
const LENGTH: usize = 2 + 1 + TRACE + 1 + CALLER + 1 + 2;

/// The flag of a trace that its caller has recorded.
const RECORDED: u8 = 1;
/// The flags that go on: that one, and that the trace's number is random.
const FLAGS: u8 = 3;

/// A trace's number.
pub type TraceId = NonZeroU128;
/// A span's number.
pub type SpanId = NonZeroU64;

/// What a request is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(crate) trace: TraceId,
    /// The span of the caller; none: the trace begins here.
    pub(crate) caller: Option<SpanId>,
    pub(crate) flags: u8,
}

impl TraceParent {
    /// What a field names, if it is one.
    fn read(field: &[u8]) -> Option<Self> {
        trace_id(field)?;
        let text = std::str::from_utf8(field).ok()?;
        let hex = |from: usize, digits: usize| text.get(from..from + digits);
        let trace = u128::from_str_radix(hex(3, TRACE)?, 16).ok()?;
        let caller = u64::from_str_radix(hex(4 + TRACE, CALLER)?, 16).ok()?;
        let flags = u8::from_str_radix(hex(5 + TRACE + CALLER, 2)?, 16).ok()?;
        Some(Self {
            trace: TraceId::new(trace)?,
            caller: Some(SpanId::new(caller)?),
            flags: flags & FLAGS,
        })
    }
}

/// Names the caller of what is sent.
pub(crate) fn set_traceparent(headers: &mut HeaderMap, trace: TraceId, caller: SpanId, flags: u8) {
    let field = format!("00-{trace:032x}-{caller:016x}-{flags:02x}");
    if let Ok(field) = HeaderValue::try_from(field) {
        headers.insert(TRACEPARENT, field);
    }
}

/// A share of all traces: so many of 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSampling(u64);

impl TraceSampling {
    /// A share from 0 to 1.
    pub fn of(share: f64) -> Self {
        let all = (u64::from(u32::MAX) + 1) as f64;
        Self((share.clamp(0.0, 1.0) * all) as u64)
    }

    /// Whether it takes the trace of a random number.
    pub(crate) fn takes(self, random: u64) -> bool {
        random >> 32 < self.0
    }
}

/// The trace that a field names, if it is one.
pub(crate) fn trace_id(field: &[u8]) -> Option<&str> {
    let (field, rest) = field.split_at_checked(LENGTH)?;
    let text = std::str::from_utf8(field).ok()?;
    let mut parts = text.split('-');
    let mut part = |digits: usize| {
        let part = parts.next()?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (part.len() == digits && part.bytes().all(is_hex)).then_some(part)
    };
    let (version, trace, caller, _) = (part(2)?, part(TRACE)?, part(CALLER)?, part(2)?);
    // Later versions may have more behind it.
    let is_whole = rest.is_empty() || (version != "00" && rest[0] == b'-');
    let is_some = |part: &str| part.bytes().any(|byte| byte != b'0');
    (version != "ff" && is_whole && is_some(trace) && is_some(caller)).then_some(trace)
}

/// The trace that a head names.
pub(crate) fn trace_of(headers: &HeaderMap) -> Option<&str> {
    trace_id(headers.get(TRACEPARENT)?.as_bytes())
}

/// Numbers for traces, of one worker: from the system's randomness on, so that no two workers or front-ends have the same.
#[derive(Debug)]
pub(crate) struct TraceIds(RefCell<Prng>);

impl Default for TraceIds {
    fn default() -> Self {
        let mut seed = [0; 8];
        // Without randomness they are those of others; nothing is kept safe by them.
        SystemRandom::new().fill(&mut seed).unwrap_or_default();
        Self(RefCell::new(Prng::new(u64::from_ne_bytes(seed))))
    }
}

impl TraceIds {
    /// A new span's number.
    pub(crate) fn span(&self) -> SpanId {
        SpanId::MIN | self.0.borrow_mut().bits()
    }

    /// Gives a request a trace, unless it has one.
    pub(crate) fn ensure(&self, headers: &mut HeaderMap, sampling: TraceSampling) {
        if of_head(headers).is_none() {
            let made = self.make(headers, sampling);
            set_traceparent(headers, made.trace, self.span(), made.flags);
        }
    }

    /// The recorded trace that a request belongs to, or that is begun for it; then the request has that of our span as its caller. A
    /// request of any other is as it would be without an exporter, as is one that `takes` refuses.
    pub(crate) fn begin(
        &self,
        headers: &mut HeaderMap,
        sampling: Option<TraceSampling>,
        takes: impl FnOnce() -> bool,
    ) -> Option<(TraceParent, SpanId)> {
        let (parent, is_made) = match (of_head(headers), sampling) {
            (Some(parent), _) => (parent, false),
            (None, Some(sampling)) => (self.make(headers, sampling), true),
            (None, None) => return None,
        };
        let span = self.span();
        let is_traced = parent.flags & RECORDED != 0 && takes();
        if is_made || is_traced {
            set_traceparent(headers, parent.trace, span, parent.flags);
        }
        is_traced.then_some((parent, span))
    }

    fn make(&self, headers: &mut HeaderMap, sampling: TraceSampling) -> TraceParent {
        headers.remove(TRACESTATE);
        let mut prng = self.0.borrow_mut();
        let is_recorded = sampling.takes(prng.bits());
        let trace = (u128::from(prng.bits()) << 64) | u128::from(prng.bits());
        TraceParent {
            trace: TraceId::MIN | trace,
            caller: None,
            flags: u8::from(is_recorded),
        }
    }
}

/// What a head names, if it names one.
fn of_head(headers: &HeaderMap) -> Option<TraceParent> {
    let mut fields = headers.get_all(TRACEPARENT).iter();
    let (field, more) = (fields.next()?, fields.next());
    TraceParent::read(field.as_bytes()).filter(|_| more.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_is_read_if_it_is_one() {
        let trace = Some("4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace_id(GOOD.as_bytes()), trace);
        assert_eq!(trace_id(GOOD.replace("00-4b", "cc-4b").as_bytes()), trace);
        let later = format!("{}-more", GOOD.replace("00-4b", "01-4b"));
        assert_eq!(trace_id(later.as_bytes()), trace);
        for bad in [
            "",
            "00",
            &GOOD[1..],
            &format!("{GOOD}-more"),
            &format!("{GOOD}0"),
            &GOOD.replace("00-4b", "ff-4b"),
            &GOOD.replace("4bf9", "4BF9"),
            &GOOD.replace("4bf9", "4bg9"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
            "00\u{e4}4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            assert_eq!(trace_id(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_request_without_a_trace_gets_one_of_its_own() {
        let ids = TraceIds::default();
        let made = |sent: &[&str], share: f64| {
            let mut headers = HeaderMap::new();
            headers.insert(TRACESTATE, HeaderValue::from_static("a=b"));
            for field in sent {
                headers.append(TRACEPARENT, HeaderValue::from_str(field).unwrap());
            }
            ids.ensure(&mut headers, TraceSampling::of(share));
            let kept = headers.contains_key(TRACESTATE);
            let all: Vec<_> = headers.get_all(TRACEPARENT).iter().collect();
            assert_eq!(all.len(), 1);
            (all[0].to_str().unwrap().to_owned(), kept)
        };
        assert_eq!(made(&[GOOD], 1.0), (GOOD.to_owned(), true));
        let (one, kept) = made(&[], 1.0);
        let (other, _) = made(&["00-x"], 0.0);
        assert!(
            !kept && one.ends_with("-01") && other.ends_with("-00"),
            "{one} {other}"
        );
        let of = |field: &str| trace_id(field.as_bytes()).map(str::to_owned);
        assert!(of(&one).is_some() && of(&other).is_some() && of(&one) != of(&other));
        let (mixed, _) = made(&[GOOD, GOOD], 0.0);
        assert_ne!(mixed, GOOD, "two are none");
    }

    #[test]
    fn a_recorded_trace_has_our_span_as_its_caller() {
        let ids = TraceIds::default();
        let begun = |sent: &[&str], share: Option<f64>, takes: bool| {
            let mut headers = HeaderMap::new();
            for field in sent {
                headers.append(TRACEPARENT, HeaderValue::from_str(field).unwrap());
            }
            let begun = ids.begin(&mut headers, share.map(TraceSampling::of), || takes);
            (begun, of_head(&headers))
        };
        let (own, now) = begun(&[GOOD], None, true);
        let (parent, span) = own.unwrap();
        assert_eq!(
            parent.trace.get(),
            0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736
        );
        assert_eq!(parent.caller.unwrap().get(), 0x00f0_67aa_0ba9_02b7);
        assert_eq!(
            now,
            Some(TraceParent {
                caller: Some(span),
                ..parent
            })
        );
        let unsampled = GOOD.replace("b7-01", "b7-02");
        let (none, as_sent) = begun(&[&unsampled], Some(1.0), true);
        assert_eq!(
            (none, as_sent),
            (None, TraceParent::read(unsampled.as_bytes()))
        );
        // One too many in this second: as without an exporter.
        let (none, as_sent) = begun(&[GOOD], None, false);
        assert_eq!((none, as_sent), (None, TraceParent::read(GOOD.as_bytes())));
        assert_eq!(begun(&[], None, true), (None, None));
        for sent in [&[][..], &["00-x"], &[GOOD, GOOD]] {
            let (made, now) = begun(sent, Some(1.0), true);
            let (made, span) = made.unwrap();
            assert_eq!((made.caller, made.flags), (None, 1));
            assert_eq!(
                now,
                Some(TraceParent {
                    caller: Some(span),
                    ..made
                })
            );
            let (unmade, now) = begun(sent, Some(0.0), true);
            assert_eq!((unmade, now.unwrap().flags), (None, 0));
        }
        // Flags that mean nothing yet do not go on.
        let later = GOOD.replace("b7-01", "b7-ff");
        assert_eq!(TraceParent::read(later.as_bytes()).unwrap().flags, 3);
    }
}
