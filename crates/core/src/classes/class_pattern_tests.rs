//! A throttle that is made from a class is for the requests of the class, and for no others: single URLs that
//! were made to look like wildcards. For any URLs it is an invariant of the fuzz target `classes`.

use std::sync::Arc;

use super::*;
use crate::throttle::ClassPattern;

#[test]
fn a_star_in_a_url_is_a_star_and_no_wildcard() {
    let mut tree = PathTree::new(TreeConfig::default());
    let get = |target| Request {
        site: "",
        method: "GET",
        target,
    };
    for (target, name, pattern) in [
        ("/*?q", "GET /%2A?q", "GET /%2A?q"),
        ("/**", "GET /%2A%2A", "GET /%2A%2A?"),
        ("/{id}", "GET /%7Bid%7D", "GET /%7Bid%7D?"),
        ("/", "GET /", "GET /?"),
    ] {
        let leaf = tree.add(&get(target), Weight::ARRIVAL);
        assert_eq!(tree.name(leaf), name);
        assert_eq!(tree.class_pattern(leaf).as_deref(), Some(pattern));
        let pattern: ClassPattern = pattern.parse().unwrap();
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
    let mut pattern = |target| {
        let request = Request {
            site: "",
            method: "GET",
            target,
        };
        let class = table.add(&request, Weight::ARRIVAL);
        ClassPattern::parse(&table.class_pattern(class).unwrap(), &named).unwrap()
    };
    let (cart, other) = (pattern("/cart/17"), pattern("/basket/17"));
    assert_eq!((cart.name(), other.name()), ("cart", "GET /basket/{n}?"));
    assert!(cart.matches("", "POST", "/cart/new?x") && !cart.matches("", "GET", "/basket/17"));
    assert!(other.matches("", "GET", "/basket/17") && !other.matches("", "GET", "/cart/17"));
    assert_eq!(table.class_pattern(ClassId::OTHER), None);
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
    let pattern: ClassPattern = tree.class_pattern(leaf).unwrap().parse().unwrap();
    assert_eq!(pattern.name(), "GET /search?q");
    assert!(pattern.matches("", "GET", &long));
}
