//! A table of a site, a node and so on that stands before the first of them: what TOML says of that (a key that is there twice, a
//! table where a list is expected) is true, and of no help.

use std::ops::Range;

use super::problem::Problem;

/// Tables of which there may be several, and that have tables of their own.
const SEVERAL: [&str; 4] = ["listener", "site", "node", "discover"];

/// The first that stands so, like `[[site.route]]` before any `[[site]]`. To be asked where the file cannot be read.
pub(super) fn problem(text: &str) -> Option<Problem> {
    let mut begun: Vec<&str> = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let at = start;
        start += line.len();
        let header = line.trim();
        let Some(inner) = header.strip_prefix('[') else {
            continue;
        };
        let name = inner.trim_start_matches('[').split(']').next()?.trim();
        let (first, rest) = name.split_once('.').unwrap_or((name, ""));
        let Some(known) = SEVERAL.iter().find(|it| **it == first) else {
            continue;
        };
        if rest.is_empty() {
            begun.push(known);
        } else if !begun.contains(known) {
            let begin = at + line.len() - line.trim_start().len();
            return Some(of(known, name, begin..begin + header.len()));
        }
    }
    None
}

fn of(several: &str, name: &str, at: Range<usize>) -> Problem {
    let message = format!("`{name}` stands before the first [[{several}]]");
    let problem = Problem::new(at, message, format!("it belongs to no {several}"));
    problem.help(format!("put it below the [[{several}]] that it is of"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_before_is_found() {
        let found = |text: &str| problem(text).is_some();
        assert!(found("[admin]\n  [[site.route]] # here\n[[site]]\n"));
        assert!(found("[[site]]\n[node.load]\n"));
        assert!(!found(
            "[[site]]\nname = \"a\"\n[[site.route]]\n[agent.moves]\n[[\n[\n"
        ));
        assert!(!found("x = [\n[1], [2]]\n"));
        assert!(!found(""));
    }
}
