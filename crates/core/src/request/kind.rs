//! What a request is, as far as its costs go: its kind, by method and target.
//!
//! ```text
//! kind    method, the first directories, the end of static files, names of the query; without digits
//! mark    40 bits of Fowler, Noll and Vo's hash of that
//! name    the same for people, of the first request that was seen: `*` for digits, 64 bytes at most
//! ```
//!
//! Inputs: a method and a request target, as they came.
//!
//! Failure case: sites that tell their pages apart by values of the query (one kind), or by words of a path
//! that are all different (a kind each).

/// Bytes of a target that are looked at, and directories.
const BYTES_MAX: usize = 256;
const DIRECTORIES: usize = 3;
const DIRECTORIES_STATIC: usize = 2;
/// Bytes of a name.
pub(super) const NAME_MAX: usize = 64;
/// Bits of a mark.
pub(super) const MARK_BITS: u32 = 40;

/// A kind of a site's requests, and the place that it has among those of the site; see
/// [`KindPlaces`](super::KindPlaces).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub(super) mark: u64,
    pub(super) place: u8,
}

impl Kind {
    /// Of a request of which nothing is known, and of all that have no place of their own.
    pub const ANY: Self = Self { mark: 0, place: 0 };
}

/// Tells a kind from others; never 0.
pub(super) fn mark(method: &str, target: &str) -> u64 {
    let mut hash = Fnv::default();
    parts(method, target, |part| hash.add(part));
    let folded = (hash.0 ^ (hash.0 >> MARK_BITS)) & ((1 << MARK_BITS) - 1);
    folded.max(1)
}

/// What a kind is called: printable, and no longer than so many bytes. The rest is zeros.
pub(super) fn name(method: &str, target: &str) -> [u8; NAME_MAX] {
    let mut name = [0; NAME_MAX];
    let mut length = 0;
    parts(method, target, |part| {
        for byte in part {
            let byte = match byte {
                b'0'..=b'9' => b'*',
                b' '..=b'~' => *byte,
                _ => b'?',
            };
            let again = byte == b'*' && length > 0 && name[length - 1] == byte;
            if length < NAME_MAX && !again {
                name[length] = byte;
                length += 1;
            }
        }
    });
    name
}

/// Tells, one after the other, the parts of a request that make its kind.
fn parts(method: &str, target: &str, mut tell: impl FnMut(&[u8])) {
    let bytes = target.as_bytes();
    let bytes = &bytes[..bytes.len().min(BYTES_MAX)];
    let path = bytes.iter().position(|it| *it == b'?');
    let (path, query) = bytes.split_at(path.unwrap_or(bytes.len()));
    tell(method.as_bytes());
    tell(b" ");
    let file = path
        .iter()
        .rposition(|it| *it == b'/')
        .map_or(0, |at| at + 1);
    let end = path[file..].iter().rposition(|it| *it == b'.');
    let end = end.map(|at| &path[file + at..]).filter(|it| is_static(it));
    let (path, directories) = match end {
        Some(_) => (&path[..file], DIRECTORIES_STATIC),
        None => (path, DIRECTORIES),
    };
    let mut any = false;
    let directory = path.split(|it| *it == b'/').filter(|it| !it.is_empty());
    for part in directory.take(directories) {
        tell(b"/");
        tell(part);
        any = true;
    }
    if let Some(end) = end {
        tell(b"/*");
        tell(end);
        return;
    }
    if !any {
        tell(b"/");
    }
    let mut between: &[u8] = b"?";
    let query = query.split(|it| matches!(it, b'?' | b'&'));
    for part in query.filter(|it| !it.is_empty()) {
        tell(between);
        tell(part.split(|it| *it == b'=').next().unwrap_or_default());
        between = b"&";
    }
}

/// A file that servers send as it is, by its end: short, and no program's.
fn is_static(end: &[u8]) -> bool {
    const PROGRAMS: [&[u8]; 8] = [
        b".php", b".asp", b".aspx", b".jsp", b".cgi", b".do", b".pl", b".py",
    ];
    end.len() <= 6 && !PROGRAMS.contains(&end)
}

/// Fowler, Noll and Vo's hash of all but digits.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().filter(|it| !it.is_ascii_digit()) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(method: &str, target: &str) -> String {
        let name = name(method, target);
        let length = name.iter().position(|it| *it == 0).unwrap_or(NAME_MAX);
        String::from_utf8(name[..length].to_vec()).unwrap()
    }

    #[test]
    fn pages_are_one_kind_whatever_their_numbers_and_values() {
        let kind = |target| mark("GET", target);
        for (one, other) in [
            ("/item/17", "/item/3"),
            ("/search?q=a&page=2", "/search?q=bc&page=17"),
            ("/img/a.png", "/img/b.png"),
            ("/a/b/c/d", "/a/b/c/e"),
        ] {
            assert_eq!(kind(one), kind(other), "{one} {other}");
        }
        for (one, other) in [
            ("/search.php", "/item.php"),
            ("/search?q=a", "/search"),
            ("/img/a.png", "/img/a.php"),
            ("/", "/item"),
        ] {
            assert_ne!(kind(one), kind(other), "{one} {other}");
        }
        assert_ne!(kind("/cart"), mark("POST", "/cart"));
        for odd in ["", "*", "?", "//", "/.", "/?&=&", "\u{e4}"] {
            assert_ne!(kind(odd), 0, "{odd}");
        }
    }

    #[test]
    fn a_name_says_what_makes_the_kind() {
        for (target, is) in [
            ("/", "GET /"),
            ("", "GET /"),
            ("/item/17", "GET /item/*"),
            ("/v2/item17b", "GET /v*/item*b"),
            ("/a/b/c/d", "GET /a/b/c"),
            ("/search.php?q=a&page=2", "GET /search.php?q&page"),
            ("/img/2024/big/a.png", "GET /img/*/*.png"),
            ("/favicon.ico", "GET /*.ico"),
            ("/\u{e4}\u{1b}[2J", "GET /???[*J"),
        ] {
            assert_eq!(named("GET", target), is, "{target}");
        }
        let long = format!("/{}", "x".repeat(300));
        assert_eq!(named("GET", &long).len(), NAME_MAX);
    }

    #[test]
    fn so_much_of_a_target_is_looked_at_and_no_more() {
        let kinds = |before: usize| {
            let target = |end: char| format!("/{}{end}", "x".repeat(before - 1));
            let kinds = ('a'..='z').map(|end| mark("GET", &target(end)));
            kinds.collect::<std::collections::BTreeSet<_>>().len()
        };
        assert!(kinds(BYTES_MAX - 1) > 1);
        assert_eq!(kinds(BYTES_MAX), 1);
    }
}
