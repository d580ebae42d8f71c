//! The requests of one leaf of the tree, as a text that says all of it.
//!
//! ```text
//! /search?q           path /search with a query of just this name        /search?    without a query
//! /item/{n}?          {n}, {uuid}, {date}, {hex}, {tok}: as folding calls a segment
//! /item/{*^new|{n}}?  {*}: whatever is merged there, but what has a name of its own: `new` and numbers
//! /img/*.png?         static files of this kind in /img; after two directories at any depth
//! /img/{*.*^*.css}?   whatever static files are merged there
//! ```
//!
//! A request is selected if folding leads it there, so nothing that looks like a wildcard in a URL widens
//! anything: such text is escaped, and folded in the same way on both sides. Input: a target, and what the leaf
//! was when the text was made. Failure case: names that come out of a `{*}` later are still selected by a
//! text from before; a new one is made each time one is asked for.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::str::FromStr;

use super::shape::{SEGMENT_BYTES_MAX, SEGMENTS_MAX, Shape};

/// Longest text, bytes: a `{*}` names what it is not.
const BYTES_MAX: usize = 1800;
/// Bytes of an escape: a name that was cut may be shorter by so many.
const ESCAPE_BYTES: usize = 3;

/// One step of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// A segment or an end of this name, as folding has it.
    Name(Box<str>),
    /// What is merged: any but these.
    Merged(Vec<Box<str>>),
}

impl Level {
    fn has(&self, part: &str) -> bool {
        match self {
            Self::Name(name) => **name == *part,
            Self::Merged(named) => !named.iter().any(|name| **name == *part),
        }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    levels: Vec<Level>,
    is_static: bool,
}

impl Selector {
    /// Of these levels of the tree's half of static files or of pages. None if such a text would not read back.
    pub(super) fn new(levels: Vec<Level>, is_static: bool) -> Option<Self> {
        let made = Self { levels, is_static };
        let text = made.to_string();
        (text.parse().as_ref() == Ok(&made)).then_some(made)
    }

    /// Whether folding leads such a target there.
    pub(crate) fn selects(&self, target: &str) -> bool {
        let shape = Shape::new(target);
        if shape.is_static() != self.is_static {
            return false;
        }
        let mut end = String::new();
        let has_end = shape.end(&mut end);
        let segments = shape.segments().iter().map(|segment| &**segment);
        let mut parts = segments.chain(has_end.then_some(&*end));
        let mut levels = self.levels.iter();
        let all = levels.all(|level| parts.next().is_some_and(|part| level.has(part)));
        all && parts.next().is_none()
    }

    /// A target that folding leads there, if it leads any there. None where that cannot be said so easily: of
    /// what is merged, and of names that may have been cut.
    fn example(&self) -> Option<String> {
        let mut target = String::new();
        for level in &self.levels {
            let Level::Name(name) = level else {
                return None;
            };
            let (start, parts): (_, Vec<_>) =
                match (name.strip_prefix('?'), name.strip_prefix("*.")) {
                    (Some(names), _) if target.is_empty() => ("/?", names.split('&').collect()),
                    (Some(names), _) => ("?", names.split('&').collect()),
                    (None, Some(kind)) => ("/x.", vec![kind]),
                    (None, None) => ("/", vec![name]),
                };
            let may_be_cut = |part: &&str| part.len() + ESCAPE_BYTES > SEGMENT_BYTES_MAX;
            if parts.iter().any(may_be_cut) {
                return None;
            }
            let examples = parts
                .iter()
                .map(|part| folded_example(part).unwrap_or(part));
            target.push_str(start);
            target.push_str(&examples.collect::<Vec<_>>().join("&"));
        }
        Some(target)
    }

    /// The path's levels, the end of a page left out.
    pub(crate) fn path(&self) -> &[Level] {
        match self.levels.split_last() {
            Some((Level::Name(name), path)) if name.starts_with('?') => path,
            Some(_) | None => &self.levels,
        }
    }

    /// Whether its requests are for static files.
    pub(crate) fn is_static(&self) -> bool {
        self.is_static
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.levels.len().saturating_sub(1);
        let mut has_query = false;
        for (place, level) in self.levels.iter().enumerate() {
            match level {
                Level::Name(name) if name.starts_with('?') => {
                    has_query = true;
                    out.write_str(if place == 0 { "/" } else { "" })?;
                    out.write_str(name)?;
                }
                Level::Name(name) => write!(out, "/{name}")?,
                Level::Merged(named) => {
                    let files = self.is_static && place == last;
                    out.write_str(if files { "/{*.*" } else { "/{*" })?;
                    for (nth, name) in named.iter().enumerate() {
                        out.write_char(if nth == 0 { '^' } else { '|' })?;
                        out.write_str(name)?;
                    }
                    out.write_char('}')?;
                }
            }
        }
        out.write_str(if self.levels.is_empty() { "/" } else { "" })?;
        out.write_str(if has_query { "" } else { "?" })
    }
}

/// Why a text selects nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelectorError {
    /// It is not one that is made here.
    Text,
    /// Too long.
    Long,
    /// Folding never leads there.
    Nothing,
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if text.len() > BYTES_MAX {
            return Err(SelectorError::Long);
        }
        let wrong = SelectorError::Text;
        let at = query_of(text).ok_or(wrong)?;
        let (path, query) = text.split_at(at);
        let path = path.strip_prefix('/').ok_or(wrong)?;
        let mut selector = Self {
            levels: Vec::new(),
            is_static: false,
        };
        let segments = path.split('/').filter(|_| !path.is_empty());
        for (place, segment) in segments.enumerate() {
            // An end follows the segments.
            if selector.is_static || place > SEGMENTS_MAX {
                return Err(wrong);
            }
            let level = match segment.strip_prefix("{*") {
                Some(rest) => {
                    let named = rest.strip_suffix('}').ok_or(wrong)?;
                    let files = named.strip_prefix(".*");
                    selector.is_static = files.is_some();
                    merged(files.unwrap_or(named)).ok_or(wrong)?
                }
                None => {
                    selector.is_static = segment.starts_with("*.");
                    Level::Name(name(segment).ok_or(wrong)?)
                }
            };
            selector.levels.push(level);
        }
        match query {
            "?" => {}
            _ if selector.is_static => return Err(wrong),
            query => selector.levels.push(Level::Name(name(query).ok_or(wrong)?)),
        }
        let example = selector.example();
        match example.is_none_or(|target| selector.selects(&target)) {
            true => Ok(selector),
            false => Err(SelectorError::Nothing),
        }
    }
}

/// Where the query of a selector begins, the names that a `{*}` is not left out; none: it is no selector.
pub(crate) fn query_of(text: &str) -> Option<usize> {
    let mut depth = 0_u32;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b'?' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

/// Something that is folded to this.
fn folded_example(name: &str) -> Option<&'static str> {
    let examples = [
        "1",
        "00000000-0000-0000-0000-000000000000",
        "2024-01-01",
        "0000000a",
        "000zzzzzzzzzzzzz",
    ];
    let place = Shape::FOLDED.iter().position(|folded| *folded == name)?;
    Some(examples[place])
}

fn merged(text: &str) -> Option<Level> {
    if text.is_empty() {
        return Some(Level::Merged(Vec::new()));
    }
    let names = text.strip_prefix('^')?.split('|');
    Some(Level::Merged(names.map(name).collect::<Option<_>>()?))
}

/// A name as folding gives it: a segment, `?names` or `*.kind`, each of its parts escaped or what folding puts
/// in its place.
fn name(text: &str) -> Option<Box<str>> {
    let is_part = |part: &str| {
        let escaped = super::escape::escaped(part);
        !part.is_empty() && (matches!(escaped, Cow::Borrowed(_)) || Shape::FOLDED.contains(&part))
    };
    let good = match (text.strip_prefix('?'), text.strip_prefix("*.")) {
        (Some(names), _) => names.split('&').all(|it| !it.contains('/') && is_part(it)),
        (None, Some(kind)) => is_part(kind),
        (None, None) => !text.contains(['/', ';']) && is_part(text),
    };
    good.then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(text: &str, target: &str) -> bool {
        text.parse::<Selector>().unwrap().selects(target)
    }

    #[test]
    fn a_text_selects_what_folds_there_and_nothing_else() {
        for (text, target, expected) in [
            ("/search?q", "/search?q=shoes", true),
            ("/search?q", "//search/;x?q", true),
            ("/search?q", "/search", false),
            ("/search?q", "/search?q&page=2", false),
            ("/search?page&q", "/search?q&page=2", true),
            ("/search?", "/search", true),
            ("/search?", "/search?q", false),
            ("/?", "/", true),
            ("/?", "/a", false),
            ("/?q", "/?q=1", true),
            ("/%2A?q", "/*?q", true),
            ("/%2A?q", "/%2A?q", true),
            ("/%2A?q", "/a?q", false),
            ("/%7Bid%7D?", "/{id}", true),
            ("/%7Bid%7D?", "/17", false),
            ("/item/{n}?", "/item/17", true),
            ("/item/{n}?", "/item/{n}", false),
            ("/item/{n}?", "/item/new", false),
            ("/item/{*}?", "/item/new", true),
            ("/item/{*^new|{n}}?", "/item/old", true),
            ("/item/{*^new|{n}}?", "/item/new", false),
            ("/item/{*^new|{n}}?", "/item/17", false),
            ("/item/{*^new|{n}}?", "/item/old/x", false),
            ("/item/{*^new|?q}?", "/item?page", true),
            ("/item/{*^new|?q}?", "/item?q", false),
            ("/item/{*^new}?", "/item/a.png", false),
            ("/img/*.png?", "/img/a.PNG?v=2", true),
            ("/img/*.png?", "/img/a/b.png", false),
            ("/img/a/*.png?", "/img/a/b/c.png", true),
            ("/img/{*.*^*.css}?", "/img/a.png", true),
            ("/img/{*.*^*.css}?", "/img/a.css", false),
            ("/img/{*.*^*.css}?", "/img/a", false),
        ] {
            assert_eq!(selects(text, target), expected, "{text} {target}");
            let read: Selector = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
    }

    #[test]
    fn what_folding_never_says_is_refused() {
        for text in [
            "",
            "/",
            "/search",
            "search?",
            "/a//b?",
            "/**?",
            "/*?",
            "/{id}?",
            "/a;b?",
            "/{*^}?",
            "/{*^a|}?",
            "/{*x}?",
            "/{*^a?",
            "/a b?",
            "/a?b c",
            "/a?b/c",
            "/a?b?c",
            "/a?b&",
            "/*.png/a?",
            "/*.png?q",
        ] {
            assert!(text.parse::<Selector>().is_err(), "{text:?}");
        }
        for text in [
            "/search?q=1",
            "/search?q&page",
            "/search?q&q",
            "/item/17?",
            "/a/x.png?",
            "/a/b/c/*.png?",
            "/*.PNG?",
            "/?a&b&c&d&e&f&g",
            "/1/2024-01-01?",
        ] {
            let read = text.parse::<Selector>();
            assert_eq!(read, Err(SelectorError::Nothing), "{text:?}");
        }
        let folded = Shape::FOLDED.map(|name| format!("/{name}?{name}"));
        for text in folded {
            assert!(text.parse::<Selector>().is_ok(), "{text:?}");
        }
        let long = format!("/{}?", "x".repeat(BYTES_MAX));
        assert_eq!(long.parse::<Selector>(), Err(SelectorError::Long));
    }
}
