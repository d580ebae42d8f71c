//! Which requests a throttle is for: the one place that says so.
//!
//! ```text
//! [SITE] METHOD PATH         GET /search/*      shop POST /cart/{n}/items      * /report/*.pdf
//! [SITE] METHOD PATH?NAMES   GET /search?q      shop GET /search?      GET /item/{*^new}?
//! NAME                       cart               of a class that the configuration names
//!
//! METHOD   as the request has it, or `*` for any
//! PATH     segment by segment, whatever the query:
//!            text     this very text
//!            {n}      a number; {uuid}, {date}, {hex}, {tok}: what discovery calls so
//!            {…}      with anything else between the braces: any one segment
//!            *        any one segment; as the last, all that is left, of any depth
//!            *text    as the last: all that is left, if it ends so
//! PATH?    one class of discovery, no request less or more: `classes/selector.rs` has the form. Requests of
//!          classes that the configuration names are none of these.
//! ```
//!
//! Where a client wrote what means something here, such as `*`, it is percent-encoded: `%2A` is a star.
//!
//! Where several throttles fit a request, the one that says more counts: one with a site before one
//! without, then one with a method, then the one with more segments of text, then the one of a class.
//!
//! Failure case: paths are compared as they were sent; a client that writes `%73` for `s` is of
//! another class.

mod path;

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::classes::{Level, Pattern, Request, Selector, SelectorError, query_of};
use path::Path;

/// Longest pattern, bytes; of a class of discovery alone it may be longer.
const BYTES_MAX: usize = 512;

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not two or three words.
    #[error(
        "a class is a method and a path, like `GET /search/*`, with a site before them if it is one site's"
    )]
    Words,
    /// A blank in the path.
    #[error("a path has no blanks: in a URL one is `%20`")]
    Blank,
    /// Not a method.
    #[error("the method must be like `GET`, or `*` for any")]
    Method,
    /// Not a path.
    #[error("the path must begin with `/`")]
    Path,
    /// What follows `?` is no class.
    #[error(
        "`?` ends a class as `tidegate culprits --json` gives it in `pattern`, like `GET /search?q`; without `?` any query is meant"
    )]
    Query,
    /// No request is of the class that follows.
    #[error(
        "no request is of a class like that: names of a query are sorted and without values, like `GET /search?page&q`, \
         and numbers and the like are folded, like `GET /item/{{n}}?`"
    )]
    Nothing,
    /// A brace in the wrong place.
    #[error(
        "`{{` and `}}` stand around a whole segment, like `{{n}}`; in a URL they are `%7B` and `%7D`"
    )]
    Brace,
    /// A star in the wrong place.
    #[error("`*` stands for a whole segment, or begins the last one")]
    Star,
    /// Too long.
    #[error("a class has at most {BYTES_MAX} bytes and 32 segments")]
    Long,
}

/// A class of requests; see the module. Two of the same text are the same.
#[derive(Clone, Debug)]
pub struct ClassPattern {
    site: Option<String>,
    method: Option<String>,
    which: Which,
    text: String,
}

#[derive(Clone, Debug)]
enum Which {
    Path(Path),
    /// What is folded there, but for requests of these classes.
    Class(Selector, Arc<[Pattern]>),
    /// The class at this place among those of the configuration: the first that fits counts.
    Named(usize, Arc<[Pattern]>),
}

impl PartialEq for ClassPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ClassPattern {}

impl ClassPattern {
    /// Reads a text; `named` are the classes of the configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, named: &Arc<[Pattern]>) -> Result<Self, PatternError> {
        if let Some(place) = named.iter().position(|it| it.name() == text) {
            return Ok(Self {
                site: None,
                method: named[place].method().map(str::to_owned),
                which: Which::Named(place, Arc::clone(named)),
                text: text.to_owned(),
            });
        }
        let is_class = query_of(text).is_some();
        if text.len() > BYTES_MAX && !is_class {
            return Err(PatternError::Long);
        }
        let words: Vec<_> = text.split_whitespace().collect();
        let (site, method, path) = match words.as_slice() {
            [before @ .., _] if before.iter().any(|word| word.starts_with('/')) => {
                return Err(PatternError::Blank);
            }
            [method, path] => (None, *method, *path),
            [site, method, path] => (Some((*site).to_owned()), *method, *path),
            _ => return Err(PatternError::Words),
        };
        let is_method = |method: &str| method.bytes().all(|byte| byte.is_ascii_uppercase());
        if method != "*" && !is_method(method) {
            return Err(PatternError::Method);
        }
        if path.contains('#') {
            return Err(PatternError::Query);
        }
        let which = match is_class {
            false => Which::Path(Path::parse(path)?),
            true => Which::Class(selector(path)?, Arc::clone(named)),
        };
        Ok(Self {
            site,
            method: (method != "*").then(|| method.to_owned()),
            which,
            text: words.join(" "),
        })
    }

    /// The text that reads to this pattern: its name.
    pub fn name(&self) -> &str {
        &self.text
    }

    /// Its site, if it is one site's.
    pub fn site(&self) -> Option<&str> {
        self.site.as_deref()
    }

    /// Its method, if it has one method.
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// Whether a request is of the class; its target is path and query, as they were sent.
    pub fn matches(&self, site: &str, method: &str, target: &str) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        if !is(&self.site, site) || !is(&self.method, method) {
            return false;
        }
        let request = Request {
            site,
            method,
            target,
        };
        match &self.which {
            Which::Path(path) => path.matches(target.split('?').next().unwrap_or_default()),
            Which::Class(class, named) => {
                let request = request.cut();
                class.selects(request.target) && !named.iter().any(|it| it.fits(&request))
            }
            Which::Named(place, named) => {
                let request = request.cut();
                named.iter().position(|it| it.fits(&request)) == Some(*place)
            }
        }
    }

    /// Whether all requests of a class of discovery are of this one.
    pub fn covers(&self, class: &Self) -> bool {
        let is = |own: &Option<String>, other: &Option<String>| own.is_none() || own == other;
        if !is(&self.site, &class.site) || !is(&self.method, &class.method) {
            return false;
        }
        match (&self.which, &class.which) {
            (Which::Path(path), Which::Class(class, _)) => path.covers(class),
            (Which::Path(_), Which::Named(place, named)) => {
                self == class || named[*place].class_pattern() == self.text
            }
            (Which::Path(_) | Which::Class(..) | Which::Named(..), _) => self == class,
        }
    }

    /// Which of two says more, and so counts where both fit.
    pub fn compare(&self, other: &Self) -> Ordering {
        self.weight().cmp(&other.weight())
    }

    /// How much it says: the greater counts.
    pub(super) fn weight(&self) -> impl Ord + use<> {
        let (texts, segments, is_class) = match &self.which {
            Which::Path(path) => {
                let (texts, segments) = path.weight();
                (texts, segments, false)
            }
            Which::Class(class, _) => {
                let is_text = |level: &&Level| matches!(level, Level::Name(_));
                let texts = class.path().iter().filter(is_text).count();
                (texts, class.path().len(), true)
            }
            Which::Named(..) => (0, 0, true),
        };
        let (site, method) = (self.site.is_some(), self.method.is_some());
        (site, method, texts, segments, is_class, self.text.len())
    }
}

fn selector(path: &str) -> Result<Selector, PatternError> {
    path.parse().map_err(|error| match error {
        _ if !path.starts_with('/') => PatternError::Path,
        SelectorError::Long => PatternError::Long,
        SelectorError::Text => PatternError::Query,
        SelectorError::Nothing => PatternError::Nothing,
    })
}

impl fmt::Display for ClassPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// Where the configuration names no classes.
impl FromStr for ClassPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        Self::parse(text, &Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, request: (&str, &str, &str)) -> bool {
        let pattern: ClassPattern = pattern.parse().unwrap();
        pattern.matches(request.0, request.1, request.2)
    }

    #[test]
    fn a_class_is_known_by_site_method_and_path() {
        for (pattern, method, path, expected) in [
            ("GET /search/*", "GET", "/search/", true),
            ("GET /search/*", "GET", "/search/a/b", true),
            ("GET /search/*", "GET", "/search", false),
            ("GET /search/*", "GET", "/searches/a", false),
            ("GET /search/*", "POST", "/search/a", false),
            ("* /search", "POST", "/search", true),
            ("* /search", "POST", "/search/", false),
            ("GET /", "GET", "/", true),
            ("GET /*", "GET", "/", true),
            ("GET /*", "GET", "/a/b", true),
            ("GET /item/{n}/bids", "GET", "/item/17/bids", true),
            ("GET /item/*/bids", "GET", "/item/17/bids", true),
            ("GET /item/{n}/bids", "GET", "/item/new/bids", false),
            ("GET /item/{id}/bids", "GET", "/item/new/bids", true),
            ("GET /search", "GET", "/search?q", true),
            ("GET /search?", "GET", "/search?q", false),
            ("GET /search?q", "GET", "/search?q=1", true),
            ("GET /search?q", "POST", "/search?q=1", false),
            ("GET /%2A", "GET", "/*", true),
            ("GET /%2A", "GET", "/a", false),
            ("GET /item/{n}/bids", "GET", "/item//bids", false),
            ("GET /item/{n}/bids", "GET", "/item/17/bids/1", false),
            ("GET /img/*.gif", "GET", "/img/a/b.gif", true),
            ("GET /img/*.gif", "GET", "/img/a/b.png", false),
            ("GET /a", "GET", "a", false),
            ("GET /a", "GET", "", false),
            ("OPTIONS /*", "OPTIONS", "*", false),
            ("shop GET /a", "GET", "/a", true),
            ("blog GET /a", "GET", "/a", false),
        ] {
            let request = ("shop", method, path);
            assert_eq!(
                matches(pattern, request),
                expected,
                "{pattern}: {request:?}"
            );
        }
    }

    #[test]
    fn whoever_says_more_counts() {
        let weight = |text: &str| text.parse::<ClassPattern>().unwrap().weight();
        let order = [
            "shop * /*",
            "GET /search/paid/*",
            "GET /search/*/*",
            "GET /search/*",
            "GET /*",
            "* /search/paid/all",
        ];
        for pair in order.windows(2) {
            assert!(weight(pair[0]) > weight(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn a_class_of_the_configuration_has_no_request_of_another() {
        let patterns = ["/cart/new", "/cart/*"].map(|text| Pattern::new(text, None).unwrap());
        let cart = Pattern::new("POST /cart/*", Some("cart")).unwrap();
        let named: Arc<[Pattern]> = patterns.into_iter().chain([cart]).collect();
        let matches = |text: &str, method: &str, target: &str| {
            let pattern = ClassPattern::parse(text, &named).unwrap();
            assert_eq!(pattern.name(), text);
            pattern.matches("shop", method, target)
        };
        for (text, target, expected) in [
            ("/cart/*", "/cart/17?x", true),
            ("/cart/*", "/cart/new", false),
            ("/cart/*", "/cart/", false),
            ("GET /cart/{n}?", "/cart/17", false),
            ("GET /item/{n}?", "/item/17", true),
            ("GET /cart/*", "/cart/17", true),
        ] {
            assert_eq!(matches(text, "GET", target), expected, "{text} {target}");
        }
        assert!(
            !matches("cart", "POST", "/cart/17"),
            "an earlier class has it"
        );
    }

    #[test]
    fn an_order_on_a_path_covers_the_classes_there() {
        let cart = Pattern::new("/cart/*", Some("cart")).unwrap();
        let named: Arc<[Pattern]> = Arc::new([cart]);
        let parse = |text: &str| ClassPattern::parse(text, &named).unwrap();
        for (wide, class, expected) in [
            ("GET /search", "GET /search?q", true),
            ("GET /search", "GET /search?", true),
            ("* /search", "shop GET /search?", true),
            ("blog GET /search", "shop GET /search?", false),
            ("GET /search", "GET /search/{n}?", false),
            ("GET /search?q", "GET /search?", false),
            ("GET /", "GET /?q", true),
            ("GET /*", "GET /?", true),
            ("GET /item/{n}", "GET /item/{n}?q", true),
            ("GET /item/{n}", "GET /item/{*}?", false),
            ("GET /item/{id}", "GET /item/{*}?", true),
            ("GET /item/*", "GET /item/{*^new}/x?", true),
            ("GET /img/*.png", "GET /img/a/*.png?", true),
            ("GET /img/*.png", "GET /img/a/*.gif?", false),
            ("GET /img/*.png", "GET /img/{*.*}?", false),
            ("* /cart/*", "cart", true),
            ("cart", "cart", true),
            ("cart", "GET /cart?", false),
        ] {
            assert_eq!(
                parse(wide).covers(&parse(class)),
                expected,
                "{wide}: {class}"
            );
        }
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        let long = format!("GET /{}", "a".repeat(BYTES_MAX));
        let deep = format!("GET {}", "/a".repeat(33));
        for (text, expected) in [
            ("", PatternError::Words),
            ("/search", PatternError::Words),
            ("a b c d", PatternError::Words),
            ("get /search", PatternError::Method),
            ("GET search", PatternError::Path),
            ("GET /search?q r", PatternError::Blank),
            ("GET /x y", PatternError::Blank),
            ("shop GET /x y", PatternError::Blank),
            ("GET /search?q=1", PatternError::Nothing),
            ("GET /search?q&page", PatternError::Nothing),
            ("GET /item/17?", PatternError::Nothing),
            ("GET /{", PatternError::Brace),
            ("GET /a/}b", PatternError::Brace),
            ("GET /search/*?", PatternError::Query),
            ("GET /search#q", PatternError::Query),
            ("GET search?", PatternError::Path),
            ("GET /a*", PatternError::Star),
            ("GET /*a/b", PatternError::Star),
            ("GET /**", PatternError::Star),
            (&long, PatternError::Long),
            (&deep, PatternError::Long),
        ] {
            assert_eq!(text.parse::<ClassPattern>(), Err(expected), "{text}");
        }
        let pattern: ClassPattern = "  shop  GET   /a ".parse().unwrap();
        assert_eq!(
            (pattern.name(), pattern.site()),
            ("shop GET /a", Some("shop"))
        );
        assert_eq!(pattern.method(), Some("GET"));
        let any: ClassPattern = "* /a".parse().unwrap();
        assert_eq!((any.site(), any.method()), (None, None));
    }
}
