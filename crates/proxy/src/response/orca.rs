//! The headers in which a server reports its load with a response: the forms of ORCA (Open Request Cost Aggregation).
//!
//! ```text
//! endpoint-load-metrics: TEXT cpu_utilization=0.3, named_metrics.rif=12, named_metrics.latency=0.02
//! endpoint-load-metrics: JSON {"cpu_utilization": 0.3, "named_metrics": {"rif": 12}}
//! endpoint-load-metrics: BIN CZqZmZmZmbk/          base64 of an OrcaLoadReport
//! endpoint-load-metrics-bin: CZqZmZmZmbk/          the same
//! ```
//!
//! What numbers are read stands in `tidegate_core::load::OrcaReport`. JSON may have names as Protocol Buffers write them there
//! (`cpuUtilization`). A report that is malformed or longer than [`ORCA_BYTES_MAX`] is none; of one that can be read,
//! numbers that cannot be are left out.

use http::HeaderMap;
use serde_json::Value;
use tidegate_core::load::{ORCA_BYTES_MAX, OrcaReport};

use crate::head;

/// Takes the report out of a response's head: nothing within if it is malformed.
pub(crate) fn take(headers: &mut HeaderMap) -> Option<Option<OrcaReport>> {
    let binary = headers.remove(head::LOAD_METRICS_BIN);
    let named = headers.remove(head::LOAD_METRICS);
    match (named, binary) {
        (Some(value), _) => Some(parse(value.as_bytes())),
        (None, Some(value)) => Some(from_base64(value.as_bytes())),
        (None, None) => None,
    }
}

/// Reads the value of `endpoint-load-metrics`.
pub(crate) fn parse(value: &[u8]) -> Option<OrcaReport> {
    // Base64 takes four bytes for three.
    if value.len() > ORCA_BYTES_MAX * 2 {
        return None;
    }
    let text = std::str::from_utf8(value).ok()?.trim();
    if let Some(binary) = text.strip_prefix("BIN") {
        return from_base64(binary.as_bytes());
    }
    if text.len() > ORCA_BYTES_MAX {
        return None;
    }
    match text.strip_prefix("JSON") {
        Some(json) => from_json(json.trim_start()),
        None => from_text(text.strip_prefix("TEXT").unwrap_or(text)),
    }
}

fn from_text(text: &str) -> Option<OrcaReport> {
    let mut report = OrcaReport::UNKNOWN;
    let mut is_any = false;
    for pair in text.split(',') {
        let split = pair.split_once('=').or_else(|| pair.split_once(':'));
        let Some((name, value)) = split else { continue };
        if let Ok(value) = value.trim().parse() {
            is_any = true;
            report.set(name.trim(), value);
        }
    }
    is_any.then_some(report)
}

fn from_json(json: &str) -> Option<OrcaReport> {
    let object: Value = serde_json::from_str(json).ok()?;
    let mut report = OrcaReport::UNKNOWN;
    for (name, value) in object.as_object()? {
        let name = written_plainly(name);
        if let Some(number) = value.as_f64() {
            report.set(name, number);
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            if let Some(number) = value.as_f64() {
                report.set_in(name, key, number);
            }
        }
    }
    Some(report)
}

/// A name as the definition of the message has it.
fn written_plainly(name: &str) -> &str {
    match name {
        "cpuUtilization" => "cpu_utilization",
        "memUtilization" => "mem_utilization",
        "applicationUtilization" => "application_utilization",
        "namedMetrics" => "named_metrics",
        other => other,
    }
}

/// Reads base64, with its padding or without, and the report in it.
pub(crate) fn from_base64(text: &[u8]) -> Option<OrcaReport> {
    let text = text.trim_ascii();
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"="));
    let digits = digits.unwrap_or(text);
    if digits.len() > ORCA_BYTES_MAX * 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for byte in group {
            bits = bits << 6 | u32::from(sextet(*byte)?);
        }
        bits <<= 6 * (4 - group.len());
        let [_, whole @ ..] = bits.to_be_bytes();
        bytes.extend_from_slice(&whole[..group.len() - 1]);
    }
    OrcaReport::from_binary(&bytes)
}

/// The six bits of a digit.
fn sextet(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(any(test, feature = "fuzzing"))]
#[path = "../../../../fuzz/invariants/load_header.rs"]
pub(crate) mod invariants;

#[cfg(test)]
mod tests {
    use super::*;

    /// Used share of CPU and memory, requests in flight and latency; zero for what is not known.
    fn numbers(value: &str) -> [f32; 4] {
        let report = parse(value.as_bytes()).unwrap_or_else(|| panic!("{value}"));
        let all = [report.cpu, report.memory, report.in_flight, report.latency];
        all.map(|it| if it.is_nan() { 0.0 } else { it })
    }

    #[test]
    fn all_forms_are_read() {
        for (value, wanted) in [
            (
                "TEXT cpu_utilization=0.5, named_metrics.rif=12",
                [0.5, 0.0, 12.0, 0.0],
            ),
            ("TEXT rif=3,latency=0.25", [0.0, 0.0, 3.0, 0.25]),
            (
                "TEXT cpu_utilization:0.5,mem_utilization:0.25",
                [0.5, 0.25, 0.0, 0.0],
            ),
            ("rif=3", [0.0, 0.0, 3.0, 0.0]),
            (
                "JSON {\"named_metrics\": {\"rif\": 7, \"latency\": 0.5}}",
                [0.0, 0.0, 7.0, 0.5],
            ),
            (
                "JSON {\"rif\": 1.5, \"cpuUtilization\": 0.5, \"memUtilization\": 0.25}",
                [0.5, 0.25, 1.5, 0.0],
            ),
            ("BIN CQAAAAAAAOA/", [0.5, 0.0, 0.0, 0.0]),
            ("BIN CQAAAAAAAOA/EQAAAAAAANA/", [0.5, 0.25, 0.0, 0.0]),
            ("BIN ", [0.0; 4]),
        ] {
            assert_eq!(numbers(value), wanted, "{value}");
        }
    }

    #[test]
    fn base64_has_padding_or_none() {
        // A field of two bytes that is left out of account, and one of three.
        for text in ["GAc=", "GAc", "GIcB", " GAc= "] {
            assert!(from_base64(text.as_bytes()).is_some(), "{text}");
        }
        for text in ["G", "GA-=", "GAc\u{e4}", "GAc=GAc=", "GA==", "====="] {
            assert!(from_base64(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn the_headers_are_taken_out_and_the_first_counts() {
        let mut headers = HeaderMap::new();
        assert!(take(&mut headers).is_none());
        let value = |text| http::HeaderValue::from_static(text);
        headers.insert(head::LOAD_METRICS_BIN, value("CQAAAAAAAOA/"));
        let report = take(&mut headers).flatten().unwrap();
        assert_eq!(report.cpu, 0.5);
        headers.insert(head::LOAD_METRICS_BIN, value("CQAAAAAAAOA/"));
        headers.insert(head::LOAD_METRICS, value("TEXT cpu_utilization=0.25"));
        let report = take(&mut headers).flatten().unwrap();
        assert_eq!((report.cpu, headers.len()), (0.25, 0));
        headers.insert(head::LOAD_METRICS, value("BIN !"));
        assert!(take(&mut headers).is_some_and(|it| it.is_none()));
    }

    #[test]
    fn hostile_reports_tell_no_requests_in_flight() {
        let deep = format!("JSON {}", "[".repeat(2000));
        let long = format!("TEXT rif=1,{}", "x".repeat(ORCA_BYTES_MAX));
        let cases = [
            "",
            "TEXT",
            "JSON",
            "JSON {",
            "JSON {\"rif\": \"1\"}",
            "TEXT rif=",
            "TEXT rif=NaN",
            "TEXT rif=inf",
            "TEXT rif=-1",
            "TEXT rif=1e999",
            "BIN AAAA",
            "TEXT rif",
            "JSON 1",
            &deep,
            &long,
        ];
        for value in cases {
            let report = parse(value.as_bytes());
            assert!(report.is_none_or(|it| it.in_flight.is_nan()), "{value}");
        }
        assert!(parse(b"TEXT rif=\xff").is_none());
        let begin = "TEXT rif=1,";
        for (bytes, is_read) in [(ORCA_BYTES_MAX, true), (ORCA_BYTES_MAX + 1, false)] {
            let report = format!("{begin}{}", "x".repeat(bytes - begin.len()));
            assert_eq!(parse(report.as_bytes()).is_some(), is_read, "{bytes}");
        }
    }
}
