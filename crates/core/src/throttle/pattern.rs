//! Which requests an order is for: the one place that tells.
//!
//! ```text
//! [SITE] METHOD PATH        GET /search/*      shop POST /cart/{n}/items      * /report/*.pdf
//!
//! METHOD   as the request has it, or `*` for any
//! PATH     segment by segment, without the query:
//!            text     this very text
//!            {…}      any one segment, whatever stands between the braces
//!            *        any one segment; as the last, all that is left, of any depth
//!            *text    as the last: all that is left, if it ends so
//! ```
//!
//! Where several orders fit a request, the one that says more counts: one with a site before one
//! without, then one with a method, then the one with more segments of text.
//!
//! Failure case: paths are compared as they were sent; a client that writes `%73` for `s` is of
//! another class.

use std::fmt;
use std::str::FromStr;

/// Longest pattern, bytes.
const BYTES_MAX: usize = 512;
/// Most segments of a path.
const SEGMENTS_MAX: usize = 32;

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not two or three words.
    #[error(
        "a class is a method and a path, like `GET /search/*`, with a site before them if it is one site's"
    )]
    Words,
    /// Not a method.
    #[error("the method must be like `GET`, or `*` for any")]
    Method,
    /// Not a path.
    #[error("the path must begin with `/`")]
    Path,
    /// It has a query.
    #[error("a query is no part of a class")]
    Query,
    /// A star in the wrong place.
    #[error("`*` stands for a whole segment, or begins the last one")]
    Star,
    /// Too long.
    #[error("a class has at most {BYTES_MAX} bytes and {SEGMENTS_MAX} segments")]
    Long,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    Text(String),
    Any,
    /// All that is left, if it ends so.
    Rest(String),
}

/// A class of requests; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassPattern {
    site: Option<String>,
    method: Option<String>,
    segments: Vec<Segment>,
    text: String,
}

impl ClassPattern {
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

    /// Whether a request is of the class.
    pub fn matches(&self, site: &str, method: &str, path: &str) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        is(&self.site, site) && is(&self.method, method) && self.has_path(path)
    }

    fn has_path(&self, path: &str) -> bool {
        let Some(mut left) = path.strip_prefix('/').map(Some) else {
            return false;
        };
        for segment in &self.segments {
            let Some(rest) = left else { return false };
            if let Segment::Rest(end) = segment {
                return rest.ends_with(end.as_str());
            }
            let (found, after) = match rest.split_once('/') {
                Some((found, after)) => (found, Some(after)),
                None => (rest, None),
            };
            let fits = match segment {
                Segment::Text(text) => text == found,
                Segment::Any => !found.is_empty(),
                Segment::Rest(_) => true,
            };
            if !fits {
                return false;
            }
            left = after;
        }
        left.is_none()
    }

    /// How much it says: the greater counts.
    pub(super) fn weight(&self) -> impl Ord + use<> {
        let is_text = |segment: &&Segment| match segment {
            Segment::Text(_) => true,
            Segment::Any | Segment::Rest(_) => false,
        };
        let texts = self.segments.iter().filter(is_text).count();
        let (site, method) = (self.site.is_some(), self.method.is_some());
        (site, method, texts, self.segments.len(), self.text.len())
    }
}

impl fmt::Display for ClassPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl FromStr for ClassPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.len() > BYTES_MAX {
            return Err(PatternError::Long);
        }
        let words: Vec<_> = text.split_whitespace().collect();
        let (site, method, path) = match words.as_slice() {
            [method, path] => (None, *method, *path),
            [site, method, path] => (Some((*site).to_owned()), *method, *path),
            _ => return Err(PatternError::Words),
        };
        let is_method = |method: &str| method.bytes().all(|byte| byte.is_ascii_uppercase());
        if method != "*" && !is_method(method) {
            return Err(PatternError::Method);
        }
        if path.contains(['?', '#']) {
            return Err(PatternError::Query);
        }
        let path = path.strip_prefix('/').ok_or(PatternError::Path)?;
        let parts: Vec<_> = path.split('/').collect();
        if parts.len() > SEGMENTS_MAX {
            return Err(PatternError::Long);
        }
        let last = parts.len() - 1;
        let segments = parts.iter().enumerate();
        let segments = segments.map(|(place, part)| segment(part, place == last));
        Ok(Self {
            site,
            method: (method != "*").then(|| method.to_owned()),
            segments: segments.collect::<Result<_, _>>()?,
            text: words.join(" "),
        })
    }
}

fn segment(text: &str, is_last: bool) -> Result<Segment, PatternError> {
    let after_star = text.strip_prefix('*');
    match after_star {
        Some(end) if is_last && !end.contains('*') => Ok(Segment::Rest(end.into())),
        Some("") => Ok(Segment::Any),
        Some(_) => Err(PatternError::Star),
        None if text.starts_with('{') && text.ends_with('}') => Ok(Segment::Any),
        None if text.contains('*') => Err(PatternError::Star),
        None => Ok(Segment::Text(text.into())),
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
    fn a_class_is_told_by_site_method_and_path() {
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
    fn what_is_no_pattern_is_told() {
        let long = format!("GET /{}", "a".repeat(BYTES_MAX));
        let deep = format!("GET {}", "/a".repeat(SEGMENTS_MAX + 1));
        for (text, expected) in [
            ("", PatternError::Words),
            ("/search", PatternError::Words),
            ("a b c d", PatternError::Words),
            ("get /search", PatternError::Method),
            ("GET search", PatternError::Path),
            ("GET /search?q", PatternError::Query),
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
