//! Writes metrics as OpenMetrics text (version 1.0.0): what Prometheus and its kin scrape.

/// What a family counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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
    fn label(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
            Self::Histogram => "histogram",
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
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// A text under construction.
#[derive(Debug, Default)]
pub(super) struct Text {
    out: String,
}

/// One family of it.
#[derive(Debug)]
pub(super) struct Family<'t> {
    out: &'t mut String,
    name: &'static str,
    kind: Kind,
}

impl Text {
    /// Begins a family. All of its samples come before the next family.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let out = &mut self.out;
        out.push_str(&format!("# TYPE {name} {}\n", kind.label()));
        for unit in ["seconds", "bytes", "ratio"] {
            if name.ends_with(&format!("_{unit}")) {
                out.push_str(&format!("# UNIT {name} {unit}\n"));
            }
        }
        out.push_str(&format!("# HELP {name} {}\n", escape(help)));
        Family { out, name, kind }
    }

    /// The finished text.
    pub(super) fn finish(mut self) -> String {
        self.out.push_str("# EOF\n");
        self.out
    }
}

impl Family<'_> {
    /// Adds a sample. A number that is not known is left out, never zero.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: f64) {
        if !value.is_nan() {
            self.line(self.kind.suffix(), labels, None, value);
        }
    }

    /// Adds a whole number.
    pub(super) fn count(&mut self, labels: Labels<'_>, value: u64) {
        self.sample(labels, value as f64);
    }

    /// Adds a histogram: counts below each of the bounds, of all, and the sum.
    pub(super) fn histogram(
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
        let pairs: Vec<_> = labels
            .iter()
            .copied()
            .chain(last)
            .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
            .collect();
        if !pairs.is_empty() {
            self.out.push_str(&format!("{{{}}}", pairs.join(",")));
        }
        self.out.push_str(&format!(" {}\n", number(value)));
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
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

    #[test]
    fn a_text_is_as_the_standard_wants_it() {
        let mut text = Text::default();
        let mut family = text.family("a_requests", Kind::Counter, "Requests \"so far\".");
        family.count(&[("site", "a\"b\\c\nd")], 3);
        family.count(&[], 4);
        let mut family = text.family("a_age_seconds", Kind::Histogram, "Ages.");
        family.histogram(&[("site", "s")], [(0.5, 1), (1.0, 2)].into_iter(), 3, 4.5);
        let mut family = text.family("a_load", Kind::Gauge, "Load.");
        family.sample(&[], f64::NAN);
        family.sample(&[], 0.25);
        let expected = r#"# TYPE a_requests counter
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
        assert_eq!(text.finish(), expected);
    }
}
