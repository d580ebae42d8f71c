//! A path as an operator's throttle has it, wildcards and all.

use super::PatternError;
use crate::classes::{Level, Selector, Shape, escaped, pattern_of};

/// Most segments of a path.
const SEGMENTS_MAX: usize = 32;

/// The segments of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// This text, escaped.
    Text(String),
    /// One that folding takes for a number or the like.
    Folded(String),
    Any,
    /// All that is left, if it ends so.
    Rest(String),
}

impl Path {
    pub(super) fn parse(path: &str) -> Result<Self, PatternError> {
        let path = path.strip_prefix('/').ok_or(PatternError::Path)?;
        let parts: Vec<_> = path.split('/').collect();
        if parts.len() > SEGMENTS_MAX {
            return Err(PatternError::Long);
        }
        let last = parts.len() - 1;
        let segments = parts.iter().enumerate();
        let segments = segments.map(|(place, part)| segment(part, place == last));
        Ok(Self(segments.collect::<Result<_, _>>()?))
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        let Some(mut left) = path.strip_prefix('/').map(Some) else {
            return false;
        };
        for segment in &self.0 {
            let Some(rest) = left else { return false };
            if let Segment::Rest(end) = segment {
                return rest.ends_with(end.as_str());
            }
            let (found, after) = match rest.split_once('/') {
                Some((found, after)) => (found, Some(after)),
                None => (rest, None),
            };
            if !segment.matches(found) {
                return false;
            }
            left = after;
        }
        left.is_none()
    }

    /// Whether all requests of a class are for such paths.
    pub(super) fn covers(&self, class: &Selector) -> bool {
        let root = [Level::Name("".into())];
        let mut levels = match class.path() {
            [] => root.iter(),
            levels => levels.iter(),
        };
        for segment in &self.0 {
            let Some(level) = levels.next() else {
                return false;
            };
            if let Segment::Rest(end) = segment {
                let last = levels.next_back().unwrap_or(level);
                let ends = matches!(last, Level::Name(name) if name.ends_with(end.as_str()));
                return end.is_empty() || class.is_static() && ends;
            }
            if !segment.covers(level) {
                return false;
            }
        }
        levels.next().is_none()
    }

    /// How much it says: segments of text, and all.
    pub(super) fn weight(&self) -> (usize, usize) {
        let is_text = |segment: &&Segment| match segment {
            Segment::Text(_) => true,
            Segment::Folded(_) | Segment::Any | Segment::Rest(_) => false,
        };
        (self.0.iter().filter(is_text).count(), self.0.len())
    }
}

impl Segment {
    fn matches(&self, found: &str) -> bool {
        match self {
            Self::Text(text) => text == found || escaped(found) == text.as_str(),
            Self::Folded(kind) => !found.is_empty() && pattern_of(found) == kind.as_str(),
            Self::Any => !found.is_empty(),
            Self::Rest(_) => true,
        }
    }

    fn covers(&self, level: &Level) -> bool {
        match (self, level) {
            (Self::Text(own) | Self::Folded(own), Level::Name(name)) => **name == **own,
            (Self::Any | Self::Rest(_), _) => *level != Level::Name("".into()),
            (Self::Text(_) | Self::Folded(_), Level::Merged(_)) => false,
        }
    }
}

fn segment(text: &str, is_last: bool) -> Result<Segment, PatternError> {
    let after_star = text.strip_prefix('*');
    match after_star {
        Some(end) if is_last && !end.contains('*') => Ok(Segment::Rest(end.into())),
        Some("") => Ok(Segment::Any),
        Some(_) => Err(PatternError::Star),
        None if Shape::FOLDED.contains(&text) => Ok(Segment::Folded(text.into())),
        None if text.starts_with('{') && text.ends_with('}') => match text.contains('^') {
            true => Err(PatternError::Query),
            false => Ok(Segment::Any),
        },
        None if text.contains('*') => Err(PatternError::Star),
        None if text.contains(['{', '}']) => Err(PatternError::Brace),
        None => Ok(Segment::Text(escaped(text).into_owned())),
    }
}
