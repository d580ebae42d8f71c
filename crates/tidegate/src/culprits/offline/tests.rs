//! Simulated sites, as an Apache log and as what sysstat wrote: are the right classes accused?

use std::path::PathBuf;

use tidegate_core::culprits::Confidence;
use tidegate_sim::elephants::{self, Family, Label, Trace, truths_between};

use super::*;
use crate::culprits::files::FileReport;
use crate::culprits::recordings;
use crate::culprits::requests::Requests;
use crate::culprits::resource::Recording;

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
    recording.finish();
    let mut evidence = crate::culprits::gather(requests, recording);
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
            let alone = match &verdict.culprit {
                Some(Confidence::Ambiguous { with }) => with.iter().all(|it| innocent(*it)),
                _ => true,
            };
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
            match (truth.label, verdict.told) {
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
fn a_quarter_of_an_hour_of_seconds_names_the_culprits() {
    let families = [
        (Family::Steady, 3),
        (Family::Rare, 3),
        (Family::Session, 3),
        (Family::LowTraffic, 3),
    ];
    let mut score = Score::of(&families, 900.0);
    score.assert(0, 0);
    score.errors.sort_by(f64::total_cmp);
    let median = score.errors[score.errors.len() / 2];
    assert!(median < 0.15, "{:?}", score.errors);
}

#[test]
fn several_culprits_noise_and_parallel_queries_are_no_obstacle() {
    let families = [
        (Family::ManyEleph, 3),
        (Family::NoisyBg, 3),
        (Family::Parallel, 3),
        (Family::Twin, 3),
    ];
    Score::of(&families, 900.0).assert(0, 0);
}

#[test]
fn where_there_is_no_culprit_nobody_is_accused() {
    let families = [
        (Family::None, 3),
        (Family::NoneFlash, 0),
        (Family::SyncCron, 3),
        (Family::Saturated, 0),
    ];
    let score = Score::of(&families, 900.0);
    assert_eq!(score.wrong, Vec::<String>::new());
}
