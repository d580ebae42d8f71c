//! An order that is made from a class is for the requests of the class, and for no others: with URLs that were
//! made to look like wildcards.

use std::sync::Arc;

use super::*;
use crate::prng::Prng;
use crate::throttle::ClassPattern;

/// Segments and names of queries that a hostile client may send, and harmless ones beside them.
const WORDS: &[&str] = &[
    "*",
    "**",
    "{*}",
    "{n}",
    "{id}",
    "{uuid}",
    "{*^a}",
    "{*.*}",
    "*.png",
    "{^}",
    "%2A",
    "%2a",
    "%7Bn%7D",
    "?",
    "a?b",
    "a b",
    "a\tb",
    "a\nb",
    "\u{7f}",
    "\"",
    "'",
    "\\",
    "|",
    "^",
    "a|b",
    "",
    ".",
    "..",
    ";",
    "a;b",
    ";.png",
    "#",
    "=",
    "&",
    "GET",
    "{other}",
    "other",
    "a",
    "b",
    "new",
    "17",
    "2024-05-31",
    "2024-05-31T.png",
    "deadbee1",
    "a.png",
    "b.css",
    "B.PNG",
    "caf\u{e9}",
    "\u{202e}",
    "\u{a0}",
    "0123456789012345678901234567890123456789012345678-",
    "a-long-name-that-is-cut-somewhere-in-the-middle-******",
    "Abcdefghijklm123",
];

fn word(prng: &mut Prng) -> &'static str {
    WORDS[prng.below(WORDS.len())]
}

fn target(prng: &mut Prng) -> String {
    let mut target = String::new();
    for _ in 0..prng.below(4) {
        target.push('/');
        target.push_str(word(prng));
    }
    if target.is_empty() {
        target.push('/');
    }
    for nth in 0..prng.below(3) {
        target.push(if nth == 0 { '?' } else { '&' });
        target.push_str(word(prng));
    }
    target
}

#[test]
fn an_order_from_a_class_has_the_requests_of_the_class_and_no_others() {
    let mut made = 0;
    for seed in 0..60 {
        let mut prng = Prng::new(seed);
        let mut tree = PathTree::new(TreeConfig {
            children_max: 1 + prng.below(20),
            ..TreeConfig::default()
        });
        let targets: Vec<_> = (0..400).map(|_| target(&mut prng)).collect();
        let request = |target| Request {
            site: "shop",
            method: "GET",
            target,
        };
        for target in &targets[..200] {
            tree.add(&request(target), Weight::ARRIVAL);
        }
        for (leaf, _) in tree.leaves() {
            let order = tree.order(leaf).unwrap();
            made += 1;
            let pattern: ClassPattern = order.parse().unwrap();
            assert_eq!(pattern.name(), order);
            for target in &targets {
                let folded = tree.find(&request(target)) == Some(leaf);
                let name = tree.name(leaf);
                assert_eq!(
                    pattern.matches("shop", "GET", target),
                    folded,
                    "seed {seed}: {order} ({name}): {target:?}"
                );
                assert!(
                    !pattern.matches("blog", "GET", target)
                        && !pattern.matches("shop", "POST", target)
                );
            }
        }
    }
    assert!(made > 800, "{made}");
}

#[test]
fn a_star_in_a_url_is_a_star_and_no_wildcard() {
    let mut tree = PathTree::new(TreeConfig::default());
    let get = |target| Request {
        site: "",
        method: "GET",
        target,
    };
    for (target, name, order) in [
        ("/*?q", "GET /%2A?q", "GET /%2A?q"),
        ("/**", "GET /%2A%2A", "GET /%2A%2A?"),
        ("/{id}", "GET /%7Bid%7D", "GET /%7Bid%7D?"),
        ("/", "GET /", "GET /?"),
    ] {
        let leaf = tree.add(&get(target), Weight::ARRIVAL);
        assert_eq!(tree.name(leaf), name);
        assert_eq!(tree.order(leaf).as_deref(), Some(order));
        let pattern: ClassPattern = order.parse().unwrap();
        assert!(pattern.matches("shop", "GET", target), "{target}");
        for other in ["/cart", "/17", "/a/b?q", "/cart?q"] {
            assert!(!pattern.matches("shop", "GET", other), "{target}: {other}");
        }
    }
}

#[test]
fn what_the_configuration_names_is_left_to_it() {
    let cart = Pattern::new("/cart/*", Some("cart")).unwrap();
    let named: Arc<[Pattern]> = Arc::new([cart.clone()]);
    let mut table = ClassTable::new(vec![cart], TreeConfig::default());
    let mut order = |target| {
        let request = Request {
            site: "",
            method: "GET",
            target,
        };
        let class = table.add(&request, Weight::ARRIVAL);
        ClassPattern::parse(&table.order(class).unwrap(), &named).unwrap()
    };
    let (cart, other) = (order("/cart/17"), order("/basket/17"));
    assert_eq!((cart.name(), other.name()), ("cart", "GET /basket/{n}?"));
    assert!(cart.matches("", "POST", "/cart/new?x") && !cart.matches("", "GET", "/basket/17"));
    assert!(other.matches("", "GET", "/basket/17") && !other.matches("", "GET", "/cart/17"));
    assert_eq!(table.order(ClassId::OTHER), None);
}

#[test]
fn a_long_target_is_of_the_class_that_its_beginning_folds_into() {
    let long = format!("/search?q={}&page=2", "x".repeat(WORDS_BYTES_MAX));
    let request = Request {
        site: "",
        method: "GET",
        target: &long,
    };
    let mut tree = PathTree::new(TreeConfig::default());
    let leaf = tree.add(&request.cut(), Weight::ARRIVAL);
    let pattern: ClassPattern = tree.order(leaf).unwrap().parse().unwrap();
    assert_eq!(pattern.name(), "GET /search?q");
    assert!(pattern.matches("", "GET", &long));
}
