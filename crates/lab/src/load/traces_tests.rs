//! What traces are read as.

use std::io::Write;

use super::*;

fn folder_with(file: &str, text: &str) -> PathBuf {
    let name = format!("tglab-test-{}-{file}-{}", std::process::id(), text.len());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let packed = std::fs::File::create(folder.join(file)).unwrap();
    let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap();
    folder
}

#[test]
fn gaps_become_shares_of_the_whole() {
    let folder = folder_with(WORLD_CUP_FILE, "1.0\n0.5\n2.5\n");
    let trace = world_cup(&folder).unwrap();
    assert_eq!(trace.times, [0.25, 0.375, 1.0]);
    assert!(trace.said.contains("recorded"), "{}", trace.said);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_log_gives_files_and_sizes_in_its_order() {
    let text = "#t_sec\tclient\tmethod\turl\tstatus\tbytes\n\
                0\tc0\tGET\t/a\t200\t10\n0\tc1\tGET\t/b\t304\t0\n4\tc0\tGET\t/a\t200\t10\n";
    let folder = folder_with(NASA_FILE, text);
    let trace = nasa(&folder).unwrap();
    assert_eq!(trace.times, [0.0, 0.125, 1.0]);
    let files: Vec<_> = trace
        .requests
        .iter()
        .map(|it| (it.file, it.bytes))
        .collect();
    assert_eq!(files, [(0, 10), (1, 0), (0, 10)]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_line_that_is_none_is_named() {
    let folder = folder_with(WORLD_CUP_FILE, "1.0\nfast\n");
    let error = world_cup(&folder).unwrap_err().to_string();
    assert!(
        error.contains("line 2") && error.contains("fast"),
        "{error}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn without_the_files_the_model_says_that_it_is_one() {
    let nowhere = Path::new("/nonexistent");
    let evening = world_cup(nowhere).unwrap();
    let night = nasa(nowhere).unwrap();
    assert!(evening.said.contains("modelled") && night.said.contains("modelled"));
    assert_eq!(evening, world_cup(nowhere).unwrap());
    assert_eq!(night, nasa(nowhere).unwrap());
    assert!(evening.times.is_sorted() && night.times.is_sorted());
    let mean = night
        .requests
        .iter()
        .map(|it| f64::from(it.bytes))
        .sum::<f64>()
        / night.requests.len() as f64;
    assert!((5e3..1e5).contains(&mean), "{mean}");
}

#[test]
fn the_recorded_traces_are_what_the_model_claims_to_be() {
    let folder = folder();
    if !folder.join(WORLD_CUP_FILE).exists() {
        eprintln!("SKIPPED: no traces in {}", folder.display());
        return;
    }
    let half = |trace: &Trace| {
        let late = trace.times.iter().filter(|at| **at > 0.5).count();
        late as f64 / trace.times.len() as f64
    };
    let nowhere = Path::new("/nonexistent");
    let (real, model) = (world_cup(&folder).unwrap(), world_cup(nowhere).unwrap());
    assert!(
        (half(&real) - half(&model)).abs() < 0.1,
        "{} {}",
        half(&real),
        half(&model)
    );
    let (real, model) = (nasa(&folder).unwrap(), nasa(nowhere).unwrap());
    assert!(
        (half(&real) - half(&model)).abs() < 0.1,
        "{} {}",
        half(&real),
        half(&model)
    );
}

#[test]
fn a_common_log_gives_files_and_sizes_in_its_order() {
    let line = |url: &str, end: &str| {
        format!("7 - - [30/Apr/1998:21:30:17 +0000] \"GET {url} HTTP/1.0\" {end}\n")
    };
    let text = [
        line("/a", "200 10"),
        line("/b", "304 -"),
        line("/a", "200 10"),
    ];
    let folder = folder_with(WORLD_CUP_LOG, &text.concat());
    let path = folder.join(WORLD_CUP_LOG);
    let requests = requests_of_log(&path).unwrap().unwrap();
    let files: Vec<_> = requests.iter().map(|it| (it.file, it.bytes)).collect();
    assert_eq!(files, [(0, 10), (1, 0), (0, 10)]);
    std::fs::remove_dir_all(folder).unwrap();
    let folder = folder_with(WORLD_CUP_LOG, "7 - - no request\n");
    let error = requests_of_log(&folder.join(WORLD_CUP_LOG)).unwrap_err();
    assert!(error.to_string().contains("line 1"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
    assert_eq!(requests_of_log(Path::new("/nonexistent")).unwrap(), None);
}
