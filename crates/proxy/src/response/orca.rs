//! The header `endpoint-load-metrics`, in which a server reports its load with a response: the
//! text and the JSON form of ORCA (Open Request Cost Aggregation).
//!
//! ```text
//! endpoint-load-metrics: TEXT cpu_utilization=0.3, named_metrics.rif=12, named_metrics.latency=0.02
//! endpoint-load-metrics: JSON {"cpu_utilization": 0.3, "named_metrics": {"rif": 12}}
//! ```
//!
//! Read: `rif` (requests in flight) and `latency` (seconds), plain or among the named metrics,
//! and `cpu_utilization`. A report without `rif` is no probe. Whatever is malformed, negative,
//! not finite or longer than [`REPORT_BYTES_MAX`] is as if it were not there.

/// Longest report that is read.
const REPORT_BYTES_MAX: usize = 4096;

/// What a server said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Report {
    /// Requests in flight there.
    pub(crate) in_flight: f32,
    /// Its estimate of a request's latency, seconds; NaN if it gives none.
    pub(crate) latency: f32,
}

/// Reads a header value.
pub(crate) fn parse(value: &[u8]) -> Option<Report> {
    if value.len() > REPORT_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(value).ok()?.trim();
    if let Some(json) = text.strip_prefix("JSON") {
        return from_json(json.trim_start());
    }
    from_text(text.strip_prefix("TEXT").unwrap_or(text))
}

fn from_text(text: &str) -> Option<Report> {
    let find = |wanted: &str| {
        text.split(',').find_map(|pair| {
            let (name, value) = pair.split_once('=').or_else(|| pair.split_once(':'))?;
            let name = name.trim();
            let name = name.strip_prefix("named_metrics.").unwrap_or(name);
            (name == wanted)
                .then(|| value.trim().parse().ok())
                .flatten()
        })
    };
    report(find)
}

fn from_json(json: &str) -> Option<Report> {
    let object: serde_json::Value = serde_json::from_str(json).ok()?;
    report(|wanted| {
        let named = object.get("named_metrics").and_then(|it| it.get(wanted));
        named.or_else(|| object.get(wanted))?.as_f64()
    })
}

fn report(find: impl Fn(&str) -> Option<f64>) -> Option<Report> {
    let number = |name| {
        find(name)
            .filter(|value| value.is_finite() && *value >= 0.0)
            .map(|value| value as f32)
    };
    Some(Report {
        in_flight: number("rif")?,
        latency: number("latency").unwrap_or(f32::NAN),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let cases = [
            ("TEXT cpu_utilization=0.3, named_metrics.rif=12", 12.0, None),
            ("TEXT rif=3,latency=0.25", 3.0, Some(0.25)),
            ("rif=3", 3.0, None),
            (
                "JSON {\"named_metrics\": {\"rif\": 7, \"latency\": 0.5}}",
                7.0,
                Some(0.5),
            ),
            ("JSON {\"rif\": 1.5, \"cpu_utilization\": 0.5}", 1.5, None),
        ];
        for (value, in_flight, latency) in cases {
            let report = parse(value.as_bytes()).unwrap();
            assert_eq!(report.in_flight, in_flight, "{value}");
            match latency {
                Some(latency) => assert_eq!(report.latency, latency, "{value}"),
                None => assert!(report.latency.is_nan(), "{value}"),
            }
        }
    }

    #[test]
    fn hostile_reports_are_no_reports() {
        let deep = format!("JSON {}", "[".repeat(2000));
        let long = format!("TEXT rif=1,{}", "x".repeat(REPORT_BYTES_MAX));
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
            assert_eq!(parse(value.as_bytes()), None, "{value}");
        }
        assert_eq!(parse(b"TEXT rif=\xff"), None);
        let begin = "TEXT rif=1,";
        for (bytes, is_read) in [(REPORT_BYTES_MAX, true), (REPORT_BYTES_MAX + 1, false)] {
            let report = format!("{begin}{}", "x".repeat(bytes - begin.len()));
            assert_eq!(parse(report.as_bytes()).is_some(), is_read, "{bytes}");
        }
    }
}
