//! The repository's own results: what is made from the measurements (`NAME.json`) is what the lab
//! makes of them. `UPDATE_EXPECT=1` makes it anew.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::path::Path;

use tidegate_lab::experiments::ALL;
use tidegate_lab::results;

#[track_caller]
fn check(path: &Path, expected: &str) {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, expected).unwrap();
        return;
    }
    assert!(
        std::fs::read_to_string(path).unwrap() == expected,
        "{} is not what its measurements give.\n\
         If the lab's presentation was changed: UPDATE_EXPECT=1 cargo test -p tidegate-lab --test results",
        path.display()
    );
}

#[test]
fn every_experiment_has_a_result_that_is_shown_as_measured() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
    for experiment in ALL {
        let path = folder.join(experiment.name);
        let report = results::read(&path.with_extension("json")).unwrap();
        assert_eq!(report.experiment, experiment.name);
        check(&path.with_extension("md"), &results::markdown(&report));
        check(&path.with_extension("svg"), &results::figure(&report.plots));
    }
}
