//! A report as a busy shop would have it, made by a formula: a minute of eighteen classes, a
//! database with four cores and its disk.
//!
//! ```text
//! activity(class, t) = max(0, 1 + x(t)) · burst(t)      x: noise with a memory of a second
//! part(class, t)     = rate · cost · activity           cores
//! used(t)            = min(capacity, Σ part + 0.25 + noise)
//! durations          = typical · slow(t) · exp(0.6 · noise)
//! ```
//!
//! `GET /search` has twice as many requests from second 30 to 42, and is slower then, as are those that
//! share the database with it. `POST /cart` and `GET /cart/summary` always come together.

use serde_json::{Value, json};
use tidegate_core::stats;

const SECONDS: usize = 60;
/// Steps of the resources' series in a second, and rows of the heat map.
const STEPS: usize = 10;
const ROWS: usize = 2;
const CAPACITY: f64 = 4.0;
const EDGES_MS: [f64; 12] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0,
];
/// Seconds of the burst.
const BURST: std::ops::Range<f64> = 30.0..42.0;
/// The class of the burst, and the two that always come together.
const SEARCH: usize = 0;
const TWINS: [usize; 2] = [2, 3];
/// The class that loads the disk.
const EXPORT: usize = 4;

/// Name, requests per second, typical duration, time of the database per request (ms), verdict.
type Class = (&'static str, f64, f64, f64, Option<&'static str>);

const CLASSES: [Class; 18] = [
    ("GET /search?q", 24.0, 180.0, 62.0, Some("strong")),
    ("GET /report/{n}", 1.5, 900.0, 410.0, Some("likely")),
    ("POST /cart", 12.0, 60.0, 18.0, Some("ambiguous")),
    ("GET /cart/summary", 12.0, 64.0, 18.0, Some("ambiguous")),
    (
        "GET /export/*.csv",
        0.4,
        2500.0,
        700.0,
        Some("from occupancy"),
    ),
    ("GET /", 140.0, 8.0, 0.3, None),
    ("GET /item/{n}", 210.0, 12.0, 0.8, None),
    ("GET /static/css/*.css", 320.0, 2.0, 0.0, None),
    ("GET /static/img/*.png", 410.0, 3.0, 0.0, None),
    ("POST /login", 6.0, 90.0, 1.2, None),
    ("GET /user/{n}", 40.0, 15.0, 0.9, None),
    ("GET /user/{n}/bids", 22.0, 24.0, 1.6, None),
    ("POST /bid/{n}", 18.0, 30.0, 2.1, None),
    ("GET /category/{n}", 65.0, 20.0, 1.4, None),
    ("GET /help/{tok}", 5.0, 6.0, 0.1, None),
    ("GET /feed.xml", 9.0, 40.0, 2.5, None),
    ("GET /api/v1/price/{uuid}", 95.0, 9.0, 0.4, None),
    ("HEAD /", 3.0, 2.0, 0.0, None),
];

/// What differs from report to report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    /// End of the minute, Unix seconds.
    pub(super) to: f64,
    /// Since when `GET /search` is throttled: it then comes to a third, and no request is slow.
    pub(super) throttled_since: Option<f64>,
}

/// The scene at which everything begins.
pub(super) const SCENE: Scene = Scene {
    to: 1_770_000_060.0,
    throttled_since: None,
};

/// Numbers that look random and are the same in each run.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = (self.0 * 1_103_515_245 + 12_345) % (1 << 31);
        self.0 as f64 / (1u64 << 31) as f64
    }

    /// About normal, with mean 0 and deviation 1.
    fn normal(&mut self) -> f64 {
        let sum: f64 = (0..6).map(|_| self.uniform()).sum();
        (sum - 3.0) * 2f64.sqrt()
    }
}

/// The report, as the front-end would answer it.
pub(super) fn report(scene: Scene) -> Value {
    let mut noise = Noise(7);
    let activity = activity(scene, &mut noise);
    let part = |class: usize| -> Vec<f64> {
        let (_, rate, _, cost, _) = CLASSES[class];
        (activity[class].iter().map(|it| it * rate * cost / 1e3)).collect()
    };
    let all: Vec<_> = (0..CLASSES.len()).map(part).collect();
    let database: Vec<f64> = (0..SECONDS * STEPS)
        .map(|step| {
            let sum: f64 = all.iter().map(|part| part[step]).sum();
            (sum + 0.25 + 0.05 * noise.normal()).min(CAPACITY)
        })
        .collect();
    let disk: Vec<f64> = (activity[EXPORT].iter())
        .map(|it| (0.35 + 0.1 * noise.normal() + 0.15 * it).clamp(0.0, 1.0))
        .collect();
    let classes: Vec<_> = (0..CLASSES.len())
        .map(|class| request_class(scene, class, &activity[class], &database, &disk, &mut noise))
        .collect();
    let requests: f64 = CLASSES.iter().map(|it| it.1 * SECONDS as f64).sum();
    json!({
        "mode": "live", "from": scene.to - SECONDS as f64, "to": scene.to, "requests": requests.round(),
        "notes": [
            "Read every 100 ms: counters of one front-end and of two resources.",
            "The clock of db1 is 40 ms ahead; this is corrected.",
        ],
        "resources": [
            resource(scene, "db cpu", "cores", CAPACITY, &database, &all[..=EXPORT]),
            resource(scene, "disk", "busy", 1.0, &disk, &[]),
        ],
        "classes": classes,
        "heatmap": heatmap(scene, &activity, &mut noise),
    })
}

fn calm(scene: Scene, second: f64) -> bool {
    let time = scene.to - SECONDS as f64 + second;
    scene.throttled_since.is_some_and(|since| time >= since)
}

fn activity(scene: Scene, noise: &mut Noise) -> Vec<Vec<f64>> {
    let mut all = Vec::new();
    for class in 0..CLASSES.len() {
        let mut x = 0.0;
        let mut series = Vec::new();
        for step in 0..SECONDS * STEPS {
            let second = step as f64 / STEPS as f64;
            x = x * 0.9 + 0.18 * noise.normal();
            let factor = match class {
                SEARCH if calm(scene, second) => 0.3,
                SEARCH if BURST.contains(&second) => 2.2,
                1 if second % 15.0 < 4.0 => 2.4,
                1 => 0.4,
                _ => 1.0,
            };
            series.push(f64::max(0.0, 1.0 + x) * factor);
        }
        all.push(series);
    }
    let first = all[TWINS[0]].clone();
    all[TWINS[1]] = first
        .iter()
        .map(|it| f64::max(0.0, it + 0.05 * noise.normal()))
        .collect();
    all
}

fn rounded(values: &[f64]) -> Vec<f64> {
    values.iter().map(|it| (it * 1e3).round() / 1e3).collect()
}

fn mean(values: &[f64]) -> f64 {
    stats::mean(values.iter().copied()).unwrap_or(f64::NAN)
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut both, mut of_a, mut of_b) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        both += (x - mean_a) * (y - mean_b);
        of_a += (x - mean_a).powi(2);
        of_b += (y - mean_b).powi(2);
    }
    both / (of_a * of_b).sqrt()
}

fn resource(
    scene: Scene,
    name: &str,
    unit: &str,
    capacity: f64,
    used: &[f64],
    parts: &[Vec<f64>],
) -> Value {
    let full = used.iter().filter(|it| **it > 0.95 * capacity).count();
    let parts = parts.iter().zip(CLASSES);
    let parts: Vec<_> = parts
        .map(|(part, class)| json!({ "class": class.0, "used": rounded(part) }))
        .collect();
    json!({
        "name": name, "node": "db1", "capacity": capacity, "unit": unit,
        "step_seconds": 1.0 / STEPS as f64, "t0": scene.to - SECONDS as f64,
        "used": rounded(used), "parts": parts,
        "verdict_seconds": 30.0, "saturated_share": full as f64 / used.len() as f64,
        "evaluated_at": scene.to,
    })
}

fn request_class(
    scene: Scene,
    class: usize,
    activity: &[f64],
    database: &[f64],
    disk: &[f64],
    noise: &mut Noise,
) -> Value {
    let (name, rate, typical, cost, verdict) = CLASSES[class];
    let throttle = (scene.throttled_since)
        .filter(|_| class == SEARCH)
        .map(|since| {
            json!({
                "class": name, "limits": "concurrency 2", "by": "operator", "since": since, "until": since + 600.0,
                "held": 211, "held_ms": 48_000.0, "in_flight": 2, "waiting": 5,
            })
        });
    let on_disk = if class == EXPORT { 300.0 } else { 0.0 };
    let disk_verdict = (class == EXPORT).then_some("likely");
    json!({
        "name": name, "pattern": name,
        "requests": (rate * SECONDS as f64).round(), "per_second": rate,
        "in_progress": rate * typical / 1e3,
        "p50_ms": typical * 0.8, "p90_ms": typical * 1.9, "p99_ms": typical * 4.1, "max_ms": typical * 7.3,
        "throttle": throttle,
        "pairs": [
            pair(scene, class, ("db cpu", CAPACITY, cost, verdict), activity, database, noise),
            pair(scene, class, ("disk", 1.0, on_disk, disk_verdict), activity, disk, noise),
        ],
    })
}

fn pair(
    scene: Scene,
    class: usize,
    (resource, capacity, cost, verdict): (&str, f64, f64, Option<&str>),
    activity: &[f64],
    used: &[f64],
    noise: &mut Noise,
) -> Value {
    let (_, rate, typical, _, _) = CLASSES[class];
    let (accused, rank) = (verdict.is_some(), class as f64);
    let twin = TWINS.iter().position(|it| *it == class);
    let twin = twin.filter(|_| verdict == Some("ambiguous"));
    let shifts: Vec<f64> = (-60..=60).map(|it| f64::from(it) * 100.0).collect();
    let height = if accused { 0.72 - 0.08 * rank } else { 0.06 };
    let curve: Vec<f64> = (shifts.iter())
        .map(|shift| {
            let spike = height * (-(shift / 350.0).powi(2)).exp();
            spike + 0.07 * (shift / 700.0 + rank).sin() + 0.03 * noise.normal()
        })
        .collect();
    let scatter: Vec<_> = (activity.iter().zip(used).step_by(2))
        .map(|(activity, used)| rounded(&[activity * rate * typical / 1e3, *used]))
        .collect();
    json!({
        "resource": resource, "share": mean(activity) * rate * cost / 1e3 / capacity,
        "cost_ms": (cost > 0.0).then_some(cost),
        "cost_error": (cost > 0.0).then_some(if accused { 2.0 / (14.2 - rank) } else { 0.6 }),
        "lift": cost / 2.6, "t": if accused { 14.2 - rank } else { 0.6 },
        "z": if accused { 11.1 - rank } else { 1.1 }, "rm": if accused { 3.1 - 0.3 * rank } else { 0.7 },
        "p": if accused { 1e-9 } else { 0.42 }, "p_adjusted": if accused { 4e-8 } else { 0.9 },
        "pearson_r": correlation(activity, used), "pearson_p": if accused { 1e-7 } else { noise.uniform() },
        "confidence": verdict,
        "ambiguous_with": twin.map_or(vec![], |it| vec![CLASSES[TWINS[1 - it]].0]),
        "named_at": accused.then_some(scene.to - 25.0),
        "shift_ms": shifts, "shift_r": rounded(&curve), "scatter": scatter,
    })
}

fn heatmap(scene: Scene, activity: &[Vec<f64>], noise: &mut Noise) -> Value {
    let cells: Vec<_> = (CLASSES.iter().zip(activity))
        .enumerate()
        .map(|(class, ((name, rate, typical, cost, _), activity))| {
            let rows = activity.chunks(STEPS / ROWS).enumerate();
            let counts: Vec<_> = rows
                .map(|(row, activity)| {
                    let second = row as f64 / ROWS as f64;
                    let slow = match *cost > 0.0 && BURST.contains(&second) && !calm(scene, second)
                    {
                        true if class == SEARCH => 2.6,
                        true => 1.7,
                        false => 1.0,
                    };
                    let requests = rate / ROWS as f64 * mean(activity) + noise.uniform() - 0.5;
                    counts(requests.round().max(0.0) as usize, typical * slow, noise)
                })
                .collect();
            json!({ "class": name, "counts": counts })
        })
        .collect();
    json!({
        "t0": scene.to - SECONDS as f64, "step_seconds": 1.0 / ROWS as f64,
        "edges_ms": EDGES_MS, "cells": cells,
    })
}

fn counts(requests: usize, typical: f64, noise: &mut Noise) -> Vec<u32> {
    let mut counts = vec![0; EDGES_MS.len() + 1];
    for _ in 0..requests {
        let duration = typical * (0.6 * noise.normal()).exp();
        counts[EDGES_MS.partition_point(|edge| *edge <= duration)] += 1;
    }
    counts
}
