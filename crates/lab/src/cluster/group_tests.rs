//! Groups on a made-up tree: which files are written in which version, and the arithmetic.

use super::*;

const V2: &[u8] = b"41 31 0:37 / /cg rw - cgroup2 cgroup2 rw\n";
const HYBRID: &[u8] = b"32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu\n\
    33 31 0:30 / /cg/cpuacct rw - cgroup cgroup rw,cpuacct\n\
    34 31 0:31 / /cg/freezer rw - cgroup cgroup rw,freezer\n\
    41 31 0:37 / /cg/unified rw - cgroup2 cgroup2 rw\n";

/// An empty folder of this test.
fn root(test: &str) -> PathBuf {
    let root = std::env::temp_dir().join(format!("tidegate-group-{}-{test}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    root
}

fn file(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn shares_become_quotas_that_the_kernel_takes() {
    let quota = |share| {
        let Quota {
            quota_us,
            period_us,
        } = Quota::of(share).unwrap();
        (quota_us, period_us)
    };
    assert_eq!(quota(0.11), (1100, 10_000));
    assert_eq!(quota(0.1), (1000, 10_000));
    assert_eq!(quota(2.5), (25_000, 10_000));
    // Below a tenth the period grows, since the quota must not shrink.
    assert_eq!(quota(0.05), (1000, 20_000));
    assert_eq!(quota(0.001), (1000, 1_000_000));
    for share in [0.0, 0.0009, -1.0, f64::NAN, 1e9] {
        assert!(Quota::of(share).is_err(), "{share}");
    }
}

#[test]
fn every_quota_is_within_a_thousandth_of_its_share() {
    for step in 1..=2000 {
        let share = f64::from(step) / 1000.0;
        let Quota {
            quota_us,
            period_us,
        } = Quota::of(share).unwrap();
        let real = quota_us as f64 / period_us as f64;
        assert!(
            (real / share - 1.0).abs() < 1e-3,
            "{share}: {quota_us}/{period_us}"
        );
        assert!(quota_us >= QUOTA_MIN_US && period_us <= PERIOD_MAX_US);
    }
}

#[test]
fn a_version_2_group_delegates_limits_and_counts() {
    let root = root("v2");
    file(&root, "cg/cgroup.controllers", "cpuset cpu memory\n");
    file(&root, "cg/cgroup.subtree_control", "memory\n");
    let tree = Tree::of(V2, &root).unwrap();
    let group = tree.make("g", Purpose::Node).unwrap();
    assert_eq!(read(&root.join("cg/cgroup.subtree_control")), "+cpu");
    assert!(!group.limit_memory(1 << 20).unwrap());
    file(&root, "cg/g/memory.max", "max\n");
    assert!(group.limit_memory(1 << 20).unwrap());
    assert_eq!(read(&root.join("cg/g/memory.max")), "1048576");
    file(&root, "cg/g/cpu.max", "max 100000\n");
    group.limit(Some(0.11)).unwrap();
    assert_eq!(read(&root.join("cg/g/cpu.max")), "1100 10000");
    group.limit(None).unwrap();
    assert_eq!(read(&root.join("cg/g/cpu.max")), "max");
    file(&root, "cg/g/cpu.stat", "usage_usec 1500\nuser_usec 1000\n");
    assert_eq!(group.cpu_time().unwrap(), Duration::from_micros(1500));
    assert_eq!(group.scope(), "/g");
    // In version 2 a group that is only watched is one like any other.
    let watch = tree.make("w", Purpose::Watch).unwrap();
    assert_eq!(watch.directories, [root.join("cg/w")]);
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_hybrid_group_is_in_the_hierarchies_of_use() {
    let root = root("hybrid");
    for controller in ["cpu", "cpuacct", "freezer", "unified"] {
        fs::create_dir_all(root.join("cg").join(controller)).unwrap();
    }
    let tree = Tree::of(HYBRID, &root).unwrap();
    assert_eq!(tree.mounts().count(), 3);
    let group = tree.make("g", Purpose::Node).unwrap();
    let doors: Vec<_> = group.doors().collect();
    let door = |place: &str| root.join(format!("cg/{place}/g/cgroup.procs"));
    assert_eq!(doors, [door("cpu"), door("cpuacct"), door("unified")]);
    file(&root, "cg/cpu/g/cpu.cfs_quota_us", "-1\n");
    file(&root, "cg/cpu/g/cpu.cfs_period_us", "100000\n");
    group.limit(Some(0.25)).unwrap();
    assert_eq!(read(&root.join("cg/cpu/g/cpu.cfs_quota_us")), "2500");
    assert_eq!(read(&root.join("cg/cpu/g/cpu.cfs_period_us")), "10000");
    group.limit(None).unwrap();
    assert_eq!(read(&root.join("cg/cpu/g/cpu.cfs_quota_us")), "-1");
    file(&root, "cg/cpuacct/g/cpuacct.usage", "123456789\n");
    assert_eq!(group.cpu_time().unwrap(), Duration::from_nanos(123_456_789));
    // No real-time budget in the cpu hierarchy below its root.
    let watch = tree.make("w", Purpose::Watch).unwrap();
    assert_eq!(
        watch.directories,
        [root.join("cg/cpuacct/w"), root.join("cg/unified/w")]
    );
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn without_a_cpu_controller_there_is_a_reason() {
    let root = root("none");
    file(&root, "cg/cgroup.controllers", "memory\n");
    assert!(Tree::of(V2, &root).unwrap_err().contains("cpu controller"));
    assert!(Tree::of(b"", &root).is_err());
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn what_is_missing_is_named() {
    let root = root("missing");
    file(&root, "cg/cgroup.controllers", "cpu\n");
    file(&root, "cg/cgroup.subtree_control", "cpu\n");
    let group = Tree::of(V2, &root)
        .unwrap()
        .make("g", Purpose::Node)
        .unwrap();
    assert!(
        group
            .limit(Some(0.5))
            .unwrap_err()
            .to_string()
            .contains("cpu.max")
    );
    assert!(
        group
            .cpu_time()
            .unwrap_err()
            .to_string()
            .contains("cpu.stat")
    );
    file(&root, "cg/g/cpu.stat", "nothing\n");
    assert!(
        group
            .cpu_time()
            .unwrap_err()
            .to_string()
            .contains("not a number")
    );
    fs::remove_dir_all(root).unwrap();
}
