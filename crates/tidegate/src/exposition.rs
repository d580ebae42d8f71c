//! Writes metrics as text, in one of the two forms that scrapers read, and chooses the form that a
//! scraper asks for:
//!
//! | | OpenMetrics 1.0.0 | Prometheus 0.0.4 |
//! |---|---|---|
//! | name of a counter's or info's family | without suffix | with `_total`, `_info` |
//! | info | a type | a gauge |
//! | unit | a line | in the name only |
//! | escapes in a help text | `\\`, `\n`, `\"` | `\\`, `\n` |
//! | end | `# EOF` | nothing |

/// A form of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// `text/plain; version=0.0.4`, which everything reads.
    #[default]
    Prometheus,
    /// `application/openmetrics-text; version=1.0.0`.
    OpenMetrics,
}

impl Format {
    /// The form that a request's `Accept` asks for (RFC 9110 §12.5.1): OpenMetrics only where it is named
    /// and not less wanted than the other.
    pub(crate) fn wanted(accept: Option<&str>) -> Self {
        let weight = |kind: &str, version: &str| {
            let ranges = accept.unwrap_or_default().split(',');
            let weights = ranges.filter_map(|range| weight_of(range, kind, version));
            weights.fold(0.0, f32::max)
        };
        let open = weight("application/openmetrics-text", "1.0.0");
        let plain = weight("text/plain", "0.0.4");
        match open > 0.0 && open >= plain {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    /// The answer's `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// How much a media range wants this type and version; none if it is another one.
fn weight_of(range: &str, kind: &str, version: &str) -> Option<f32> {
    let mut parts = range.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case(kind) {
        return None;
    }
    let mut weight = 1.0;
    for parameter in parts {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches('"');
        match name.trim().to_ascii_lowercase().as_str() {
            "version" if value != version => return None,
            "q" => weight = value.parse().ok()?,
            _ => {}
        }
    }
    Some(weight)
}

/// What a family counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows; samples end in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Constant facts in labels; samples end in `_info`.
    Info,
    /// Cumulative buckets, count and sum.
    Histogram,
}

impl Kind {
    fn label(self, format: Format) -> &'static str {
        match (self, format) {
            (Self::Counter, _) => "counter",
            (Self::Info, Format::OpenMetrics) => "info",
            (Self::Gauge, _) | (Self::Info, Format::Prometheus) => "gauge",
            (Self::Histogram, _) => "histogram",
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// Labels of one sample.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// A text under construction.
#[derive(Debug)]
pub(crate) struct Text {
    out: String,
    format: Format,
}

/// One family of it.
#[derive(Debug)]
pub(crate) struct Family<'t> {
    out: &'t mut String,
    name: &'t str,
    kind: Kind,
}

impl Text {
    /// An empty text.
    pub(crate) fn new(format: Format) -> Self {
        Self {
            out: String::new(),
            format,
        }
    }

    /// Begins a family. All of its samples come before the next family.
    pub(crate) fn family<'t>(&'t mut self, name: &'t str, kind: Kind, help: &str) -> Family<'t> {
        let (out, format) = (&mut self.out, self.format);
        let mut help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let suffix = match format {
            Format::Prometheus => kind.suffix(),
            Format::OpenMetrics => {
                help = help.replace('"', "\\\"");
                ""
            }
        };
        out.push_str(&format!("# TYPE {name}{suffix} {}\n", kind.label(format)));
        if format == Format::OpenMetrics {
            for unit in ["seconds", "bytes", "ratio"] {
                if name.ends_with(&format!("_{unit}")) {
                    out.push_str(&format!("# UNIT {name} {unit}\n"));
                }
            }
        }
        out.push_str(&format!("# HELP {name}{suffix} {help}\n"));
        Family { out, name, kind }
    }

    /// The finished text.
    pub(crate) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

impl Family<'_> {
    /// Adds a sample. A number that is not known is left out, never zero.
    pub(crate) fn sample(&mut self, labels: Labels<'_>, value: f64) {
        if !value.is_nan() {
            self.line(self.kind.suffix(), labels, None, value);
        }
    }

    /// Adds a whole number.
    pub(crate) fn count(&mut self, labels: Labels<'_>, value: u64) {
        self.sample(labels, value as f64);
    }

    /// Adds a histogram: counts below each of the bounds, of all, and the sum.
    pub(crate) fn histogram(
        &mut self,
        labels: Labels<'_>,
        below: impl Iterator<Item = (f64, u64)>,
        count: u64,
        sum: f64,
    ) {
        for (bound, below) in below {
            // The standard wants a point or an exponent in bounds: 1.0, not 1.
            let bound = format!("{bound:?}");
            self.line("_bucket", labels, Some(("le", &bound)), below as f64);
        }
        self.line("_bucket", labels, Some(("le", "+Inf")), count as f64);
        self.line("_count", labels, None, count as f64);
        self.line("_sum", labels, None, sum);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, last: Option<(&str, &str)>, value: f64) {
        self.out.push_str(self.name);
        self.out.push_str(suffix);
        let mut before = '{';
        for (name, value) in labels.iter().copied().chain(last) {
            self.out.push(before);
            self.out.push_str(name);
            self.out.push_str("=\"");
            escape(value, self.out);
            self.out.push('"');
            before = ',';
        }
        if before == ',' {
            self.out.push('}');
        }
        self.out.push(' ');
        self.out.push_str(&number(value));
        self.out.push('\n');
    }
}

/// Adds a value as it stands between quotes.
fn escape(text: &str, out: &mut String) {
    let is_special = |it: char| matches!(it, '\\' | '"' | '\n');
    for part in text.split_inclusive(is_special) {
        let plain = part.trim_end_matches(is_special);
        out.push_str(plain);
        out.push_str(match &part[plain.len()..] {
            "\\" => "\\\\",
            "\"" => "\\\"",
            "\n" => "\\n",
            _ => "",
        });
    }
}

fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(format: Format) -> String {
        let mut text = Text::new(format);
        text.family("a_build", Kind::Info, "Version.")
            .sample(&[("version", "1")], 1.0);
        let mut family = text.family("a_requests", Kind::Counter, "Requests \"so far\".");
        family.count(&[("site", "a\"b\\c\nd")], 3);
        family.count(&[], 4);
        let mut family = text.family("a_age_seconds", Kind::Histogram, "Ages.");
        family.histogram(&[("site", "s")], [(0.5, 1), (1.0, 2)].into_iter(), 3, 4.5);
        let mut family = text.family("a_load", Kind::Gauge, "Load.");
        family.sample(&[], f64::NAN);
        family.sample(&[], 0.25);
        text.finish()
    }

    #[test]
    fn an_openmetrics_text_is_as_the_standard_wants_it() {
        let expected = r#"# TYPE a_build info
# HELP a_build Version.
a_build_info{version="1"} 1
# TYPE a_requests counter
# HELP a_requests Requests \"so far\".
a_requests_total{site="a\"b\\c\nd"} 3
a_requests_total 4
# TYPE a_age_seconds histogram
# UNIT a_age_seconds seconds
# HELP a_age_seconds Ages.
a_age_seconds_bucket{site="s",le="0.5"} 1
a_age_seconds_bucket{site="s",le="1.0"} 2
a_age_seconds_bucket{site="s",le="+Inf"} 3
a_age_seconds_count{site="s"} 3
a_age_seconds_sum{site="s"} 4.5
# TYPE a_load gauge
# HELP a_load Load.
a_load 0.25
# EOF
"#;
        assert_eq!(sample(Format::OpenMetrics), expected);
    }

    #[test]
    fn a_prometheus_text_names_what_its_samples_are_called() {
        let expected = r#"# TYPE a_build_info gauge
# HELP a_build_info Version.
a_build_info{version="1"} 1
# TYPE a_requests_total counter
# HELP a_requests_total Requests "so far".
a_requests_total{site="a\"b\\c\nd"} 3
a_requests_total 4
# TYPE a_age_seconds histogram
# HELP a_age_seconds Ages.
a_age_seconds_bucket{site="s",le="0.5"} 1
a_age_seconds_bucket{site="s",le="1.0"} 2
a_age_seconds_bucket{site="s",le="+Inf"} 3
a_age_seconds_count{site="s"} 3
a_age_seconds_sum{site="s"} 4.5
# TYPE a_load gauge
# HELP a_load Load.
a_load 0.25
"#;
        assert_eq!(sample(Format::Prometheus), expected);
    }

    #[test]
    fn openmetrics_is_for_those_that_ask_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            (None, Format::Prometheus),
            (Some(""), Format::Prometheus),
            (Some("*/*"), Format::Prometheus),
            (Some("text/html, */*;q=0.8"), Format::Prometheus),
            (Some("text/plain"), Format::Prometheus),
            (Some(prometheus), Format::OpenMetrics),
            (Some("Application/OpenMetrics-Text"), Format::OpenMetrics),
            (
                Some("application/openmetrics-text; version=\"1.0.0\"; q=1"),
                Format::OpenMetrics,
            ),
            (
                Some("application/openmetrics-text; version=0.0.1"),
                Format::Prometheus,
            ),
            (
                Some("application/openmetrics-text;q=0.1, text/plain;q=0.9"),
                Format::Prometheus,
            ),
            (Some("application/openmetrics-text;q=0"), Format::Prometheus),
            (
                Some("application/openmetrics-text;q=x;;=,;"),
                Format::Prometheus,
            ),
        ] {
            assert_eq!(Format::wanted(accept), format, "{accept:?}");
        }
    }
}
