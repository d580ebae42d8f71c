//! One URL without what makes it unique.
//!
//! ```text
//! scheme, host, #fragment, ;parameters      dropped
//! 12345 -> {n}   8-4-4-4-12 hex -> {uuid}   2024-05-31 -> {date}
//! 8 or more hex digits, a digit among them -> {hex}
//! 16 or more bytes, 3 digits among them, none of - _ . -> {tok}
//! /a/b/c/photo.png -> /a/b/*.png            query -> ?sorted&key&names
//! ```
//!
//! What a client wrote is escaped (`escape.rs`), so braces and stars are the folding's own.
//!
//! Inputs: a request target. At most 8 segments, 6 names of the query, 48 bytes of each.
//! Failure case: words that are unique and look like words (slugs) stay; merging in the tree
//! takes care of them. A number may be a page of its own: patterns name such pages.
//! Source: the design's study of folding, with access logs of 1995, 1998 and 2015.

use std::borrow::Cow;

use super::escape::escaped;

/// Most segments of a path; what follows is left out.
pub const SEGMENTS_MAX: usize = 8;
/// Longest segment or name in a query, bytes; the rest is cut off.
pub const SEGMENT_BYTES_MAX: usize = 48;
/// Most names of a query.
const QUERY_NAMES_MAX: usize = 6;
/// Parts of a query that are looked at.
const QUERY_PARTS_MAX: usize = 64;
/// Directories of static files that tell them apart.
const STATIC_DIRECTORIES: usize = 2;

/// Files that servers send as they are.
const STATIC: &[&str] = &[
    "aac", "apng", "avi", "avif", "bmp", "css", "cur", "eot", "flac", "gif", "ico", "jpe", "jpeg",
    "jpg", "js", "m4a", "m4v", "map", "mjs", "mov", "mp3", "mp4", "mpeg", "mpg", "ogg", "otf",
    "png", "svg", "svgz", "swf", "tif", "tiff", "ttf", "wasm", "wav", "webm", "webp", "woff",
    "woff2", "xbm",
];

/// The segments of a request target, and its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape<'a> {
    segments: [Cow<'a, str>; SEGMENTS_MAX],
    count: usize,
    /// The extension of a static file.
    extension: Option<&'static str>,
    /// Names of the query, sorted.
    names: [Cow<'a, str>; QUERY_NAMES_MAX],
    named: usize,
}

impl<'a> Shape<'a> {
    /// What stands for segments and names that are unique.
    pub(crate) const FOLDED: [&'static str; 5] = ["{n}", "{uuid}", "{date}", "{hex}", "{tok}"];

    /// The shape of a request target in origin, absolute, authority or asterisk form.
    pub fn new(target: &'a str) -> Self {
        let target = target.split('#').next().unwrap_or_default();
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, query),
            None => (target, ""),
        };
        let mut shape = Self::default();
        for segment in without_host(path).split('/') {
            let segment = segment.split(';').next().unwrap_or_default();
            if segment.is_empty() {
                continue;
            }
            if shape.count < SEGMENTS_MAX {
                shape.segments[shape.count] = pattern_of(segment);
                shape.count += 1;
            }
            // The last segment decides, even one that is beyond the limit.
            shape.extension = extension(segment);
        }
        if shape.extension.is_some() {
            let directories = shape.count.saturating_sub(1);
            shape.count = directories.min(STATIC_DIRECTORIES);
        } else {
            shape.take_names(query);
        }
        shape
    }

    /// The segments of the path; of a static file its first directories.
    pub fn segments(&self) -> &[Cow<'a, str>] {
        &self.segments[..self.count]
    }

    /// Whether it is a file that servers send as it is.
    pub fn is_static(&self) -> bool {
        self.extension.is_some()
    }

    /// What follows the segments, `*.png` or `?page&sort`, into `out`; whether anything does.
    pub fn end(&self, out: &mut String) -> bool {
        out.clear();
        if let Some(extension) = self.extension {
            out.push_str("*.");
            out.push_str(extension);
        }
        for (index, name) in self.names[..self.named].iter().enumerate() {
            out.push(if index == 0 { '?' } else { '&' });
            out.push_str(name);
        }
        !out.is_empty()
    }

    fn take_names(&mut self, query: &'a str) {
        for part in query.split('&').take(QUERY_PARTS_MAX) {
            let name = part.split('=').next().unwrap_or_default();
            if name.is_empty() {
                continue;
            }
            let mut name = pattern_of(name);
            if name.contains('/') {
                name = cut(name.replace('/', "%2F").into());
            }
            let known = &mut self.names[..self.named];
            let Err(at) = known.binary_search(&name) else {
                continue;
            };
            // The first names in order stand, whatever the order in the query.
            if at < QUERY_NAMES_MAX {
                self.named = (self.named + 1).min(QUERY_NAMES_MAX);
                self.names[at..self.named].rotate_right(1);
                self.names[at] = name;
            }
        }
    }
}

/// The path of an absolute form; other forms as they are.
fn without_host(target: &str) -> &str {
    if target.starts_with('/') {
        return target;
    }
    match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find('/').map_or("", |slash| &rest[slash..])
        }
        _ => target,
    }
}

/// The extension of a static file.
fn extension(segment: &str) -> Option<&'static str> {
    let (_, extension) = segment.rsplit_once('.')?;
    STATIC
        .iter()
        .find(|known| known.eq_ignore_ascii_case(extension))
        .copied()
}

/// What stands for a segment or the name of a parameter.
pub(crate) fn pattern_of(segment: &str) -> Cow<'_, str> {
    let bytes = segment.as_bytes();
    let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
    let hex = || bytes.iter().all(u8::is_ascii_hexdigit);
    let plain = || !bytes.iter().any(|byte| b"-_.".contains(byte));
    let folded = if digits == bytes.len() {
        "{n}"
    } else if is_grouped(bytes, &[8, 4, 4, 4, 12], u8::is_ascii_hexdigit) {
        "{uuid}"
    } else if is_date(bytes) {
        "{date}"
    } else if bytes.len() >= 8 && digits >= 1 && hex() {
        "{hex}"
    } else if bytes.len() >= 16 && digits >= 3 && plain() {
        "{tok}"
    } else {
        return cut(escaped(segment));
    };
    Cow::Borrowed(folded)
}

/// `2024-05-31`, alone or with a time behind it.
fn is_date(bytes: &[u8]) -> bool {
    let (date, time) = bytes.split_at(bytes.len().min(10));
    let in_range = |at: usize, most: u8| {
        let digits = [date[at], date[at + 1]].map(|byte| byte.wrapping_sub(b'0'));
        let number = digits[0].saturating_mul(10).saturating_add(digits[1]);
        (1..=most).contains(&number)
    };
    is_grouped(date, &[4, 2, 2], u8::is_ascii_digit)
        && in_range(5, 12)
        && in_range(8, 31)
        && (time.is_empty() || time[0] == b'T')
}

/// Whether the bytes are groups of so many, with `-` between.
fn is_grouped(bytes: &[u8], groups: &[usize], fits: impl Fn(&u8) -> bool) -> bool {
    let length: usize = groups.iter().sum::<usize>() + groups.len() - 1;
    let grouped = |(part, wanted): (&[u8], &usize)| part.len() == *wanted && part.iter().all(&fits);
    bytes.len() == length && bytes.split(|byte| *byte == b'-').zip(groups).all(grouped)
}

/// At most [`SEGMENT_BYTES_MAX`] of it, never a part of an escape.
fn cut(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.len() <= SEGMENT_BYTES_MAX {
        return text;
    }
    let mut end = SEGMENT_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let tail = &text.as_bytes()[end - 2..end];
    if let Some(at) = tail.iter().position(|byte| *byte == b'%') {
        end -= tail.len() - at;
    }
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[..end]),
        Cow::Owned(mut text) => {
            text.truncate(end);
            Cow::Owned(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(target: &str) -> String {
        let shape = Shape::new(target);
        let mut end = String::new();
        shape.end(&mut end);
        let mut path = format!("/{}", shape.segments().join("/"));
        if shape.is_static() && path.len() > 1 {
            path.push('/');
        }
        path + &end
    }

    #[test]
    fn what_makes_a_url_unique_is_taken_out() {
        for (target, expected) in [
            ("/", "/"),
            ("", "/"),
            ("*", "/%2A"),
            ("//a///b/", "/a/b"),
            ("https://shop.example:8080/a?b=c#d", "/a?b"),
            ("https://shop.example", "/"),
            ("shop.example:443", "/shop.example:443"),
            ("/go/http://other.example/x", "/go/http:/other.example/x"),
            ("/cart;jsessionid=0A1B2C/pay;v=2", "/cart/pay"),
            ("/item/12345", "/item/{n}"),
            ("/item/12345x", "/item/12345x"),
            ("/o/123e4567-e89b-12d3-a456-426614174000", "/o/{uuid}"),
            (
                "/o/123e4567-e89b-12d3-a456-42661417400",
                "/o/123e4567-e89b-12d3-a456-42661417400",
            ),
            ("/on/2024-05-31", "/on/{date}"),
            ("/on/2024-05-31T10:00:00Z", "/on/{date}"),
            ("/on/2024-15-31", "/on/2024-15-31"),
            ("/c/deadbeef", "/c/deadbeef"),
            ("/c/deadbee1", "/c/{hex}"),
            ("/c/abcdef1", "/c/abcdef1"),
            ("/t/Abcdefghijklm123", "/t/{tok}"),
            ("/t/Abcdefghijklmn12", "/t/Abcdefghijklmn12"),
            ("/t/a-long-title-of-2024", "/t/a-long-title-of-2024"),
            ("/x?b=2&a=1&b=3&=4&&c", "/x?a&b&c"),
            ("/x?z&y&x&w&v&u&t&s", "/x?s&t&u&v&w&x"),
            ("/x?1234=5", "/x?{n}"),
            ("/*?q", "/%2A?q"),
            ("/**", "/%2A%2A"),
            ("/{n}", "/%7Bn%7D"),
            ("/{*}?{n}&*", "/%7B%2A%7D?%2A&%7Bn%7D"),
            ("/a b'c?d/e?f", "/a%20b%27c?d%2Fe%3Ff"),
            ("/1/2/3/4/5/6/7/8/9/a", "/{n}/{n}/{n}/{n}/{n}/{n}/{n}/{n}"),
        ] {
            assert_eq!(folded(target), expected, "{target}");
        }
    }

    #[test]
    fn static_files_are_known_by_two_directories_and_their_extension() {
        for (target, expected) in [
            ("/logo.PNG", "/*.png"),
            ("/a/logo.png?v=17", "/a/*.png"),
            ("/a/b/c/d/logo.png", "/a/b/*.png"),
            ("/users/17/me.jpg", "/users/{n}/*.jpg"),
            ("/1/2/3/4/5/6/7/8/9/a.css", "/{n}/{n}/*.css"),
            ("/a.js/b", "/a.js/b"),
            ("/page.html", "/page.html"),
            ("/png", "/png"),
        ] {
            assert_eq!(folded(target), expected, "{target}");
        }
    }

    #[test]
    fn long_parts_are_cut_between_letters() {
        let long = "ä".repeat(100);
        let target = format!("/{long}?{long}");
        let shape = Shape::new(&target);
        assert_eq!(shape.segments(), ["ä".repeat(24)]);
        let mut end = String::new();
        assert!(shape.end(&mut end));
        assert_eq!(end, format!("?{}", "ä".repeat(24)));
        for (many, expected) in [(46, 46), (47, 47), (45, 48)] {
            let target = format!("/{}****", "x".repeat(many));
            let shape = Shape::new(&target);
            assert_eq!(shape.segments()[0].len(), expected, "{target}");
        }
    }

    #[test]
    fn so_many_parts_of_a_query_are_looked_at_and_no_more() {
        for (before, expected) in [(QUERY_PARTS_MAX - 1, "/?last"), (QUERY_PARTS_MAX, "/")] {
            assert_eq!(folded(&format!("/?{}last", "&".repeat(before))), expected);
        }
    }
}
