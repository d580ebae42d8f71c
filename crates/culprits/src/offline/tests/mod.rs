//! Simulated sites, as an Apache log and as what sysstat wrote: are the right classes accused?

mod recordings;

use std::path::PathBuf;

use tidegate_sim::elephants::{self, Family, Label, Trace, truths_between};

use super::*;
use crate::files::FileReport;
use crate::requests::Requests;
use crate::resource::Recording;

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("tidegate-offline-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// What an operator would read of this run.
fn evidence(name: &str, trace: &Trace, interval_seconds: i64) -> Evidence {
    let folder = Folder::new(name);
    let (log, sadf) = (folder.0.join("access.log"), folder.0.join("cpu.sadf"));
    std::fs::write(&log, recordings::apache(trace)).unwrap();
    std::fs::write(&sadf, recordings::sadf(trace, interval_seconds)).unwrap();
    let (mut requests, mut recording) = (Requests::new(Vec::new(), 0), Recording::new(0));
    requests
        .read(&log, None, &mut FileReport::new(&log))
        .unwrap();
    recording.read(&sadf, &mut FileReport::new(&sadf)).unwrap();
    recording.count_cpus(None);
    recording.finish();
    let mut evidence = crate::search::gather(requests, recording);
    evidence.align(false, true);
    evidence
}

/// How the accused compare with the truth, as lines: right, missed, false. Grey ones are not scored, and
/// a group is right if a culprit is in it.
#[derive(Default)]
struct Score {
    right: Vec<String>,
    missed: Vec<String>,
    wrong: Vec<String>,
    /// Relative errors of costs.
    errors: Vec<f64>,
}

impl Score {
    fn add(&mut self, family: Family, seed: u64, seconds: f64) {
        let trace = elephants::run_for(family, seed, seconds);
        let name = format!("{}-{seed}", family.label());
        let evidence = evidence(&name, &trace, 1);
        let judged = judge(&evidence);
        let judged = judged[0].as_ref().unwrap();
        let truths = truths_between(&trace, elephants::Resource::Database, 0.0, seconds);
        let place = |class: ClassId| {
            let name = &evidence.classes[class.index()].name;
            (0..truths.len()).find(|it| *name == format!("GET {}", recordings::path(*it)))
        };
        let innocent =
            |class: ClassId| place(class).is_none_or(|it| truths[it].label == Label::Innocent);
        for verdict in &judged.verdicts.classes {
            let Some(truth) = place(verdict.class).map(|it| truths[it]) else {
                continue;
            };
            let alone = verdict.ambiguous_with.iter().all(|it| innocent(*it));
            let cores = trace.cores[elephants::Resource::Database.index()];
            let cost = verdict.cost_seconds * judged.scale * cores;
            let line = format!(
                "{name} {}: share {:.3} for {:.3}, cost {cost:.4} for {:.4}, t {:.1}",
                evidence.classes[verdict.class.index()].name,
                verdict.share,
                truth.share,
                truth.cost_seconds,
                verdict.t
            );
            match (truth.label, verdict.flagged) {
                (Label::Culprit, true) => {
                    self.right.push(line);
                    self.errors.push((cost / truth.cost_seconds - 1.0).abs());
                }
                (Label::Culprit, false) => self.missed.push(line),
                (Label::Innocent, true) if alone => self.wrong.push(line),
                (Label::Innocent | Label::Grey, _) => {}
            }
        }
    }

    fn of(families: &[(Family, u64)], seconds: f64) -> Self {
        let mut score = Self::default();
        families
            .iter()
            .for_each(|(family, seed)| score.add(*family, *seed, seconds));
        score
    }

    fn assert(&self, right: usize, missed: usize) {
        assert_eq!(self.wrong, Vec::<String>::new());
        assert_eq!(self.missed.len(), missed, "{:#?}", self.missed);
        assert_eq!(self.right.len(), right, "{:#?}", self.right);
    }
}

#[test]
fn ten_minutes_of_seconds_name_the_culprits_and_price_them() {
    let families = [
        (Family::LowTraffic, 10),
        (Family::Session, 11),
        (Family::Long, 11),
        (Family::Parallel, 11),
    ];
    let mut score = Score::of(&families, 600.0);
    score.assert(5, 0);
    score.errors.sort_by(f64::total_cmp);
    assert!(score.errors[2] < 0.2, "{:?}", score.errors);
}

#[test]
fn crowds_twins_jobs_and_heavy_tails_are_no_obstacle() {
    let families = [
        (Family::CacheWarm, 11),
        (Family::Combination, 10),
        (Family::Flash, 10),
        (Family::Twin, 11),
        (Family::HeavyTail, 11),
    ];
    Score::of(&families, 600.0).assert(5, 0);
}

#[test]
fn no_innocent_is_accused_without_a_culprit_nor_on_a_full_resource() {
    let families = [
        (Family::None, 10),
        (Family::SyncCron, 10),
        (Family::NoneBusy, 10),
    ];
    Score::of(&families, 600.0).assert(0, 0);
    // It is full from the first second on, and a second says nothing of what fills it.
    Score::of(&[(Family::Saturated, 10)], 600.0).assert(0, 1);
}
