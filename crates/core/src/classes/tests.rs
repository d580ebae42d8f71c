//! What folding promises, with plain requests.

use super::table::RANK_KEPT;
use super::tree::{HEAVY_MAX, PATH_NODES, SITES_MAX};
use super::*;
use crate::prng::Prng;
use crate::time::Timestamp;

fn get(target: &str) -> Request<'_> {
    Request {
        site: "",
        method: "GET",
        target,
    }
}

fn tree() -> PathTree {
    PathTree::new(TreeConfig::default())
}

/// Names of all leaves with their requests, sorted.
fn names(tree: &PathTree) -> Vec<(String, f64)> {
    let mut names: Vec<_> = tree
        .leaves()
        .map(|(leaf, weight)| (tree.name(leaf), weight.requests))
        .collect();
    names.sort_by(|one, other| one.0.cmp(&other.0));
    names
}

#[test]
fn names_have_site_method_and_path() {
    let mut tree = tree();
    for (site, method, target, name) in [
        ("", "", "/", "/"),
        ("", "GET", "/", "GET /"),
        ("shop", "GET", "/", "shop GET /"),
        ("shop", "POST", "/cart/17", "shop POST /cart/{n}"),
        ("shop", "GET", "/?b&a", "shop GET /?a&b"),
        ("shop", "GET", "/a/b?c=1", "shop GET /a/b?c"),
        ("shop", "GET", "/a/b/c/d.png", "shop GET /a/b/*.png"),
        ("shop", "GET", "/x.png", "shop GET /*.png"),
        ("shop", "BREW", "/pot", "shop {other} /pot"),
    ] {
        let request = Request {
            site,
            method,
            target,
        };
        let leaf = tree.add(&request, Weight::ARRIVAL);
        assert_eq!(tree.name(leaf), name);
    }
    tree.check();
}

#[test]
fn many_children_of_equal_weight_become_one() {
    let mut tree = tree();
    let mut leaves = Vec::new();
    for title in 0..500 {
        leaves.push(tree.add(&get(&format!("/wiki/title-{title}/edit")), Weight::ARRIVAL));
        tree.check();
    }
    assert_eq!(names(&tree), [("GET /wiki/{*}/edit".to_owned(), 500.0)]);
    // A leaf that was folded earlier finds where it belongs now.
    let place = tree.resolve(leaves[499]);
    assert!(leaves.iter().all(|leaf| tree.resolve(*leaf) == place));
}

/// Pages that come and go, are merged and come out again: counted where others like them were, they make the same tree.
#[test]
fn a_request_that_is_counted_where_its_like_was_is_counted_as_if_it_were_folded() {
    let mut shortcuts = 0;
    for seed in 0..20 {
        let mut prng = Prng::new(seed);
        let (mut folded, mut counted) = (tree(), tree());
        let mut places = std::collections::BTreeMap::new();
        for _ in 0..3000 {
            // Few are asked for often, many once.
            let page = (1.0 / (prng.unit() + 1e-3)) as usize;
            let target = match prng.below(3) {
                0 => format!("/wiki/title-{page}/edit?as={page}"),
                1 => format!("/wiki/title-{page}"),
                _ => format!("/shop/{page}/a.png"),
            };
            let seconds = prng.exponential(0.01 * page as f64);
            let weight = match prng.below(2) {
                0 => Weight::ARRIVAL,
                _ => Weight::finished(seconds),
            };
            let request = get(&target);
            let leaf = folded.add(&request, weight);
            let known = places.get(&target).copied();
            let known = known.filter(|it| counted.add_to(*it, weight));
            shortcuts += u32::from(known.is_some());
            let other = known.unwrap_or_else(|| counted.add(&request, weight));
            assert_eq!(folded.name(leaf), counted.name(other), "seed {seed}");
            places.insert(target, other);
        }
        counted.check();
        assert_eq!(names(&folded), names(&counted), "seed {seed}");
        let leaves = |tree: &PathTree| tree.leaves().collect::<Vec<_>>();
        assert_eq!(leaves(&folded), leaves(&counted), "seed {seed}");
    }
    assert!(shortcuts > 10_000, "{shortcuts}");
}

#[test]
fn a_child_with_many_requests_keeps_its_name() {
    let mut tree = tree();
    for title in 0..400 {
        tree.add(&get("/wiki/main"), Weight::ARRIVAL);
        tree.add(&get(&format!("/wiki/title-{title}")), Weight::ARRIVAL);
    }
    let names = names(&tree);
    assert_eq!(names.len(), 2);
    // It had no twenty requests yet when the node was merged: some are in `{*}` for good.
    assert_eq!(names[0].0, "GET /wiki/main");
    assert!(names[0].1 > 350.0, "{names:?}");
    assert_eq!(names[1].0, "GET /wiki/{*}");
    tree.check();
}

/// Of 20 000 requests for ever new pages one in 400 is for a page that takes a second.
#[test]
fn a_rare_page_that_takes_long_keeps_its_name() {
    let with_time = |light: f64, heavy: f64| {
        let mut tree = tree();
        for index in 0..20_000 {
            let page = format!("/report/page-{index}");
            tree.add(&get(&page), Weight::finished(light));
            if index % 400 == 200 {
                tree.add(&get("/report/yearly"), Weight::finished(heavy));
            }
        }
        tree.check();
        names(&tree)
    };
    let names = with_time(0.005, 1.0);
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(names[0].0, "GET /report/yearly");
    assert!(names[0].1 >= 45.0, "{names:?}");
    // By its requests alone it is nothing to speak of.
    assert_eq!(with_time(0.0, 0.0).len(), 1);
    assert_eq!(with_time(0.005, 0.005).len(), 1);
}

#[test]
fn a_name_that_was_heavy_once_makes_room_for_one_that_is() {
    let mut tree = tree();
    for page in 0..16 {
        for _ in 0..30 {
            tree.add(&get(&format!("/p/old-{page}")), Weight::ARRIVAL);
        }
    }
    for index in 0..5000 {
        tree.add(&get(&format!("/p/new-{index}")), Weight::ARRIVAL);
        tree.add(&get("/p/now"), Weight::ARRIVAL);
    }
    tree.check();
    let found = names(&tree)
        .into_iter()
        .find(|(name, _)| name == "GET /p/now");
    assert!(found.is_some_and(|(_, requests)| requests > 4000.0));
}

#[test]
fn sites_beyond_the_limit_are_one() {
    let mut tree = tree();
    let mut name = |site: usize| {
        let site = format!("s{site}");
        let request = Request {
            site: &site,
            ..get("/")
        };
        let leaf = tree.add(&request, Weight::ARRIVAL);
        tree.check();
        tree.name(leaf)
    };
    for site in 0..SITES_MAX {
        assert_eq!(name(site), format!("s{site} GET /"));
    }
    for site in [SITES_MAX, SITES_MAX + 1] {
        assert_eq!(name(site), "{other} GET /");
    }
    assert_eq!(name(0), "s0 GET /");
}

#[test]
fn hidden_names_are_watched_at_so_many_nodes_and_at_no_more() {
    let mut tree = PathTree::new(TreeConfig {
        children_max: 1,
        ..TreeConfig::default()
    });
    let mut name = |node: usize, target| {
        let site = format!("s{}", node / 3);
        let request = Request {
            site: &site,
            method: ["GET", "POST", "PUT"][node % 3],
            target,
        };
        let leaf = tree.add(&request, Weight::ARRIVAL);
        tree.check();
        tree.name(leaf)
    };
    for node in 0..=HEAVY_MAX {
        name(node, "/a");
        assert!(name(node, "/b").ends_with(" /{*}"), "two are too many");
    }
    let mut named = |node| (0..100).any(|_| name(node, "/often").ends_with(" /often"));
    assert!(named(HEAVY_MAX - 1));
    assert!(!named(HEAVY_MAX));
}

/// In a tree that is full, lighter leaves give way before a request comes, and so many at once that it is
/// not full again with the next one.
#[test]
fn the_longest_path_finds_room_for_all_its_levels() {
    let config = TreeConfig {
        children_max: 1000,
        nodes_max: 256,
    };
    let mut tree = PathTree::new(config);
    let mut prng = Prng::new(5);
    let (mut nodes, mut rounds) = (0, 0);
    for _ in 0..2000 {
        let segments = (0..SEGMENTS_MAX).map(|_| format!("/w{}x", prng.below(1000)));
        let target = segments.collect::<String>() + "?q";
        let leaf = tree.add(&get(&target), Weight::ARRIVAL);
        tree.check();
        let name = tree.name(leaf);
        let levels = name.matches('/').count();
        assert!(levels == SEGMENTS_MAX && name.ends_with("?q"), "{name}");
        let before = std::mem::replace(&mut nodes, tree.nodes());
        if nodes < before {
            rounds += 1;
            assert!(before > config.nodes_max - PATH_NODES, "{before}");
            let left = config.nodes_max - config.nodes_max / 4;
            assert!(nodes <= left + PATH_NODES, "{nodes}");
        }
    }
    assert!(rounds > 0);
}

/// A merge moves whole subtrees, and can take the room that was made for the path.
#[test]
fn a_request_whose_merge_takes_the_room_ends_at_a_higher_level_and_is_counted_all_the_same() {
    let mut short = 0;
    for seed in 0..20 {
        let mut prng = Prng::new(seed);
        let mut tree = PathTree::new(TreeConfig {
            children_max: 1 + prng.below(16),
            nodes_max: 64 + prng.below(400),
        });
        for number in 1..=1000 {
            let segments = (0..SEGMENTS_MAX).map(|_| format!("/w{}x", prng.below(1000)));
            let target = segments.collect::<String>() + "?q";
            let leaf = tree.add(&get(&target), Weight::ARRIVAL);
            tree.check();
            assert_eq!(tree.total().requests, f64::from(number));
            let name = tree.name(leaf);
            short += usize::from(name.matches('/').count() < SEGMENTS_MAX);
        }
    }
    assert!(short > 0);
}

#[test]
fn the_order_of_heaviest_is_by_time_if_there_is_any() {
    let mut tree = tree();
    for _ in 0..10 {
        tree.add(&get("/often"), Weight::ARRIVAL);
    }
    tree.add(&get("/slow"), Weight::ARRIVAL);
    let first = |tree: &PathTree| tree.name(tree.heaviest(1)[0].0);
    assert_eq!(first(&tree), "GET /often");
    tree.add(&get("/slow"), Weight::time(2.0));
    assert_eq!(first(&tree), "GET /slow");
    assert_eq!(
        tree.total(),
        Weight {
            requests: 11.0,
            seconds: 2.0
        }
    );
}

/// Whatever clients send, the tree stays within its bounds and loses no request.
#[test]
fn hostile_urls_neither_grow_nor_break_the_tree() {
    const PIECES: &[&str] = &[
        "/",
        "//",
        "?",
        "&",
        "=",
        "#",
        ";",
        "{*}",
        "{n}",
        "*",
        "..",
        "%2e",
        "a",
        "B",
        "7",
        "-",
        ".png",
        "é",
        "日本",
        "\u{0}",
        "://",
        " ",
        "0123456789abcdef",
        LONG,
    ];
    for seed in 0..4 {
        let mut prng = Prng::new(seed);
        let config = TreeConfig {
            children_max: 1 + prng.below(20),
            nodes_max: 64 + prng.below(600),
        };
        let mut tree = PathTree::new(config);
        let mut leaves = Vec::new();
        let mut seconds = 0.0;
        for round in 0..8_000 {
            let pieces = prng.below(14);
            let mut target: String = (0..pieces)
                .map(|_| PIECES[prng.below(PIECES.len())])
                .collect();
            if prng.below(2) == 0 {
                target = format!("/{}/{}/{}", prng.below(40), prng.bits(), target);
            }
            let site = format!("s{}", prng.below(if round > 4000 { 1000 } else { 2 }));
            let method = ["GET", "POST", "", "ZAP"][prng.below(4)];
            let request = Request {
                site: &site,
                method,
                target: &target,
            };
            let time = prng.exponential(0.1);
            seconds += time;
            leaves.push(tree.add(&request, Weight::finished(time)));
            if round % 500 == 0 {
                tree.check();
            }
        }
        tree.check();
        assert!(tree.nodes() <= config.nodes_max);
        let total = tree.total();
        assert_eq!(total.requests, 8_000.0);
        assert!((total.seconds - seconds).abs() < 1e-6 * seconds);
        for leaf in leaves {
            // Gone or not, nothing panics.
            let name = tree.name(leaf);
            assert!(!name.is_empty() && name.len() < 1024, "{name}");
        }
    }
}

/// Longer than any segment may be.
const LONG: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/// The label of a URL does not depend on values: what differs in numbers only folds together.
#[test]
fn values_never_make_a_class() {
    let mut prng = Prng::new(3);
    for _ in 0..200 {
        let mut tree = tree();
        let mut url = || {
            let (a, b) = (prng.bits(), prng.bits());
            format!("/shop/{}/order/a1{a:016x}?id={b}&key={a}", prng.below(1000))
        };
        let leaves: Vec<_> = (0..30)
            .map(|_| tree.add(&get(&url()), Weight::ARRIVAL))
            .collect();
        assert!(leaves.iter().all(|leaf| *leaf == leaves[0]));
        assert_eq!(tree.name(leaves[0]), "GET /shop/{n}/order/{hex}?id&key");
    }
}

#[test]
fn patterns_name_classes_before_the_tree_does() {
    let patterns = vec![
        Pattern::new("/search/*", Some("search")).unwrap(),
        Pattern::new("/*", None).unwrap(),
        Pattern::new("/never", None).unwrap(),
    ];
    let mut table = ClassTable::new(patterns, TreeConfig::default());
    for (target, class, name) in [
        ("/search/shoes", 1, "search"),
        ("/never", 2, "/*"),
        ("/", 4, "GET /"),
    ] {
        let given = table.add(&get(target), Weight::ARRIVAL);
        assert_eq!(given, ClassId(class));
        assert_eq!(table.name(given).as_deref(), Some(name));
    }
    assert_eq!(table.name(ClassId::OTHER).as_deref(), Some("other"));
    assert_eq!(table.name(ClassId(5)), None);
    assert_eq!(table.name(ClassId(u16::MAX)), None);
}

#[test]
fn so_many_classes_have_names_and_no_more() {
    let wide = TreeConfig {
        children_max: 1000,
        ..TreeConfig::default()
    };
    let mut table = ClassTable::new(Vec::new(), wide);
    let add = |table: &mut ClassTable, page: usize, times: u32| {
        let target = format!("/page-{page}");
        (0..times).fold(ClassId::OTHER, |_, _| {
            table.add(&get(&target), Weight::ARRIVAL)
        })
    };
    let named: Vec<_> = (0..NAMED_MAX).map(|it| add(&mut table, it, 1)).collect();
    assert!(!named.contains(&ClassId::OTHER));
    assert_eq!(add(&mut table, NAMED_MAX, 1), ClassId::OTHER);
    // Heavier ones get names, and the lighter keep theirs as long as they are among those that may.
    let retired = |table: &mut ClassTable, pages: std::ops::Range<usize>| {
        for page in pages {
            add(table, page, 2);
        }
        table.rank(Timestamp::from_millis(1000));
        std::iter::from_fn(|| table.poll_change())
            .filter(|change| matches!(change, Change::Retired(_)))
            .count()
    };
    let (first, full) = (NAMED_MAX + 1, RANK_KEPT + 1);
    assert_eq!(retired(&mut table, first..full), 0);
    assert_eq!(retired(&mut table, full..full + 1), 1);
}

#[test]
fn a_number_keeps_its_name_and_rests_before_it_gets_another() {
    let mut table = ClassTable::new(Vec::new(), TreeConfig::default());
    let mut named = std::collections::BTreeMap::new();
    let mut retired = std::collections::BTreeMap::new();
    let mut prng = Prng::new(11);
    for second in 0..1500_u64 {
        let now = Timestamp::from_millis(1000 * second);
        for _ in 0..40 {
            // The first directories change every five minutes, and all weigh about the same.
            let (era, page) = (second / 300, prng.below(15));
            let target = format!(
                "/d{}-{era}/{}/p{page}",
                prng.below(12),
                ["a", "b"][prng.below(2)]
            );
            let class = table.add(&get(&target), Weight::finished(0.01));
            assert!(class.index() < SLOTS);
            if class != ClassId::OTHER {
                assert!(table.name(class).is_some());
            }
        }
        if second % 10 == 9 {
            table.rank(now);
        }
        while let Some(change) = table.poll_change() {
            match change {
                Change::Named(class, name) => {
                    assert_eq!(named.insert(class, name), None, "it still has a name");
                    if let Some(at) = retired.remove(&class) {
                        assert!(now.seconds_since(at) >= 150.0);
                    }
                }
                Change::Retired(class) => {
                    assert!(named.remove(&class).is_some());
                    retired.insert(class, now);
                }
            }
        }
        for (class, name) in &named {
            // A merged leaf loses its number at the next ranking; until then it is `{other}`.
            let now = table.name(*class);
            assert!(now.as_ref() == Some(name) || now.as_deref() == Some("{other}"));
        }
    }
    assert!(named.len() <= 256);
    assert!(!retired.is_empty(), "some numbers were retired");
}

#[test]
fn a_site_that_gets_a_name_keeps_its_classes_and_what_throttles_call_them() {
    let mut table = ClassTable::new(Vec::new(), TreeConfig::default());
    let class = table.add(&get("/search?q=1"), Weight::finished(0.1));
    assert_eq!(table.site(class), Some(""));
    assert!(
        !table.rename_site("blog", "wiki"),
        "there is none of that name"
    );
    assert!(table.rename_site("", "shop"));
    assert_eq!(table.site(class), Some("shop"));
    assert_eq!(table.name(class).as_deref(), Some("shop GET /search?q"));
    let pattern = table.class_pattern(class);
    assert_eq!(pattern.as_deref(), Some("shop GET /search?q"));
    let of_shop = Request {
        site: "shop",
        ..get("/search?q=1")
    };
    assert_eq!(table.add(&of_shop, Weight::finished(0.1)), class);
    assert_ne!(table.add(&get("/search?q=1"), Weight::finished(0.1)), class);
    assert!(!table.rename_site("", "shop"), "another one has the name");
    assert_eq!(table.site(ClassId::OTHER), None);
}
