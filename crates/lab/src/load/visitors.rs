//! Visitors of the auction site: from which page to which with what probability, as
//! `assets/auction/visitors.txt` has it.
//!
//! | visitors | what they do |
//! |---|---|
//! | browsers | look around: newest items of a category, items, bids, members |
//! | searchers | search by category, by region and now and then everywhere, look at what they find |
//! | members | look at their own page, bid, buy, comment, sell |
//!
//! The kinds of visitors are separate populations for a reason. Where all follow one table, each page has a
//! fixed share of all requests, however long it takes:
//!
//! ```text
//! requests/s <= capacity of the database / sum over pages of (share x what the page costs it)
//! ```
//!
//! whatever goes first, so holding one page back holds back all others, and nothing is gained that is not
//! saved. Searchers and browsers are separate populations here, so browsers need not wait for searches.
//!
//! The tables are our own; Elephants-2005 gives none.

use super::{Draw, Page, Walk};
use crate::auction::{CATEGORIES, ITEMS, MEMBERS, REGIONS};

const TABLES: &str = include_str!("../../assets/auction/visitors.txt");
/// The title above the pages.
const PAGES: &str = "pages";
/// Amounts of bids.
const AMOUNTS: u32 = 500;

/// A class of pages that are dear by nature, as an operator that knows the site would name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elephant {
    /// As the pattern of a throttle.
    pub class: &'static str,
    /// How their paths begin.
    pub prefix: &'static str,
    /// Most of them at once, as that operator would set it.
    pub at_once: u32,
}

/// The elephants of this site.
pub const ELEPHANTS: [Elephant; 2] = [
    Elephant {
        class: "GET /search/*",
        prefix: "/search/",
        at_once: 2,
    },
    Elephant {
        class: "GET /me/*",
        prefix: "/me/",
        at_once: 1,
    },
];

/// Whether a path is an elephant's.
#[must_use]
pub fn is_elephant(path: &str) -> bool {
    ELEPHANTS.iter().any(|it| path.starts_with(it.prefix))
}

/// Kinds of visitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visitor {
    /// Look around.
    Browser,
    /// Search.
    Searcher,
    /// Trade.
    Member,
}

impl Visitor {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Browser, Self::Searcher, Self::Member];

    /// Its name in tables and results.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Browser => "browsers",
            Self::Searcher => "searchers",
            Self::Member => "members",
        }
    }
}

/// The lines below a title, each a page's name and what stands behind it.
fn section(title: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = TABLES.lines().skip_while(move |line| *line != title);
    let below = lines.skip(1).take_while(|line| !line.is_empty());
    below.filter_map(|line| line.split_once(": "))
}

/// A page's method and path, with holes.
fn address(page: &str) -> Option<(&'static str, &'static str)> {
    let mut found = section(PAGES).filter(|(name, _)| *name == page);
    found.next()?.1.split_once(' ')
}

/// A page's class, as front-ends name it that fold numbers: `GET /item/{n}/bids`.
#[must_use]
pub fn class(page: &str) -> Option<String> {
    let (method, path) = address(page)?;
    let path = path.split('?').next()?;
    let part = |part: &'static str| if part.starts_with('{') { "{n}" } else { part };
    let folded: Vec<_> = path.split('/').map(part).collect();
    Some(format!("{method} {}", folded.join("/")))
}

/// The way of a kind of visitors through the site.
#[must_use]
pub fn walk(visitor: Visitor) -> Walk {
    let names: Vec<_> = section(visitor.label()).map(|(page, _)| page).collect();
    let step = |text: &str| {
        let (page, share) = text.rsplit_once(' ')?;
        let place = names.iter().position(|name| *name == page)?;
        Some((place, share.parse().ok()?))
    };
    let page = |(name, next): (&str, &str)| {
        let (method, path) = address(name)?;
        Some(Page {
            name: name.into(),
            post: method == "POST",
            path: path.into(),
            next: next.split(", ").filter_map(step).collect(),
        })
    };
    Walk {
        pages: section(visitor.label()).filter_map(page).collect(),
        draws: draws(),
    }
}

/// What stands in the holes of paths. Popular categories are the large ones.
fn draws() -> Vec<Draw> {
    let draw = |name: &str, count, alpha| Draw {
        name: name.into(),
        count,
        alpha,
    };
    vec![
        draw("category", CATEGORIES, 0.3),
        draw("region", REGIONS, 0.0),
        draw("item", ITEMS, 0.5),
        draw("member", MEMBERS, 0.3),
        draw("amount", AMOUNTS, 0.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_understood() {
        for visitor in Visitor::ALL {
            let walk = walk(visitor);
            let lines: Vec<_> = section(visitor.label()).collect();
            assert_eq!(walk.pages.len(), lines.len(), "{visitor:?}");
            for (page, (name, next)) in walk.pages.iter().zip(&lines) {
                assert_eq!(
                    page.next.len(),
                    next.split(", ").count(),
                    "{visitor:?}: {name}"
                );
            }
            assert_eq!(walk.pages[0].name, "home");
            let sum: f64 = walk.shares().iter().sum();
            assert!((sum - 1.0).abs() < 1e-9);
        }
        assert_eq!(section(PAGES).count(), 18);
    }

    #[test]
    fn elephants_are_few_but_for_searchers() {
        let share = |visitor| {
            let walk = walk(visitor);
            let pages = walk.pages.iter().zip(walk.shares());
            let dear = pages.filter(|(page, _)| is_elephant(&page.path));
            dear.map(|(_, share)| share).sum::<f64>()
        };
        assert!(share(Visitor::Browser).abs() < 1e-9);
        let share_of = [Visitor::Searcher, Visitor::Member].map(share);
        assert!((0.7..0.9).contains(&share_of[0]), "{share_of:?}");
        assert!((0.01..0.1).contains(&share_of[1]), "{share_of:?}");
    }

    #[test]
    fn classes_are_paths_with_their_numbers_folded() {
        let classes = ["home", "view bids", "bid", "about me"].map(class);
        let expected = [
            "GET /",
            "GET /item/{n}/bids",
            "POST /item/{n}/bid",
            "GET /me/{n}",
        ];
        assert_eq!(classes, expected.map(|it| Some(it.to_owned())));
        assert_eq!(class("no such page"), None);
    }
}
