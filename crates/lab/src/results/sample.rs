//! A small made-up report for the tests of this folder.

use serde_json::json;

use super::{ArmResult, Axis, Curve, GoalVerdict, Machine, Mark, Plot, Range, Report};

fn arm(name: &str, peer: bool, metrics: &[(&str, &[f64])]) -> ArmResult {
    let metrics = metrics.iter();
    ArmResult {
        arm: name.to_owned(),
        peer,
        metrics: metrics
            .map(|(name, rounds)| ((*name).to_owned(), Range::of(rounds.to_vec())))
            .collect(),
    }
}

fn arms() -> Vec<ArmResult> {
    vec![
        arm(
            "tidegate auto",
            false,
            &[
                ("throughput_rps[alpha=0.1]", &[612.0, 633.0, 604.0]),
                ("throughput_rps[alpha=0.5]", &[655.0, 640.0, 661.0]),
                ("throughput_rps[alpha=0.9]", &[702.0, 711.0, 709.0]),
                ("p99_ms[load=0.9]", &[41.0, 44.0, 42.5]),
                ("p99_ms[load=1.27]", &[310.0, 290.0, 350.0]),
                ("front_cpu", &[0.21, 0.22, 0.2]),
            ],
        ),
        arm(
            "tidegate random",
            false,
            &[
                ("throughput_rps[alpha=0.1]", &[498.0, 512.0, 505.0]),
                ("throughput_rps[alpha=0.5]", &[560.0, 556.0, 571.0]),
                ("throughput_rps[alpha=0.9]", &[668.0, 650.0, 662.0]),
                ("p99_ms[load=0.9]", &[160.0, 148.0, 171.0]),
                ("front_cpu", &[0.2, 0.21, 0.21]),
            ],
        ),
        arm(
            "haproxy leastconn",
            true,
            &[
                ("throughput_rps[alpha=0.1]", &[571.0, 560.0, 580.0]),
                ("throughput_rps[alpha=0.5]", &[612.0, 633.0, 640.0]),
                ("throughput_rps[alpha=0.9]", &[722.0, 718.0, 731.0]),
                ("p99_ms[load=0.9]", &[70.0, 66.0, 72.0]),
                ("p99_ms[load=1.27]", &[620.0, 700.0, 655.0]),
                ("front_cpu", &[0.2, 0.23, 0.21]),
            ],
        ),
    ]
}

fn plots(arms: &[ArmResult]) -> Vec<Plot> {
    let groups = [
        ("0.9 of the knee", "p99_ms[load=0.9]"),
        ("1.27 of the knee", "p99_ms[load=1.27]"),
    ];
    let curve = |name: &str, peer, values: &[f64]| Curve {
        name: name.to_owned(),
        peer,
        points: values
            .iter()
            .enumerate()
            .map(|(at, value)| (at as f64 * 0.5, *value))
            .collect(),
    };
    vec![
        Plot::over(
            "Throughput of one site",
            arms,
            "throughput_rps",
            "alpha",
            Axis::linear("Zipf alpha"),
            Axis::from_zero("requests/s"),
        ),
        Plot::groups("p99 with antagonists", arms, &groups, Axis::log("ms")),
        Plot::Series {
            title: "Completed while a node is killed & revived".to_owned(),
            x: Axis::linear("s"),
            y: Axis::from_zero("requests/s"),
            series: vec![
                curve(
                    "tidegate auto",
                    false,
                    &[600.0, 605.0, 598.0, 540.0, 590.0, 601.0, 600.0],
                ),
                curve(
                    "haproxy leastconn",
                    true,
                    &[590.0, 588.0, 592.0, 430.0, 500.0, 570.0, 588.0],
                ),
            ],
            marks: vec![
                Mark {
                    x: 1.2,
                    text: "killed".to_owned(),
                },
                Mark {
                    x: 2.4,
                    text: "revived".to_owned(),
                },
            ],
        },
    ]
}

/// The report.
pub(super) fn report() -> Report {
    let arms = arms();
    Report {
        experiment: "sample".to_owned(),
        about: "Made-up figures of one site under Zipf requests".to_owned(),
        mode: "namespaces".to_owned(),
        quick: true,
        machine: Machine {
            cpu: "Example CPU".to_owned(),
            cpus: 2,
            kernel: "6.1.0".to_owned(),
            memory_mib: 4096,
        },
        seconds: 61.4,
        paper: [
            (
                "klm gain at the lowest alpha, %".to_owned(),
                json!({ "value": 22, "source": "KLM-2005 §5.2", "here": 21.2 }),
            ),
            ("order".to_owned(), json!("klm > ulm | random")),
        ]
        .into(),
        verdicts: vec![
            GoalVerdict::at_least("auto over random at alpha 0.1", 1.21, 1.22),
            GoalVerdict::at_most("p99 of auto over the best peer's at 0.9", 42.5 / 70.0, 1.0),
        ],
        emulated: vec!["Nodes are control groups with a quota on one CPU.".to_owned()],
        notes: vec!["SKIPPED envoy: not installed".to_owned()],
        plots: plots(&arms),
        arms,
        raw: json!([{ "arm": "tidegate auto", "series": [1, 2, 3] }]),
    }
}
