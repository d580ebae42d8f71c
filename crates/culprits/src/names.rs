//! Classes that the configuration or the command line names, and what orders on classes of discovery are for.
//!
//! ```text
//! cart   ([culprits] classes: cart=/cart/*)   ──>  the requests of that class
//! GET /search                                 ──>  a path, whatever the query
//! GET /search?q                               ──>  a class of discovery, no request more
//! ```

use std::sync::Arc;

use tidegate_core::classes::Pattern;
use tidegate_core::throttle::{ClassPattern, PatternError};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct ClassNames(Arc<[Pattern]>);

impl ClassNames {
    /// Of classes that the configuration names; of the same name the first counts.
    pub fn new(patterns: &[Pattern]) -> Self {
        Self(patterns.into())
    }

    /// Whether the configuration has a class of that name.
    pub fn is_configured(&self, name: &str) -> bool {
        self.0.iter().any(|it| it.name() == name)
    }

    /// What a text means in an order.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn pattern(&self, text: &str) -> Result<ClassPattern, PatternError> {
        ClassPattern::parse(text, &self.0)
    }
}

/// What `--class` takes: `/search/*`, or `name=/search/*`.
pub fn class_pattern(text: &str) -> Result<Pattern, String> {
    let (name, pattern) = match text.split_once('=') {
        Some((name, pattern)) if !name.contains('/') => (Some(name), pattern),
        Some(_) | None => (None, text),
    };
    Pattern::new(pattern, name).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_throttled_by_the_name_that_the_operator_gave_it() {
        let patterns = [
            "cart=/cart/*",
            "POST /login",
            "img=/a*/x",
            "cart=GET /elsewhere",
        ];
        let patterns = patterns.map(|text| class_pattern(text).unwrap());
        let names = ClassNames::new(&patterns);
        for (class, method, target, expected) in [
            ("cart", "GET", "/cart/17", true),
            ("cart", "GET", "/elsewhere", false),
            ("POST /login", "POST", "/login?next", true),
            ("GET /search?q", "GET", "/search?q=1", true),
            ("GET /search?q", "GET", "/search", false),
            ("GET /other", "GET", "/other?q", true),
            ("img", "GET", "/abc/x", true),
        ] {
            let pattern = names.pattern(class).unwrap();
            assert_eq!(pattern.name(), class);
            assert_eq!(pattern.matches("", method, target), expected, "{class}");
        }
        assert_eq!(names.pattern("basket"), Err(PatternError::Words));
    }
}
