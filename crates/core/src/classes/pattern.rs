//! Classes that the configuration names.
//!
//! ```text
//! [METHOD ]/path     "*" within a segment: any bytes of it; as the last segment: all that follows
//! /search/*          /search/shoes, /search/shoes/red, not /search
//! POST /cart/*/item  POST /cart/17/item
//! ```
//!
//! Input: a request's method and target; query, fragment and empty segments mean nothing. The
//! first pattern that fits names the class. Failure case: a pattern behind a wider one never fits.
//! Cost: one walk over the path for each pattern, at most [`PATTERNS_MAX`].

use super::Request;

/// Most patterns.
pub const PATTERNS_MAX: usize = 100;
/// Longest pattern, bytes.
const PATTERN_BYTES_MAX: usize = 512;

/// A pattern and what it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    name: Box<str>,
    method: Option<Box<str>>,
    segments: Vec<Box<str>>,
}

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// No path.
    #[error("a pattern is a path that begins with `/`, with a method before it if one is meant")]
    Path,
    /// With a query or a fragment.
    #[error("a query is no part of a pattern")]
    Query,
    /// Too long.
    #[error("it is longer than {PATTERN_BYTES_MAX} bytes")]
    Long,
    /// No name.
    #[error("the name is empty, or has a control character")]
    Name,
}

impl Pattern {
    /// Reads a pattern. The class is called `name`, or as the pattern if there is none.
    pub fn new(text: &str, name: Option<&str>) -> Result<Self, PatternError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::Long);
        }
        let (method, path) = match text.split_once(' ') {
            Some((method, path)) => (Some(method.into()), path.trim_start()),
            None => (None, text),
        };
        if !path.starts_with('/') || path.contains(char::is_whitespace) {
            return Err(PatternError::Path);
        }
        if path.contains(['?', '#']) {
            return Err(PatternError::Query);
        }
        let name = name.unwrap_or(text);
        if name.trim().is_empty()
            || name.len() > PATTERN_BYTES_MAX
            || name.contains(char::is_control)
        {
            return Err(PatternError::Name);
        }
        Ok(Self {
            name: name.into(),
            method,
            segments: segments(path).map(Into::into).collect(),
        })
    }

    /// The method that it is for, if it is for one.
    pub(crate) fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// What the class is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its requests, and those of classes before it that it fits too, as a throttle of a path names them.
    pub fn class_pattern(&self) -> String {
        let method = self.method.as_deref().unwrap_or("*");
        format!("{method} /{}", self.segments.join("/"))
    }

    /// Whether the request belongs to the class.
    pub fn fits(&self, request: &Request<'_>) -> bool {
        if self
            .method
            .as_deref()
            .is_some_and(|it| it != request.method)
        {
            return false;
        }
        let path = request.target.split(['?', '#']).next().unwrap_or_default();
        let mut given = segments(path);
        let mut wanted = self.segments.iter().peekable();
        while let Some(pattern) = wanted.next() {
            let Some(segment) = given.next() else {
                return false;
            };
            if &**pattern == "*" && wanted.peek().is_none() {
                return true;
            }
            if !glob(pattern, segment) {
                return false;
            }
        }
        given.next().is_none()
    }
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Whether `text` is the pattern with something, or nothing, for each `*`. The leftmost place
/// for each piece will do, so one walk decides.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for piece in middle.split('*') {
        let Some(at) = text.find(piece) else {
            return false;
        };
        text = &text[at + piece.len()..];
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, method: &str, target: &str) -> bool {
        let request = Request {
            site: "",
            method,
            target,
        };
        Pattern::new(pattern, None).unwrap().fits(&request)
    }

    #[test]
    fn patterns_fit_by_segments() {
        for (pattern, target, wanted) in [
            ("/search/*", "/search/shoes", true),
            ("/search/*", "/search/shoes/red?page=2", true),
            ("/search/*", "/search", false),
            ("/search/*", "/search/", false),
            ("/search/*", "/searches/x", false),
            ("/cart/*/item", "/cart/17/item", true),
            ("/cart/*/item", "/cart/17/18/item", false),
            ("/cart/*/item", "/cart/17/item/x", false),
            ("/a*b*c", "/a1b2c", true),
            ("/a*b*c", "/abc", true),
            ("/a*b*c", "/acb", false),
            ("/*.php", "/x.php?y", true),
            ("/*.php", "/x/y.php", false),
            ("/", "/", true),
            ("/", "/x", false),
            ("/*", "/x/y", true),
            ("/*", "/", false),
            ("/a/b", "//a//b/", true),
            ("POST /a", "/a", false),
            ("GET /a", "/a#b", true),
        ] {
            assert_eq!(fits(pattern, "GET", target), wanted, "{pattern} {target}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for (text, why) in [
            ("", PatternError::Path),
            ("search", PatternError::Path),
            ("/a b", PatternError::Path),
            ("GET", PatternError::Path),
            ("/a?b", PatternError::Query),
            ("/a#b", PatternError::Query),
        ] {
            assert_eq!(Pattern::new(text, None), Err(why), "{text:?}");
        }
        let long = format!("/{}", "x".repeat(PATTERN_BYTES_MAX));
        assert_eq!(Pattern::new(&long, None), Err(PatternError::Long));
        assert_eq!(Pattern::new("/a", Some(" ")), Err(PatternError::Name));
        assert_eq!(
            Pattern::new("/a", Some("all of a")).unwrap().name(),
            "all of a"
        );
        assert_eq!(Pattern::new("PUT /a", None).unwrap().name(), "PUT /a");
    }
}
