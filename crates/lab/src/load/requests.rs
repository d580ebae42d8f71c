//! What is asked for: the path of each request, from a template and a draw.

use http::Method;
use tidegate_core::prng::Prng;

use super::files::{Trait, Zipf, draw, of_file};
use super::plan::{Mix, Requests, Size};
use super::traces::{Recorded, Trace};
use super::walk::{Chain, Session, Walk};

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
    /// Which page it is, where clients walk.
    pub(super) page: Option<usize>,
    /// Whether the client's session is over with it.
    pub(super) ends: bool,
}

impl Asked {
    pub(super) fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            page: None,
            ends: false,
        }
    }
}

/// Draws the paths of one stream.
#[derive(Debug)]
pub(super) struct Source {
    kind: Kind,
    prng: Prng,
    /// Of the file set, not of the stream: arms and sites of one plan share their files.
    seed: u64,
    /// Requests so far.
    number: u64,
}

#[derive(Debug)]
enum Kind {
    Single(Template),
    Zipf {
        zipf: Zipf,
        path: Template,
        size: Size,
        cost: Size,
    },
    Log {
        requests: Vec<Recorded>,
        path: Template,
        cost: Size,
    },
    Mix {
        whole: f64,
        kinds: Vec<(Mix, Template)>,
    },
    Walk {
        chain: Chain,
        pages: Vec<(Method, Template)>,
        /// In the order of the walk's draws.
        things: Vec<Zipf>,
    },
}

impl Source {
    /// `trace` is the log whose files are replayed, for requests that are named after one.
    pub(super) fn new(requests: &Requests, trace: Option<&Trace>, seed: u64, prng: Prng) -> Self {
        let kind = match requests {
            Requests::Single { path } => Kind::Single(Template::new(path)),
            Requests::Zipf {
                alpha,
                files,
                path,
                size,
                cost,
            } => Kind::Zipf {
                zipf: Zipf::new(*alpha, *files),
                path: Template::new(path),
                size: *size,
                cost: *cost,
            },
            Requests::Nasa { path, cost } => Kind::Log {
                requests: trace.map_or_else(Vec::new, |trace| trace.requests.clone()),
                path: Template::new(path),
                cost: *cost,
            },
            Requests::Mix(kinds) => Kind::Mix {
                whole: kinds.iter().map(|it| it.weight).sum(),
                kinds: kinds
                    .iter()
                    .map(|mix| (mix.clone(), Template::new(&mix.path)))
                    .collect(),
            },
            Requests::Walk(walk) => walking(walk),
        };
        Self {
            kind,
            prng,
            seed,
            number: 0,
        }
    }

    /// What a client of a closed loop asks for next.
    pub(super) fn next_of(&mut self, session: &mut Session) -> Asked {
        let Kind::Walk {
            chain,
            pages,
            things,
        } = &self.kind
        else {
            return Asked::get(self.next(None));
        };
        let step = chain.step(session, &mut self.prng);
        let Some((method, path)) = pages.get(step.page) else {
            return Asked::get("/".into());
        };
        let prng = &mut self.prng;
        let drawn = things.iter().map(|thing| thing.draw(prng) + 1).collect();
        let number = self.number;
        self.number += 1;
        Asked {
            method: method.clone(),
            path: path.fill(&Values {
                number,
                drawn,
                ..Values::default()
            }),
            page: Some(step.page),
            ends: step.ends,
        }
    }

    /// The next path. `record` is the request of the log that came at this arrival, if the
    /// arrivals are of a log too; else the log is read from its start, over and over.
    pub(super) fn next(&mut self, record: Option<u32>) -> String {
        let number = self.number;
        self.number += 1;
        let values = Values {
            number,
            ..Values::default()
        };
        match &self.kind {
            Kind::Single(path) => path.fill(&values),
            Kind::Zipf {
                zipf,
                path,
                size,
                cost,
            } => {
                let file = zipf.draw(&mut self.prng);
                path.fill(&Values {
                    file,
                    bytes: of_file(*size, Trait::Size, file, self.seed),
                    cpu: of_file(*cost, Trait::Cost, file, self.seed),
                    ..values
                })
            }
            Kind::Log {
                requests,
                path,
                cost,
            } => {
                let index = record.map_or(number, u64::from) % requests.len().max(1) as u64;
                let recorded = requests.get(index as usize);
                let (file, bytes) = recorded.map_or((0, 0), |it| (it.file, it.bytes));
                path.fill(&Values {
                    file,
                    bytes: bytes.into(),
                    cpu: of_file(*cost, Trait::Cost, file, self.seed),
                    ..values
                })
            }
            Kind::Mix { whole, kinds } => {
                let mut wanted = self.prng.unit() * whole;
                let chosen = kinds.iter().find(|(mix, _)| {
                    wanted -= mix.weight;
                    wanted < 0.0
                });
                let Some((mix, path)) = chosen.or(kinds.last()) else {
                    return String::new();
                };
                path.fill(&Values {
                    bytes: draw(mix.size, &mut self.prng),
                    cpu: draw(mix.cost, &mut self.prng),
                    ..values
                })
            }
            // Walkers are asked by `next_of`.
            Kind::Walk { .. } => String::new(),
        }
    }
}

fn walking(walk: &Walk) -> Kind {
    let names: Vec<_> = walk.draws.iter().map(|draw| draw.name.as_str()).collect();
    let method = |post| if post { Method::POST } else { Method::GET };
    let pages = walk.pages.iter();
    Kind::Walk {
        chain: Chain::new(walk),
        pages: pages
            .map(|page| (method(page.post), Template::drawing(&page.path, &names)))
            .collect(),
        things: walk
            .draws
            .iter()
            .map(|draw| Zipf::new(draw.alpha, draw.count))
            .collect(),
    }
}

/// What a template can be filled with.
#[derive(Clone, Debug, Default)]
struct Values {
    file: u32,
    bytes: u64,
    cpu: u64,
    number: u64,
    /// Numbers for named holes.
    drawn: Vec<u32>,
}

/// A path in pieces.
#[derive(Debug)]
struct Template(Vec<Piece>);

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    File,
    Bytes,
    Cpu,
    Number,
    /// The draw of this place.
    Drawn(usize),
}

/// Names of the holes.
const HOLES: [(&str, Piece); 4] = [
    ("{file}", Piece::File),
    ("{bytes}", Piece::Bytes),
    ("{cpu}", Piece::Cpu),
    ("{n}", Piece::Number),
];

impl Template {
    fn new(text: &str) -> Self {
        Self::drawing(text, &[])
    }

    /// One that also has holes of these names.
    fn drawing(text: &str, names: &[&str]) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        let usual = HOLES
            .into_iter()
            .map(|(name, piece)| (name.to_owned(), piece));
        let drawn = names.iter().enumerate();
        let drawn = drawn.map(|(place, name)| (format!("{{{name}}}"), Piece::Drawn(place)));
        let holes: Vec<_> = usual.chain(drawn).collect();
        let next = |rest: &str| {
            let found = holes
                .iter()
                .map(|(name, piece)| Some((rest.find(name.as_str())?, name, piece.clone())));
            found.flatten().min_by_key(|(at, ..)| *at)
        };
        while let Some((at, name, piece)) = next(rest) {
            if at > 0 {
                pieces.push(Piece::Text(rest[..at].to_owned()));
            }
            pieces.push(piece);
            rest = &rest[at + name.len()..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Self(pieces)
    }

    fn fill(&self, values: &Values) -> String {
        let mut path = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => path.push_str(text),
                Piece::File => path.push_str(&values.file.to_string()),
                Piece::Bytes => path.push_str(&values.bytes.to_string()),
                Piece::Cpu => path.push_str(&values.cpu.to_string()),
                Piece::Number => path.push_str(&values.number.to_string()),
                Piece::Drawn(place) => {
                    let number = values.drawn.get(*place).copied().unwrap_or_default();
                    path.push_str(&number.to_string());
                }
            }
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::plan::Spread;
    use crate::load::walk::{Draw, Page};

    fn source(requests: &Requests) -> Source {
        Source::new(requests, None, 5, Prng::new(5))
    }

    #[test]
    fn templates_are_filled_and_other_braces_stay() {
        let requests = Requests::Single {
            path: "/a/{n}?x={y}&n={n}".to_owned(),
        };
        let mut source = source(&requests);
        assert_eq!(source.next(None), "/a/0?x={y}&n=0");
        assert_eq!(source.next(None), "/a/1?x={y}&n=1");
    }

    #[test]
    fn a_file_always_costs_the_same_whoever_asks() {
        let requests = Requests::Zipf {
            alpha: 0.5,
            files: 50,
            path: "{file} {bytes} {cpu}".to_owned(),
            size: Size {
                mean: 4096.0,
                spread: Spread::Exponential,
            },
            cost: Size {
                mean: 1500.0,
                spread: Spread::Bimodal {
                    share: 0.1,
                    ratio: 10.0,
                },
            },
        };
        let mut seen = std::collections::BTreeMap::new();
        for seed in [1, 2] {
            let mut source = Source::new(&requests, None, 5, Prng::new(seed));
            for _ in 0..1000 {
                let path = source.next(None);
                let (file, rest) = path.split_once(' ').unwrap();
                let known = seen
                    .entry(file.to_owned())
                    .or_insert_with(|| rest.to_owned());
                assert_eq!(known, rest);
            }
        }
        assert!(seen.len() > 40);
    }

    #[test]
    fn a_log_is_followed_by_its_arrivals_or_in_its_order() {
        let recorded = |file| Recorded { file, bytes: file };
        let trace = Trace {
            times: vec![0.0, 0.5, 1.0],
            requests: vec![recorded(7), recorded(8), recorded(9)],
            said: String::new(),
        };
        let requests = Requests::Nasa {
            path: "{file}".to_owned(),
            cost: Size::fixed(1.0),
        };
        let mut source = Source::new(&requests, Some(&trace), 5, Prng::new(5));
        assert_eq!(source.next(Some(2)), "9");
        let order: Vec<_> = (0..3).map(|_| source.next(None)).collect();
        assert_eq!(order, ["8", "9", "7"]);
    }

    #[test]
    fn a_mix_keeps_its_weights() {
        let kind = |weight, path: &str| Mix {
            weight,
            path: path.to_owned(),
            size: Size::fixed(1.0),
            cost: Size::fixed(1.0),
        };
        let mut source = source(&Requests::Mix(vec![
            kind(1.0, "a"),
            kind(0.0, "b"),
            kind(3.0, "c"),
        ]));
        let drawn: Vec<_> = (0..4000).map(|_| source.next(None)).collect();
        let count = |path: &str| drawn.iter().filter(|it| *it == path).count();
        assert_eq!(count("b"), 0);
        assert!((900..1100).contains(&count("a")), "{}", count("a"));
    }

    #[test]
    fn who_walks_asks_for_pages_with_what_was_drawn() {
        let page = |name: &str, post, path: &str, next| Page {
            name: name.to_owned(),
            post,
            path: path.to_owned(),
            next,
        };
        let walk = Walk {
            pages: vec![
                page("item", false, "/item/{item}?of={member}", vec![(1, 1.0)]),
                page("bid", true, "/item/{item}/bid", vec![]),
            ],
            draws: vec![
                Draw {
                    name: "item".to_owned(),
                    count: 1,
                    alpha: 0.5,
                },
                Draw {
                    name: "member".to_owned(),
                    count: 1,
                    alpha: 0.0,
                },
            ],
        };
        let mut source = source(&Requests::Walk(walk));
        let mut session = Session::default();
        // Wherever the client begins, after the bid it is at the item again.
        while !source.next_of(&mut session).ends {}
        let asked = source.next_of(&mut session);
        assert_eq!(
            asked,
            Asked {
                page: Some(0),
                ..Asked::get("/item/1?of=1".to_owned())
            }
        );
        let asked = source.next_of(&mut session);
        assert_eq!((asked.method, asked.page), (Method::POST, Some(1)));
        assert!(asked.ends && asked.path == "/item/1/bid");
    }
}
