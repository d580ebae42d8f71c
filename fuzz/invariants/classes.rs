//! What must hold for any requests that are folded into classes. Shared by the fuzz target and by the test that
//! replays its corpus.
//!
//! A line is a request, `METHOD target`; the first one, if it begins with `pattern `, is a pattern of the
//! configuration.
//!
//! 1. Folding never panics, and no weight is lost: all classes together have what was added.
//! 2. Every place has a name, of bounded length, and stays one or gives way to one.
//! 3. Numbers stay with their names until they are retired, and no number is beyond its bound.
//! 4. An order that is made from a class selects the requests that are folded into it, and no others.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::classes::{
    Change, ClassId, ClassTable, Folder, PathTree, Pattern, Request, SEGMENT_BYTES_MAX,
    SEGMENTS_MAX, SLOTS, TreeConfig, Weight,
};
use tidegate_core::throttle::ClassPattern;
use tidegate_core::time::Timestamp;

/// Small, so that few requests fill it.
const TREE: TreeConfig = TreeConfig {
    children_max: 2,
    nodes_max: 64,
};
/// Site, method, page or file, segments, the query's names, and what stands between them.
const NAME_BYTES_MAX: usize = (SEGMENTS_MAX + 16) * (SEGMENT_BYTES_MAX + 8) + 1024;

/// Checks all of them.
pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines().peekable();
    let mut patterns = Vec::new();
    if let Some(pattern) = lines.next_if(|line| line.starts_with("pattern ")) {
        patterns.extend(Pattern::new(&pattern["pattern ".len()..], None));
    }
    let requests: Vec<_> = lines.map(request).collect();
    folded(&requests, &patterns);
    ordered(&requests, TREE);
    ordered(&requests, TreeConfig::default());
    numbered(&requests, patterns);
}

fn request(line: &str) -> Request<'_> {
    let (method, target) = line.split_once(' ').unwrap_or(("", line));
    // A site of its own for lines that begin with a blank.
    let site = if method.is_empty() { "other" } else { "" };
    Request {
        site,
        method,
        target,
    }
}

fn folded(requests: &[Request<'_>], patterns: &[Pattern]) {
    let mut folder = Folder::new(patterns.to_vec(), TREE);
    let mut places = Vec::new();
    for request in requests {
        places.push(folder.add(request, Weight::finished(0.5)));
    }
    for place in places {
        let Some(place) = folder.resolve(place) else {
            continue;
        };
        let name = folder.name(place);
        assert!(!name.is_empty() && name.len() <= NAME_BYTES_MAX, "{name}");
    }
    let all = requests.len() as f64;
    let total = folder.total();
    assert!((total.requests - all).abs() <= 1e-6 * all, "{total:?}");
    assert!((total.seconds - all / 2.0).abs() <= 1e-6 * all, "{total:?}");
    let heaviest = folder.heaviest(usize::MAX);
    let seconds: f64 = heaviest.iter().map(|(_, weight)| weight.seconds).sum();
    assert!(
        (seconds - total.seconds).abs() <= 1e-6 * all,
        "{heaviest:?}"
    );
}

fn ordered(requests: &[Request<'_>], config: TreeConfig) {
    // Where there are several sites, each has a name.
    let requests = requests.iter().map(|request| Request {
        site: if request.site.is_empty() {
            "shop"
        } else {
            request.site
        },
        ..*request
    });
    let requests: Vec<_> = requests.collect();
    let mut tree = PathTree::new(config);
    // The later half is only asked about.
    for request in &requests[..requests.len().div_ceil(2)] {
        tree.add(&request.cut(), Weight::ARRIVAL);
    }
    let leaves: Vec<_> = tree.leaves().map(|(leaf, _)| leaf).collect();
    for leaf in leaves {
        let Some(text) = tree.class_pattern(leaf) else {
            continue;
        };
        let pattern: ClassPattern = match text.parse() {
            Ok(pattern) => pattern,
            Err(error) => panic!("{text:?}: {error}"),
        };
        assert_eq!(pattern.name(), text);
        for request in &requests {
            let Request {
                site,
                method,
                target,
            } = *request;
            let is_folded = tree.find(&request.cut()) == Some(leaf);
            let is_selected = pattern.matches(site, method, target);
            assert_eq!(is_selected, is_folded, "{text:?}: {request:?}");
            let others = [("blog", method), (site, "BREW")];
            for (site, method) in others {
                assert!(!pattern.matches(site, method, target), "{text:?}");
            }
        }
    }
}

fn numbered(requests: &[Request<'_>], patterns: Vec<Pattern>) {
    let mut table = ClassTable::new(patterns, TREE);
    let mut names: BTreeMap<ClassId, String> = BTreeMap::new();
    let mut now = Timestamp::from_millis(1000);
    for (index, request) in requests.iter().enumerate() {
        let class = table.add(request, Weight::ARRIVAL);
        assert!(class.index() < SLOTS);
        if index % 8 == 7 {
            now = now + Duration::from_secs(40);
            table.rank(now);
        }
        while let Some(change) = table.poll_change() {
            match change {
                Change::Named(class, name) => {
                    assert_eq!(names.insert(class, name), None, "{class:?}");
                }
                Change::Retired(class) => assert!(names.remove(&class).is_some(), "{class:?}"),
            }
        }
    }
}
