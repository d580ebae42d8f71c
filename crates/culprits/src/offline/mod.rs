//! Verdicts and picture of files: each resource is given to the discovery, the whole recording judged.
//!
//! What discovery names at one time may be one event; `tidegate_core::culprits::WholeRecording` says what of it
//! lasts. Where readings are far apart nothing rests on lives alone: of a full resource such readings
//! tell nothing (measured: half of those that were named then were innocent).

use std::collections::BTreeMap;

use tidegate_core::classes::ClassId;
use tidegate_core::culprits::{UTILIZATION_MIN, Verdicts, WholeRecording};
use tidegate_core::time::Timestamp;

use super::evidence::{Aligned, Evidence, Resource};
use super::picture::report::{Mode, RESOURCES_MAX, Report};
use super::picture::{ClassMaterial, Material, ResourceMaterial, report};
use super::replay::{LENGTH_MAX, Replay, RequestsInOrder};
use super::resource::Unit;
use super::time::SECOND;

/// Up to this scale lives alone are believed: readings at most 200 ms apart.
const OCCUPANCY_SCALE_MAX: f64 = 2.0;
/// A part of the time in which a resource is full that people should know of.
const FULL: f64 = 0.1;

/// What is said of one resource.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) verdicts: Verdicts,
    /// How much longer its times and costs are.
    scale: f64,
    /// When accused classes were first named, and the last evaluation; Unix nanoseconds.
    named_at: BTreeMap<ClassId, i64>,
    evaluated_at: i64,
    /// How often accused classes were flagged, of so many evaluations.
    flagged: BTreeMap<ClassId, u32>,
    evaluations: u32,
}

/// What is said of each resource, for which anything can be said; adjusted together.
pub(super) fn judge(evidence: &Evidence) -> Vec<Option<Judged>> {
    let order = RequestsInOrder::of(&evidence.requests);
    let mut judged: Vec<Option<Judged>> = Vec::new();
    for resource in &evidence.resources {
        judged.push(Replay::new(&order, &resource.series).map(judge_one));
    }
    let verdicts = judged.iter().flatten().map(|it| it.verdicts.clone());
    let mut together: Vec<Verdicts> = verdicts.collect();
    Verdicts::adjust_together(&mut together);
    for (judged, adjusted) in judged.iter_mut().flatten().zip(together) {
        judged.verdicts = adjusted;
    }
    judged
}

fn judge_one(mut replay: Replay<'_>) -> Judged {
    let scale = replay.scale();
    let mut whole = WholeRecording::new(replay.length(), scale <= OCCUPANCY_SCALE_MAX);
    let mut evaluations = 0;
    for verdicts in &mut replay {
        whole.add(&verdicts);
        evaluations += 1;
    }
    let (verdicts, flagged) = whole.finish();
    let at = |since: Timestamp| replay.at(since);
    Judged {
        scale,
        named_at: flagged
            .iter()
            .map(|(class, it)| (*class, at(it.since)))
            .collect(),
        evaluated_at: at(verdicts.at),
        flagged: flagged
            .iter()
            .map(|(class, it)| (*class, it.evaluations))
            .collect(),
        evaluations,
        verdicts,
    }
}

/// The picture of it all.
pub(super) fn picture(evidence: &Evidence, judged: &[Option<Judged>]) -> Report {
    let (from, to) = shown(evidence);
    let mut notes = notes(evidence, judged, (from, to));
    let mut order: Vec<usize> = (0..evidence.resources.len()).collect();
    order.sort_by(|one, other| {
        weight(evidence, judged, *other).total_cmp(&weight(evidence, judged, *one))
    });
    if let Some(more) = order
        .len()
        .checked_sub(RESOURCES_MAX)
        .filter(|more| *more > 0)
    {
        notes.push(format!(
            "{more} more resources are not shown: these are the ones that were used most."
        ));
    }
    let resources = order.iter().map(|place| {
        let judged = judged.get(*place).and_then(Option::as_ref);
        material(&evidence.resources[*place], judged)
    });
    let class = |class: &super::evidence::Class| ClassMaterial {
        name: class.name.clone(),
        pattern: class.pattern.clone(),
        throttle: None,
    };
    report(&Material {
        mode: Mode::Offline,
        from,
        to,
        notes,
        classes: evidence.classes.iter().map(class).collect(),
        requests: &evidence.requests,
        unfinished: &[],
        resources: resources.collect(),
    })
}

fn material<'a>(resource: &'a Resource, judged: Option<&'a Judged>) -> ResourceMaterial<'a> {
    let node = resource
        .name
        .split_once(' ')
        .map(|(node, _)| node.to_owned());
    let evaluated = judged.filter(|it| it.evaluations > 0);
    ResourceMaterial {
        name: resource.name.clone(),
        node,
        unit: resource.series.unit,
        spans: &resource.series.spans,
        verdicts: judged.map(|it| &it.verdicts),
        basis: None,
        evaluated_at: evaluated.map(|it| it.evaluated_at),
        time_scale: judged.map_or(1.0, |it| it.scale),
        named_at: judged.map(|it| it.named_at.clone()).unwrap_or_default(),
    }
}

/// Where requests and recordings overlap; all requests where they do not.
fn shown(evidence: &Evidence) -> (i64, i64) {
    let nanos = |at: Timestamp| i64::try_from(at.nanos()).unwrap_or(i64::MAX);
    let requests = &evidence.requests;
    let first = requests.iter().map(|it| nanos(it.sent)).min().unwrap_or(0);
    let last = requests.iter().map(|it| nanos(it.ended)).max().unwrap_or(0);
    let series = || evidence.resources.iter().map(|it| &it.series.spans);
    let from = series().filter_map(|it| Some(it.first()?.from)).min();
    let to = series().filter_map(|it| Some(it.last()?.to)).max();
    let from = first.max(from.unwrap_or(first));
    let to = last.min(to.unwrap_or(last));
    if from < to {
        (from, to)
    } else {
        (first, last.max(first + 1))
    }
}

/// What comes first: resources with accused classes, then those that are used most, then rates.
fn weight(evidence: &Evidence, judged: &[Option<Judged>], place: usize) -> f64 {
    let resource = &evidence.resources[place];
    let judged = judged.get(place).and_then(Option::as_ref);
    let accused = judged.is_some_and(|it| !it.flagged.is_empty());
    match resource.series.unit {
        Unit::Rate => -1.0,
        Unit::Busy { capacity } => {
            let used = resource.series.mean() / capacity;
            if accused { 1.0 + used } else { used }
        }
    }
}

/// What people should know before they believe it.
fn notes(evidence: &Evidence, judged: &[Option<Judged>], (from, to): (i64, i64)) -> Vec<String> {
    let mut notes = Vec::new();
    let within = |ended: i64| (from..=to).contains(&ended);
    let outside = evidence.requests.iter();
    let outside = outside
        .filter(|it| !within(it.ended.nanos() as i64))
        .count();
    if outside > 0 {
        notes.push(format!(
            "{outside} requests ended outside of the recordings of resources and are not shown."
        ));
    }
    let mut hosts: Vec<&str> = Vec::new();
    for resource in &evidence.resources {
        let host = resource.name.split(' ').next().unwrap_or_default();
        if let Some(aligned) = resource.alignment.filter(|_| !hosts.contains(&host)) {
            hosts.push(host);
            notes.push(format!("{host}: {}.", clock(aligned)));
        }
    }
    for host in &evidence.unknown_cpus {
        notes.push(format!(
            "{host}: how many CPUs there are is not told, so all of them count as one, and costs are as many times too low; --cpus N says it."
        ));
    }
    for (resource, judged) in evidence.resources.iter().zip(judged) {
        notes.extend(doubt(resource, judged.as_ref()));
    }
    notes
}

/// What is doubtful about what is said of a resource.
fn doubt(resource: &Resource, judged: Option<&Judged>) -> Vec<String> {
    let Unit::Busy { .. } = resource.series.unit else {
        return Vec::new();
    };
    let name = &resource.name;
    let length = resource.series.usual_length();
    let apart = length as f64 / SECOND as f64;
    let Some(judged) = judged else {
        return match length > LENGTH_MAX {
            true => vec![format!(
                "{name}: no verdicts from readings that are {apart} s apart; 1 s does."
            )],
            false => Vec::new(),
        };
    };
    let verdicts = &judged.verdicts;
    let window = judged.scale * 30.0;
    let mut doubts = Vec::new();
    if verdicts.classes.is_empty() {
        doubts.push(format!(
            "{name}: too little time for verdicts; {:.0} s are the least, {:.0} s are good.",
            judged.scale * 7.5,
            2.0 * window
        ));
    } else if verdicts.utilization < UTILIZATION_MIN && judged.flagged.is_empty() {
        let used = 100.0 * verdicts.utilization;
        doubts.push(format!(
            "{name}: {used:.1} % used; nobody is looked for below {:.0} %.",
            100.0 * UTILIZATION_MIN
        ));
    }
    if verdicts.full > FULL && judged.scale > OCCUPANCY_SCALE_MAX {
        doubts.push(format!(
            "{name} was full for {:.0} % of the time, and readings {apart} s apart do not tell who fills it then.",
            100.0 * verdicts.full
        ));
    }
    if judged.flagged.len() < verdicts.classes.len() && !judged.flagged.is_empty() {
        let times: Vec<_> = judged.flagged.values().map(u32::to_string).collect();
        doubts.push(format!(
            "{name}: the classes named here were flagged by {} of {} evaluations, each of {window:.0} s; a class that is flagged for less than {window:.0} s is not named.",
            times.join(", "),
            judged.evaluations
        ));
    }
    doubts
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

#[cfg(test)]
mod tests;
