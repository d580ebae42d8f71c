//! The threads that keep CPUs awake: in no task's way, and gone with their owner.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_lab::awake::Awake;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate-lab");

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn they_spin_in_a_group_of_the_least_weight_and_end_with_it() {
    let awake = Awake::start(PROGRAM.as_ref());
    let Some(process) = awake.process() else {
        println!("SKIPPED: {}", awake.said);
        return;
    };
    let directory = PathBuf::from(format!("/proc/{process}"));
    let group = read(directory.join("autogroup"));
    assert_ne!(group, read("/proc/self/autogroup"));
    // Where sessions are no groups there is no such file.
    assert!(
        group.is_empty() || group.trim_end().ends_with(" nice 19"),
        "{group}"
    );
    let cpus = fs::read_dir(directory.join("task")).unwrap().count() as u32 - 1;
    assert!(cpus > 0);
    let kept = (0..1024).filter(|cpu| awake.time_on(*cpu).is_some());
    assert_eq!(kept.count() as u32, cpus);
    drop(awake);
    assert!(!directory.exists());
}
