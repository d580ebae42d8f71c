//! Paths as routes compare them, and the patterns that they are compared with.
//!
//! ```text
//! normal(path)   percent-encodings decoded, once; then `//` is `/`; then dot segments removed (RFC 3986 §5.2.4)
//! PATTERN        /text      this path
//!                /text/*    this path, and all below it
//! ```
//!
//! Inputs: the path as the client sent it. Whatever it writes, `/a/../admin`, `//admin` and `/%61dmin` are `/admin` here, so a
//! route that keeps clients out is not passed by another spelling. A `%2F` is taken for a slash, as servers do that decode first.
//! The node gets the path as it was sent, unless the route rewrites it.
//!
//! Failure case: a server that takes still other paths for the same (letter case, `;name=value` in segments, `\` for `/`, a
//! second decoding) needs patterns for these too.
//! Source: RFC 3986 §6.2.2.

use std::borrow::Cow;

use regex::bytes::Regex;

/// Longest pattern, bytes.
const BYTES_MAX: usize = 512;
/// Memory that a regular expression may take once it is ready, bytes.
const REGEX_BYTES_MAX: usize = 256 << 10;

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    /// No path.
    #[error("a path begins with `/`")]
    Slash,
    /// A star in the wrong place.
    #[error("`*` is the last segment, like `/images/*`, or nothing special is meant: use `regex`")]
    Star,
    /// What no path has that is compared.
    #[error("no path is like that once it is normal: {0}")]
    NotNormal(&'static str),
    /// Too long.
    #[error("a pattern has at most {BYTES_MAX} bytes")]
    Long,
    /// A bad regular expression.
    #[error("{0}")]
    Regex(String),
}

/// Which paths are meant.
#[derive(Clone, Debug)]
pub enum PathPattern {
    /// This one.
    Exact(String),
    /// This one, which has no final slash, and all below it.
    Below(String),
    /// Those in which this is found.
    Regex(Regex),
}

impl PathPattern {
    /// Reads `/path` or `/path/*`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, PathPatternError> {
        if text.len() > BYTES_MAX {
            return Err(PathPatternError::Long);
        }
        if !text.starts_with('/') {
            return Err(PathPatternError::Slash);
        }
        let (path, below) = match text.strip_suffix("/*") {
            Some(path) => (path, true),
            None => (text, false),
        };
        if path.contains('*') {
            return Err(PathPatternError::Star);
        }
        if path.contains(['?', '#']) {
            let why = "a path ends before `?` and `#`; the query has `query`";
            return Err(PathPatternError::NotNormal(why));
        }
        if !path.is_empty() && normal(path).as_ref() != path.as_bytes() {
            let why = "write it without `%`, `//`, `/./` and `/../`";
            return Err(PathPatternError::NotNormal(why));
        }
        Ok(match below {
            true => Self::Below(path.to_owned()),
            false => Self::Exact(path.to_owned()),
        })
    }

    /// Reads a regular expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn regex(text: &str) -> Result<Self, PathPatternError> {
        if text.len() > BYTES_MAX {
            return Err(PathPatternError::Long);
        }
        if text.is_empty() {
            return Err(PathPatternError::Regex("it is found in every path".into()));
        }
        let mut builder = regex::bytes::RegexBuilder::new(text);
        builder
            .unicode(false)
            .dot_matches_new_line(true)
            .size_limit(REGEX_BYTES_MAX)
            .dfa_size_limit(REGEX_BYTES_MAX);
        let built = builder.build();
        built
            .map(Self::Regex)
            .map_err(|error| PathPatternError::Regex(error.to_string()))
    }

    /// Whether a normal path is meant.
    pub(crate) fn fits(&self, normal: &[u8]) -> bool {
        match self {
            Self::Exact(path) => normal == path.as_bytes(),
            Self::Below(path) => rest_below(path, normal).is_some(),
            Self::Regex(regex) => regex.is_match(normal),
        }
    }

    /// What a path has below the pattern's; of other patterns the whole path.
    pub(crate) fn rest<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        match self {
            Self::Below(above) => rest_below(above, path),
            Self::Exact(_) | Self::Regex(_) => Some(path),
        }
    }
}

/// What a path has below another one: nothing, or from a slash on.
fn rest_below<'a>(above: &str, path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(above.as_bytes())?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// A path as it is compared; see the module.
#[inline]
pub(crate) fn normal(path: &str) -> Cow<'_, [u8]> {
    match is_normal(path.as_bytes()) {
        true => Cow::Borrowed(path.as_bytes()),
        false => Cow::Owned(made_normal(path.as_bytes())),
    }
}

/// Whether nothing needs to be done, which is mostly so; each request pays for this look.
#[inline]
fn is_normal(path: &[u8]) -> bool {
    let mut rest = path;
    while let [byte, behind @ ..] = rest {
        let is_begun = match byte {
            b'%' => true,
            b'/' => matches!(behind, [b'/' | b'.', ..]),
            _ => false,
        };
        if is_begun {
            return false;
        }
        rest = behind;
    }
    true
}

#[cold]
fn made_normal(bytes: &[u8]) -> Vec<u8> {
    let decoded = decode(bytes);
    let mut out = Vec::with_capacity(decoded.len());
    let mut segments = decoded.split(|byte| *byte == b'/').peekable();
    // What stands before the first slash is nothing.
    segments.next();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"" | b"." if is_last => out.push(b'/'),
            b"" | b"." => {}
            b".." => {
                let above = out.iter().rposition(|byte| *byte == b'/');
                out.truncate(above.unwrap_or_default());
                if is_last {
                    out.push(b'/');
                }
            }
            segment => {
                out.push(b'/');
                out.extend_from_slice(segment);
            }
        }
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

/// A text whose percent-encodings are decoded once; what is none stays as it is.
pub(crate) fn decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let pair = after.first_chunk::<2>().filter(|_| *first == b'%');
        let byte = pair.and_then(|[high, low]| Some(16 * digit(*high)? + digit(*low)?));
        match byte {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

fn digit(byte: u8) -> Option<u8> {
    let value = char::from(byte).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_client_writes_the_path_is_the_same() {
        for (sent, expected) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/", "/a/"),
            ("/a//b", "/a/b"),
            ("//a", "/a"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/../../b", "/b"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/..", "/"),
            ("/%61dmin", "/admin"),
            ("/x/%2e%2E/admin", "/admin"),
            ("/x%2F..%2fadmin", "/admin"),
            ("/%2561", "/%61"),
            ("/50%", "/50%"),
            ("/%zz", "/%zz"),
            ("/%4", "/%4"),
            ("/.well-known/x", "/.well-known/x"),
            ("/...", "/..."),
            ("//", "/"),
            ("", ""),
        ] {
            let found = normal(sent);
            assert_eq!(String::from_utf8_lossy(&found), expected, "{sent}");
        }
        assert_eq!(normal("/%ff").as_ref(), b"/\xff");
    }

    #[test]
    fn what_is_normal_stays_as_it_is() {
        for path in ["/", "/a", "/a/b/", "/a.b/.c", "/a/..b"] {
            assert_eq!(normal(path).as_ref(), path.as_bytes());
        }
    }

    #[test]
    fn patterns_are_of_one_path_or_of_all_below() {
        let fits =
            |pattern: &str, path: &str| PathPattern::parse(pattern).unwrap().fits(&normal(path));
        assert!(fits("/admin", "/x/../admin") && !fits("/admin", "/admin/"));
        assert!(fits("/admin/*", "/admin") && fits("/admin/*", "/admin/x/y"));
        assert!(fits("/admin/*", "//admin//x") && !fits("/admin/*", "/administrator"));
        assert!(fits("/*", "/") && fits("/*", "/x") && fits("/a b", "/a%20b"));
        let regex = PathPattern::regex("^/v[0-9]+/").unwrap();
        assert!(regex.fits(b"/v1/x") && !regex.fits(b"/vx/"));
        assert!(regex.fits(&normal("/x/../%761/y")));
        let any = PathPattern::regex("^/a/.*/b$").unwrap();
        assert!(any.fits(&normal("/a/x%0ay/b")));
        assert!(PathPattern::regex("").is_err(), "it is in every path");
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let error = |text: &str| PathPattern::parse(text).unwrap_err();
        assert_eq!(error("admin"), PathPatternError::Slash);
        assert_eq!(error(""), PathPatternError::Slash);
        for star in ["/a*", "/*/b", "/a/*x", "/*/*"] {
            assert_eq!(error(star), PathPatternError::Star, "{star}");
        }
        for odd in ["/a//b", "/a/../b", "/%61", "/a?x", "/a#x"] {
            assert!(
                matches!(error(odd), PathPatternError::NotNormal(_)),
                "{odd}"
            );
        }
        assert_eq!(
            error(&format!("/{}", "a".repeat(512))),
            PathPatternError::Long
        );
        assert!(PathPattern::regex("(").is_err());
        assert!(
            PathPattern::regex(r"(\w{1000}){1000}").is_err(),
            "it is too large"
        );
    }
}
