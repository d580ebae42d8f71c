//! What is printed: text for people, one object for programs.

use serde_json::{Value, json};

use super::correlate::View;
use super::evidence::{Aligned, Evidence, Resource};
use super::files::FileReport;
use super::resource::Unit;
use super::time::show;
use crate::simulate::table;

/// What is left out at the end of a table is counted.
const CLASS_WIDTH: usize = 60;

/// Everything that is told.
pub(super) struct Report<'a> {
    pub(super) logs: &'a [FileReport],
    pub(super) recordings: &'a [FileReport],
    pub(super) not_sent: u64,
    pub(super) left_out: u64,
    pub(super) evidence: &'a Evidence,
    /// For each resource.
    pub(super) views: &'a [View],
    /// Rows of a table.
    pub(super) top: usize,
}

impl Report<'_> {
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
        for (resource, view) in self.evidence.resources.iter().zip(self.views) {
            text += &self.resource(resource, view);
        }
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

    fn resource(&self, resource: &Resource, view: &View) -> String {
        let use_of = match resource.series.unit {
            Unit::Busy { capacity } => format!("mean use {:.3} of {capacity}", view.mean),
            Unit::Rate => format!("mean {:.1}", view.mean),
        };
        let mut text = format!(
            "\n{}: {} intervals of {} s, {use_of}\n",
            resource.name, view.intervals, view.interval_seconds
        );
        if let Some(aligned) = resource.alignment {
            text += &format!("  {}\n", clock(aligned));
        }
        if view.intervals < 3 {
            text += "  logs and resource share too little time: see --utc-offset\n";
            return text;
        }
        let names = ["class", "requests", "mean ms", "r", "p"];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        for found in view.correlations.iter().take(self.top) {
            let class = &self.evidence.classes[found.class];
            let mean = 1000.0 * class.seconds / class.requests.max(1) as f64;
            rows.push(vec![
                class.name.chars().take(CLASS_WIDTH).collect(),
                found.requests.to_string(),
                table::millis(mean),
                format!("{:.4}", found.r),
                format!("{:.4}", found.p),
            ]);
        }
        text += &table::numbers(&rows);
        let more = view.correlations.len().saturating_sub(self.top);
        if more > 0 {
            text += &format!("and {more} more classes: see --top\n");
        }
        text
    }

    /// For programs.
    pub(super) fn value(&self) -> Value {
        let classes = self.evidence.classes.iter().map(|class| {
            json!({ "name": class.name, "requests": class.requests, "seconds": class.seconds })
        });
        let resources = self.evidence.resources.iter().zip(self.views);
        let time = self.time();
        json!({
            "access_logs": self.logs,
            "recordings": self.recordings,
            "requests": self.evidence.requests.len(),
            "requests_not_sent": self.not_sent,
            "values_left_out": self.left_out,
            "from_unix_seconds": time.map(|(first, _)| first as f64 * 1e-9),
            "to_unix_seconds": time.map(|(_, last)| last as f64 * 1e-9),
            "classes": classes.collect::<Vec<_>>(),
            "resources": resources.map(|(it, view)| self.resource_value(it, view)).collect::<Vec<_>>(),
        })
    }

    fn resource_value(&self, resource: &Resource, view: &View) -> Value {
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
        let pearson = view.correlations.iter().map(|found| {
            json!({
                "class": self.evidence.classes[found.class].name,
                "requests": found.requests,
                "r": found.r,
                "p": found.p,
            })
        });
        json!({
            "name": resource.name,
            "capacity": capacity,
            "intervals": view.intervals,
            "interval_seconds": view.interval_seconds,
            "mean": view.mean,
            "clock": clock,
            "pearson": pearson.collect::<Vec<_>>(),
        })
    }

    /// First and last end of a request, nanoseconds of the Unix epoch.
    fn time(&self) -> Option<(i64, i64)> {
        let ends = || {
            self.evidence
                .requests
                .iter()
                .map(|lived| lived.ended.nanos() as i64)
        };
        Some((ends().min()?, ends().max()?))
    }
}

fn clock(aligned: Aligned) -> String {
    let Aligned {
        ahead_seconds: ahead,
        found,
    } = aligned;
    if !found.certain {
        return format!(
            "clocks are taken as they are: no shift stands out (best r {:.2})",
            found.r
        );
    }
    if ahead == 0.0 {
        return format!("clocks agree (r {:.2})", found.r);
    }
    let (way, by) = if ahead > 0.0 {
        ("ahead of", ahead)
    } else {
        ("behind", -ahead)
    };
    format!(
        "its clock was {by} s {way} the logs' and was set by them (r {:.2} instead of {:.2})",
        found.r, found.r_unshifted
    )
}
