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
    tell(method.as_bytes());
    tell(b" ");
    let path = Path::of(bytes);
    let end = path.end.map(|at| &bytes[at..path.length]);
    let end = end.filter(|it| is_static(it));
    let directories = match end {
        Some(_) => path.before_file.min(DIRECTORIES_STATIC),
        None => path.found,
    };
    for part in &path.directories[..directories] {
        tell(b"/");
        tell(part);
    }
    if let Some(end) = end {
        tell(b"/*");
        tell(end);
        return;
    }
    if directories == 0 {
        tell(b"/");
    }
    if path.length < bytes.len() {
        names(&bytes[path.length..], tell);
    }
}

/// Tells the names of a query.
fn names(query: &[u8], mut tell: impl FnMut(&[u8])) {
    let mut between: &[u8] = b"?";
    let query = query.split(|it| matches!(it, b'?' | b'&'));
    for part in query.filter(|it| !it.is_empty()) {
        tell(between);
        tell(part.split(|it| *it == b'=').next().unwrap_or_default());
        between = b"&";
    }
}

/// What a look at each byte of a path finds.
#[derive(Default)]
struct Path<'a> {
    /// Those that count, and how many of them there are; a file is one of them.
    directories: [&'a [u8]; DIRECTORIES],
    found: usize,
    /// How many stand before the file.
    before_file: usize,
    /// Where the file's end begins.
    end: Option<usize>,
    /// Where the query begins.
    length: usize,
}

impl<'a> Path<'a> {
    fn of(target: &'a [u8]) -> Self {
        let mut path = Self {
            length: target.len(),
            ..Self::default()
        };
        let mut from = 0;
        for (at, byte) in target.iter().enumerate() {
            match byte {
                b'/' => {
                    path.add(&target[from..at]);
                    path.before_file = path.found;
                    path.end = None;
                    from = at + 1;
                }
                b'.' => path.end = Some(at),
                b'?' => {
                    path.length = at;
                    break;
                }
                _ => {}
            }
        }
        path.add(&target[from..path.length]);
        path
    }

    fn add(&mut self, directory: &'a [u8]) {
        if self.found < DIRECTORIES && !directory.is_empty() {
            self.directories[self.found] = directory;
            self.found += 1;
        }
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

    /// The same parts, looked for one after the other.
    fn plain(target: &str) -> Vec<String> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (before, file) = path.rsplit_once('/').unwrap_or(("", path));
        let end = file.rfind('.').map(|at| &file[at..]);
        let end = end.filter(|it| is_static(it.as_bytes()));
        let (path, most) = end.map_or((path, 3), |_| (before, 2));
        let directories = path.split('/').filter(|it| !it.is_empty()).take(most);
        let mut parts: Vec<_> = directories.map(|it| format!("/{it}")).collect();
        if let Some(end) = end {
            parts.push(format!("/*{end}"));
            return parts;
        }
        if parts.is_empty() {
            parts.push("/".into());
        }
        let names = query.split(['?', '&']).filter(|it| !it.is_empty());
        let names = names.filter_map(|it| it.split('=').next());
        parts.extend(names.enumerate().map(|(index, name)| match index {
            0 => format!("?{name}"),
            _ => format!("&{name}"),
        }));
        parts
    }

    #[test]
    fn one_look_at_a_target_finds_what_many_find() {
        let mut prng = crate::prng::Prng::new(7);
        let letters = ["/", "/", ".", "?", "&", "=", "a", "b", "png", "7"];
        for _ in 0..20_000 {
            let length = prng.below(12);
            let target: String = (0..length)
                .map(|_| letters[prng.below(letters.len())])
                .collect();
            let mut found = Vec::new();
            parts("GET", &target, |part| found.extend_from_slice(part));
            let found = String::from_utf8(found).unwrap();
            assert_eq!(
                found,
                format!("GET {}", plain(&target).concat()),
                "{target}"
            );
        }
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
