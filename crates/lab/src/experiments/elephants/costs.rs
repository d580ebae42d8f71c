//! What a page costs the database: by its own account, and as Tidegate makes it out.
//!
//! ```text
//! truth(class)     = CPU time of the backends over all answers of the class / answers
//! error(class)     = |estimate - truth| / truth
//! ```
//!
//! Classes that are accused are compared: of the others nothing is claimed.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::load::LoadResult;
use crate::load::visitors::class;

/// What has a smaller p is no chance.
const CHANCE: f64 = 0.05;

/// Milliseconds by class, or another figure of theirs.
pub(super) type Costs = BTreeMap<String, f64>;

/// What each class cost by the database's account.
pub(super) fn truth(result: &LoadResult) -> Costs {
    let mut sums: BTreeMap<String, (f64, u64)> = BTreeMap::new();
    for page in result.streams.iter().flat_map(|stream| &stream.pages) {
        let Some(class) = class(&page.name) else {
            continue;
        };
        let sum = sums.entry(class).or_default();
        sum.0 += page.amount;
        sum.1 += page.amounts;
    }
    let known = sums.into_iter().filter(|(_, (_, count))| *count > 0);
    known
        .map(|(class, (nanos, count))| (class, nanos * 1e-6 / count as f64))
        .collect()
}

/// What the classes that a report of culprits accuses on this node cost, as it says.
pub(super) fn accused(report: &Value, node: &str) -> Costs {
    let of = |pair: &Value| {
        let accused = pair["confidence"].is_string();
        accused.then(|| pair["cost_ms"].as_f64()).flatten()
    };
    pairs(report, node)
        .filter_map(|(class, pair)| Some((class, of(&pair)?)))
        .collect()
}

/// The classes that go with a node's resource as Elephants-2005 has it, and their r: the more requests, the more
/// of it is in use, and not by chance.
pub(super) fn correlated(report: &Value, node: &str) -> Costs {
    let of = |pair: &Value| {
        let (r, p) = (pair["pearson_r"].as_f64()?, pair["pearson_p"].as_f64()?);
        (r > 0.0 && p < CHANCE).then_some(r)
    };
    pairs(report, node)
        .filter_map(|(class, pair)| Some((class, of(&pair)?)))
        .collect()
}

/// All that a report says of a class and a resource of this node.
fn pairs(report: &Value, node: &str) -> impl Iterator<Item = (String, Value)> {
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let resources = list(report, "resources");
    let resources = resources.iter().filter(|it| it["node"] == *node);
    let resources: Vec<_> = resources.map(|it| it["name"].clone()).collect();
    let classes = list(report, "classes").into_iter();
    classes.flat_map(move |class| {
        let name = class["name"].as_str().unwrap_or_default().to_owned();
        let pairs = list(&class, "pairs").into_iter();
        let here = pairs.filter(|pair| resources.contains(&pair["resource"]));
        here.map(|pair| (name.clone(), pair)).collect::<Vec<_>>()
    })
}

/// How far the estimates of the classes that both know are off, percent, ascending.
pub(super) fn errors(estimates: &Costs, truth: &Costs) -> Vec<f64> {
    let both = estimates
        .iter()
        .filter_map(|(class, estimate)| Some((*estimate, *truth.get(class)?)));
    let error = |(estimate, truth): (f64, f64)| (estimate - truth).abs() / truth * 100.0;
    let mut errors: Vec<_> = both.filter(|(_, truth)| *truth > 0.0).map(error).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::load::{PageResult, StreamResult};

    #[test]
    fn what_the_database_says_is_added_up_over_all_visitors() {
        let stream = |amount, amounts| StreamResult {
            pages: vec![PageResult {
                name: "search category".into(),
                amount,
                amounts,
                ..PageResult::default()
            }],
            ..StreamResult::default()
        };
        let result = LoadResult {
            streams: vec![stream(30e6, 2), stream(10e6, 2), stream(0.0, 0)],
            ..LoadResult::default()
        };
        let truth = truth(&result);
        assert_eq!(truth.len(), 1);
        assert!((truth["GET /search/category/{n}"] - 10.0).abs() < 1e-9);
    }

    #[test]
    fn correlated_is_what_is_no_chance_and_not_the_other_way_round() {
        let pair = |r: f64, p: f64| json!({ "resource": "db cpu", "pearson_r": r, "pearson_p": p });
        let report = json!({
            "resources": [{ "name": "db cpu", "node": "db" }],
            "classes": [
                { "name": "GET /search/category/{n}", "pairs": [pair(0.5654, 0.0)] },
                { "name": "GET /browse/region/{n}", "pairs": [pair(-0.0434, 0.0926)] },
                { "name": "GET /item/{n}", "pairs": [pair(-0.3, 0.001)] },
                { "name": "GET /buy", "pairs": [pair(0.0401, 0.1206)] },
            ],
        });
        let names: Vec<_> = correlated(&report, "db").into_keys().collect();
        assert_eq!(names, ["GET /search/category/{n}"]);
    }

    #[test]
    fn a_report_is_read_for_the_classes_that_it_accuses() {
        let pair = |resource: &str, cost: f64, confidence: Value| json!({ "resource": resource, "cost_ms": cost, "confidence": confidence });
        let report = json!({
            "resources": [{ "name": "db cpu", "node": "db" }, { "name": "web cpu", "node": "web" }],
            "classes": [
                { "name": "GET /search/category/{n}", "pairs": [pair("web cpu", 1.0, json!("likely")), pair("db cpu", 45.0, json!("strong"))] },
                { "name": "GET /item/{n}", "pairs": [pair("db cpu", 0.1, Value::Null)] },
                { "name": "GET /", "pairs": [] },
            ],
        });
        let accused = accused(&report, "db");
        assert_eq!(
            accused,
            [("GET /search/category/{n}".to_owned(), 45.0)].into()
        );
        let truth = [
            ("GET /search/category/{n}".to_owned(), 50.0),
            ("GET /".to_owned(), 1.0),
        ];
        let errors = errors(&accused, &truth.into());
        assert!(errors.len() == 1 && (errors[0] - 10.0).abs() < 1e-9);
        assert!(super::accused(&json!({}), "db").is_empty());
        assert!(correlated(&report, "db").is_empty());
    }
}
