//! What is asked for: the path of each request, from a template and a draw.

use tidegate_core::prng::Prng;

use super::files::{Trait, Zipf, draw, of_file};
use super::plan::{Mix, Requests, Size};
use super::traces::{Recorded, Trace};

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
        };
        Self {
            kind,
            prng,
            seed,
            number: 0,
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
                    number,
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
                    number,
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
        }
    }
}

/// What a template can be filled with.
#[derive(Clone, Copy, Debug, Default)]
struct Values {
    file: u32,
    bytes: u64,
    cpu: u64,
    number: u64,
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
        let mut pieces = Vec::new();
        let mut rest = text;
        let next = |rest: &str| {
            let found = HOLES
                .into_iter()
                .map(|(name, piece)| Some((rest.find(name)?, name, piece)));
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
            }
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::plan::Spread;

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
}
