//! The demo ends by itself, or when interrupted, and prints the object that scripts rely on.
//! What it finds is timing, which no test asserts: not how fast a policy is, nor which class is named, nor when. What
//! holds on every machine is what was sent and what became of it, and that the object agrees with itself.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const POLICIES: [&str; 5] = [
    "round_robin",
    "least_request",
    "power_of_two",
    "prequal",
    "auto",
];

/// One demo at a time: each is a dozen busy threads.
static ALONE: Mutex<()> = Mutex::new(());

fn demo(seconds: &str) -> Child {
    start(&["--seconds", seconds])
}

fn start(options: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["demo", "--json"])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The one object on standard output.
fn object(stdout: impl Read) -> Value {
    let lines: Vec<_> = BufReader::new(stdout).lines().map(Result::unwrap).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    serde_json::from_str(&lines[0]).unwrap()
}

fn check_policy(policy: &Value) {
    assert!(policy["completed"].as_u64().unwrap() > 0, "{policy}");
    assert!(policy["failed"].is_u64(), "{policy}");
    let mut last = 0.0;
    for quantile in ["p50_ms", "p99_ms", "p999_ms"] {
        let value = policy[quantile].as_f64().unwrap();
        assert!(value >= last && value > 0.0, "{policy}");
        last = value;
    }
    assert!(policy["throughput_rps"].is_f64(), "{policy}");
    assert!(policy["load_age_p99_ms"].is_f64(), "{policy}");
}

#[test]
fn a_short_demo_tries_every_policy_and_ends() {
    let _alone = ALONE.lock();
    let output = demo("8").wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    let object = object(&output.stdout[..]);
    assert_eq!(object["nodes"], 8);
    assert!(object["mode"].is_string());
    assert!(object["offered_rps"].as_f64().unwrap() > 0.0);
    let policies = object["policies"].as_array().unwrap();
    let names: Vec<_> = policies.iter().map(|policy| &policy["name"]).collect();
    assert_eq!(names, POLICIES);
    policies.iter().for_each(check_policy);
    // The cluster and the page are shown before.
    assert!(
        told.contains("shop-1") && told.contains("http://127.0.0.1:"),
        "{told}"
    );
}

#[test]
fn an_interrupted_demo_tells_what_there_is() {
    let _alone = ALONE.lock();
    let mut demo = demo("600");
    let mut told = BufReader::new(demo.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(r#""event":"runs""#) {
        line.clear();
        assert!(told.read_line(&mut line).unwrap() > 0, "it ended by itself");
    }
    kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    std::io::copy(&mut told, &mut std::io::sink()).unwrap();
    let object = object(demo.stdout.take().unwrap());
    assert!(demo.wait().unwrap().success());
    assert!(object["policies"].as_array().unwrap().len() <= 1);
}

/// The phases of a demo with an elephant, in order; one that was too short to measure is left out.
const PHASES: [&str; 3] = ["quiet", "elephant", "throttled"];

/// Whether this machine carries the elephant's load: two CPUs for servers, front-end and visitors.
fn carries() -> Result<(), String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        return Err(format!("{cpus} CPU does not carry the demo's load"));
    }
    Ok(())
}

#[test]
fn the_elephants_demo_tells_its_story_and_refuses_nobody() {
    if let Err(why) = carries() {
        println!("SKIPPED: {why}");
        return;
    }
    let _alone = ALONE.lock();
    let demo = start(&["--elephant", "--seconds", "60"]);
    let output = demo.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let object = object(&output.stdout[..]);
    assert!(told.contains("/culprits"), "{told}");
    let named = object["class"].is_string();
    assert_eq!(output.status.success(), named, "{told}\n{object}");
    assert!(named || object["right"] == false, "{object}");
    let phases = object["phases"].as_array().unwrap();
    let names: Vec<_> = phases
        .iter()
        .map(|phase| phase["name"].as_str().unwrap())
        .collect();
    let order = |name: &&str| PHASES.iter().position(|it| it == name);
    assert!(names.iter().all(|name| order(name).is_some()), "{names:?}");
    assert!(names.is_sorted_by_key(order), "{names:?}");
    // Elephants come with the second phase. They are slowed, and none is refused.
    let mut completed = object["elephants_waiting"].as_u64().unwrap();
    for phase in phases {
        let elephants = &phase["elephants"];
        completed += elephants["completed"].as_u64().unwrap();
        assert_eq!(elephants["refused"], 0, "{phase}");
        assert!(phase["others"]["completed"].is_u64(), "{phase}");
    }
    assert_eq!(phases[0]["elephants"]["completed"], 0, "{object}");
    assert!(completed > 0, "{object}");
    // A throttle is of the class that was named, and there is a phase for it.
    let throttled = object["throttle"].is_object();
    assert!(named || !throttled, "{object}");
    assert!(throttled || !names.contains(&"throttled"), "{object}");
    if throttled {
        assert_eq!(object["throttle"]["by"], "demo");
    }
}

#[test]
fn the_demo_of_moves_has_both_arms_and_nodes_follow_the_crowd() {
    if let Err(why) = carries() {
        println!("SKIPPED: {why}");
        return;
    }
    let _alone = ALONE.lock();
    let demo = start(&["--moves", "--seconds", "30"]);
    let output = demo.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let object = object(&output.stdout[..]);
    assert!(said.contains("http://127.0.0.1:"), "{said}");
    let arms = object["arms"].as_array().unwrap();
    let names: Vec<_> = arms.iter().map(|arm| &arm["name"]).collect();
    assert_eq!(names, ["rigid", "moves"]);
    for arm in arms {
        assert_eq!(arm["failed"], 0, "{arm}");
        let phases = arm["phases"].as_array().unwrap();
        assert_eq!(phases.len(), 3, "{arm}");
        for site in phases.iter().flat_map(|it| it["sites"].as_array().unwrap()) {
            assert!(site["completed"].as_u64().unwrap() > 0, "{arm}");
        }
        // No node is lost, and no site falls below its floor.
        for change in arm["timeline"].as_array().unwrap() {
            let [shop, blog] = ["shop", "blog"].map(|site| change[site].as_u64().unwrap());
            assert_eq!(shop + blog, 10, "{arm}");
            assert!(shop.min(blog) >= 2, "{arm}");
        }
    }
    assert_eq!(arms[0]["timeline"].as_array().unwrap().len(), 1, "{object}");
    // The crowd wants more than the shop's own nodes can do, whatever the machine.
    assert!(
        arms[1]["timeline"].as_array().unwrap().len() > 1,
        "{object}"
    );
}
