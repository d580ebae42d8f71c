//! How well real URLs fold into classes: the NASA log of July 1995 and the object table of the
//! World Cup's site of 1998. Neither is part of the repository; the folder is `TIDEGATE_TRACES`,
//! or `../shared/traces` as the lab has it. Without them the test says SKIPPED.
//!
//! `cargo test --release -p tidegate --test fold_traces -- --nocapture` prints the table, with
//! the time that a URL takes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use flate2::read::GzDecoder;
use tidegate_core::classes::{Leaf, PathTree, Request, TreeConfig, Weight};

fn folder() -> PathBuf {
    let set = std::env::var_os("TIDEGATE_TRACES");
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    set.map_or_else(usual, PathBuf::from)
}

/// Methods and URLs of a compressed file, if it is there.
fn read(name: &str, columns: fn(&str) -> Option<(&str, &str)>) -> Option<Vec<(String, String)>> {
    let file = std::fs::File::open(folder().join(name)).ok()?;
    let mut bytes = Vec::new();
    GzDecoder::new(file)
        .take(64 << 20)
        .read_to_end(&mut bytes)
        .unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let owned = |(method, url): (&str, &str)| (method.to_owned(), url.to_owned());
    Some(text.lines().filter_map(columns).map(owned).collect())
}

fn nasa(line: &str) -> Option<(&str, &str)> {
    let mut columns = line.split('\t').skip(2);
    let found = (columns.next()?, columns.next()?);
    (found.0 != "method").then_some(found)
}

fn world_cup(line: &str) -> Option<(&str, &str)> {
    let (_, url) = line.trim().split_once(' ')?;
    Some(("GET", url.trim()))
}

/// What a list of URLs comes to.
struct Folded {
    requests: usize,
    distinct: usize,
    classes: usize,
    /// Share of the requests in the heaviest classes.
    in_top: [f64; 2],
    /// Share of the requests whose class at first sight is the one at the end.
    stable: f64,
    ns_per_url: f64,
}

#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn fold(list: &[(String, String)], children_max: usize) -> Folded {
    let mut tree = PathTree::new(TreeConfig {
        children_max,
        ..TreeConfig::default()
    });
    let begin = Instant::now();
    let at_sight: Vec<Leaf> = list
        .iter()
        .map(|(method, target)| {
            let request = Request {
                site: "",
                method,
                target,
            };
            tree.add(&request, Weight::ARRIVAL)
        })
        .collect();
    let took = begin.elapsed();
    let requests = list.len() as f64;
    let in_top = [50, 200].map(|count| {
        let heaviest = tree.heaviest(count);
        heaviest
            .iter()
            .map(|(_, weight)| weight.requests)
            .sum::<f64>()
            / requests
    });
    let stable = at_sight
        .iter()
        .filter(|leaf| tree.resolve(**leaf) == Some(**leaf));
    Folded {
        requests: list.len(),
        distinct: list
            .iter()
            .map(|(_, url)| url)
            .collect::<BTreeSet<_>>()
            .len(),
        classes: tree.leaves().count(),
        in_top,
        stable: stable.count() as f64 / requests,
        ns_per_url: took.as_nanos() as f64 / requests,
    }
}

#[test]
fn real_urls_fold_into_few_classes() {
    let lists = [
        (
            "NASA 1995-07-01",
            read("nasa_19950701_first10k.tsv.gz", nasa),
        ),
        (
            "WC98 object list",
            read("wc98_object_mappings.txt.gz", world_cup),
        ),
    ];
    for (name, list) in lists {
        let Some(list) = list else {
            println!("SKIPPED: {name}: no trace in {}", folder().display());
            continue;
        };
        for children_max in [16, 32] {
            let folded = fold(&list, children_max);
            println!(
                "{name}: {} requests, {} URLs; K = {children_max}: {} classes, in top 50 / 200: \
                 {:.3} / {:.3}, first-sight class = final {:.1} %, {:.0} ns per URL",
                folded.requests,
                folded.distinct,
                folded.classes,
                folded.in_top[0],
                folded.in_top[1],
                100.0 * folded.stable,
                folded.ns_per_url,
            );
            if children_max == 16 {
                assert!(folded.in_top[1] > 0.9, "{name}: 200 names cover too little");
            }
            assert!(folded.stable > 0.9, "{name}: names change too often");
        }
    }
}
