//! The query of a question, `?step=10&last=90`: names that are known, numbers within their limits.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use percent_encoding::percent_decode_str;

/// See the module. A name without a value is one with an empty value.
#[derive(Debug)]
pub(super) struct Query<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Query<'a> {
    /// Understands it if it knows no other names than these.
    pub(super) fn parsed(query: Option<&'a str>, names: &[&str]) -> Result<Self, String> {
        let mut pairs = BTreeMap::new();
        let all = query.unwrap_or_default().split('&');
        for pair in all.filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !names.contains(&name) {
                let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
                return Err(format!("only {} may be asked for here", names.join(", ")));
            }
            pairs.insert(name, value);
        }
        Ok(Self(pairs))
    }

    /// A whole number; this one if it is not there.
    pub(super) fn number(
        &self,
        name: &str,
        otherwise: u64,
        within: RangeInclusive<u64>,
    ) -> Result<u64, String> {
        let number = match self.0.get(name) {
            None => Some(otherwise),
            Some(text) => text.parse().ok(),
        };
        number.filter(|it| within.contains(it)).ok_or_else(|| {
            let (least, most) = within.into_inner();
            match most {
                u64::MAX => format!("`{name}` is a whole number from {least} on"),
                _ => format!("`{name}` is a whole number, {least} to {most}"),
            }
        })
    }

    /// A text.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let text = self.0.get(name)?;
        Some(percent_decode_str(text).decode_utf8_lossy().into_owned())
    }

    /// Whether it is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_understood_or_its_fault_named() {
        let parsed = |query| Query::parsed(Some(query), &["last", "site", "wrong"]);
        let query = parsed("last=7&&site=a%20b&wrong").unwrap();
        assert_eq!(query.number("last", 9, 1..=10), Ok(7));
        assert_eq!(query.number("after", 9, 1..=10), Ok(9));
        assert_eq!(query.text("site").as_deref(), Some("a b"));
        assert!(query.has("wrong") && !query.has("node"));
        assert!(!Query::parsed(None, &[]).unwrap().has("x"));
        let why = parsed("from=1").unwrap_err();
        assert_eq!(why, "only `last`, `site`, `wrong` may be asked for here");
        for last in ["0", "11", "-1", "x", ""] {
            let text = format!("last={last}");
            let query = Query::parsed(Some(&text), &["last"]).unwrap();
            let why = query.number("last", 9, 1..=10).unwrap_err();
            assert_eq!(why, "`last` is a whole number, 1 to 10", "{last}");
        }
        let query = parsed("last=x").unwrap();
        let why = query.number("last", 0, 0..=u64::MAX).unwrap_err();
        assert_eq!(why, "`last` is a whole number from 0 on");
    }
}
