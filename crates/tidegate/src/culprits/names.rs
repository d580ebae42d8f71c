//! What orders call a class that discovery has named.
//!
//! ```text
//! cart   ([culprits] classes: cart=/cart/*)   ──>  * /cart/*
//! GET /search?q                               ──>  GET /search        orders are on paths
//! ```
//!
//! Failure case: names may have `*` within a segment, orders may not; such a class cannot be throttled by its
//! name, and who tries is told so.

use std::collections::BTreeMap;

use tidegate_core::classes::Pattern;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassNames(BTreeMap<String, String>);

impl ClassNames {
    /// Of classes that the configuration names; of the same name the first counts.
    pub(crate) fn new<'a>(patterns: impl IntoIterator<Item = &'a Pattern>) -> Self {
        let mut names = BTreeMap::new();
        for pattern in patterns {
            let name = pattern.name().to_owned();
            names.entry(name).or_insert_with(|| pattern.order());
        }
        Self(names)
    }

    /// A class's name as an order on it has it.
    pub(crate) fn order<'a>(&'a self, class: &'a str) -> &'a str {
        self.0
            .get(class)
            .map_or(without_query(class), String::as_str)
    }
}

/// The same where the configuration names no classes.
pub(crate) fn without_query(class: &str) -> &str {
    class.split_once('?').map_or(class, |(path, _)| path)
}

#[cfg(test)]
mod tests {
    use tidegate_core::throttle::ClassPattern;

    use super::super::class_pattern;
    use super::*;

    #[test]
    fn a_class_is_ordered_by_the_name_that_the_operator_gave_it() {
        let patterns = [
            "cart=/cart/*",
            "POST /login",
            "img=/a*/x",
            "cart=GET /elsewhere",
        ];
        let patterns = patterns.map(|text| class_pattern(text).unwrap());
        let names = ClassNames::new(&patterns);
        for (class, order, can_be) in [
            ("cart", "* /cart/*", true),
            ("POST /login", "POST /login", true),
            ("GET /search?q", "GET /search", true),
            ("GET /other", "GET /other", true),
            ("img", "* /a*/x", false),
        ] {
            assert_eq!(names.order(class), order);
            let parsed = order.parse::<ClassPattern>();
            assert_eq!(parsed.is_ok(), can_be, "{order}");
        }
    }
}
