//! What was read, as it is printed beside the picture: text for people, an object for programs.

use serde::Serialize;
use serde_json::{Value, json};

use super::evidence::{Evidence, Resource};
use super::files::FileReport;
use super::picture::report::Report;
use super::resource::Unit;
use super::time::show;

/// What `--json` prints: the picture, and what it was made from.
#[derive(Debug, Serialize)]
pub struct Printed<'a> {
    #[serde(flatten)]
    pub(super) report: &'a Report,
    pub(super) inputs: &'a Value,
}

/// What was read.
pub(super) struct Inputs<'a> {
    pub(super) logs: &'a [FileReport],
    pub(super) recordings: &'a [FileReport],
    pub(super) not_sent: u64,
    pub(super) left_out: u64,
    pub(super) evidence: &'a Evidence,
}

impl Inputs<'_> {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = String::from("access logs\n");
        text.extend(self.logs.iter().map(FileReport::text));
        text += &self.requests();
        text += "\nresources\n";
        text.extend(self.recordings.iter().map(FileReport::text));
        if self.left_out > 0 {
            text += &format!(
                "  {} values found no room: too many series\n",
                self.left_out
            );
        }
        text.push('\n');
        text
    }

    fn requests(&self) -> String {
        let classes = &self.evidence.classes;
        let seconds: f64 = classes.iter().map(|class| class.seconds).sum();
        let count = self.evidence.requests.len();
        let named = classes.len() - 1;
        let mut text = format!("  {count} requests in {named} classes");
        if let Some((first, last)) = self.time() {
            text += &format!(", {} to {} UTC", show(first), show(last));
        }
        text += &format!(", {seconds:.1} s at servers\n");
        if classes[0].requests > 0 {
            let other = classes[0].requests;
            text += &format!("  {other} requests in classes that are too light for a name\n");
        }
        if self.not_sent > 0 {
            text += &format!("  {} more requests got to no server\n", self.not_sent);
        }
        text
    }

    /// For programs.
    pub(super) fn value(&self) -> Value {
        let classes = self.evidence.classes.iter().map(|class| {
            json!({ "name": class.name, "requests": class.requests, "seconds": class.seconds })
        });
        let resources = self.evidence.resources.iter().map(resource);
        json!({
            "access_logs": self.logs,
            "recordings": self.recordings,
            "requests": self.evidence.requests.len(),
            "requests_not_sent": self.not_sent,
            "values_left_out": self.left_out,
            "classes": classes.collect::<Vec<_>>(),
            "resources": resources.collect::<Vec<_>>(),
        })
    }

    /// First and last end of a request, nanoseconds of the Unix epoch.
    fn time(&self) -> Option<(i64, i64)> {
        let requests = self.evidence.requests.iter();
        let ends = requests.map(|lived| lived.ended.nanos() as i64);
        Some((ends.clone().min()?, ends.max()?))
    }
}

fn resource(resource: &Resource) -> Value {
    let capacity = match resource.series.unit {
        Unit::Busy { capacity } => Some(capacity),
        Unit::Rate => None,
    };
    let clock = resource.alignment.map(|aligned| {
        json!({
            "ahead_seconds": aligned.ahead_seconds,
            "certain": aligned.found.certain,
            "r": aligned.found.r,
            "r_unshifted": aligned.found.r_unshifted,
        })
    });
    json!({
        "name": resource.name,
        "capacity": capacity,
        "intervals": resource.series.spans.len(),
        "interval_seconds": resource.series.usual_length() as f64 * 1e-9,
        "clock": clock,
    })
}
