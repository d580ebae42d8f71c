//! What of a sample is shown, and in which order: what keys change.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::nodes::COLUMNS;

/// Rows that a page key goes on by.
const PAGE: usize = 10;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// The column that nodes are sorted by; none: the order of the configuration.
    pub(super) sort: Option<usize>,
    /// The smallest first, of numbers; the last one first, of words.
    pub(super) reverse: bool,
    /// The only site that is shown; none: all.
    pub(super) site: Option<String>,
    /// Nodes that are left out above.
    pub(super) first: usize,
    /// No more samples are taken.
    pub(super) paused: bool,
    /// The keys are explained.
    pub(super) help: bool,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Another picture.
    Show,
    /// The end.
    Quit,
}

impl View {
    /// Takes a key; `sites` are those that there are.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other keys mean nothing"
    )]
    pub(super) fn press(&mut self, key: KeyEvent, sites: &[&str]) -> Wish {
        if key.kind == KeyEventKind::Release {
            return Wish::Show;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Wish::Quit,
            KeyCode::Char('q') => return Wish::Quit,
            // One that leaves the help goes on with what is behind it.
            KeyCode::Esc if !self.help => return Wish::Quit,
            KeyCode::Esc => self.help = false,
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Right => self.sort = next(self.sort, COLUMNS.len()),
            KeyCode::Left => self.sort = former(self.sort, COLUMNS.len()),
            KeyCode::Down => self.choose(sites, next),
            KeyCode::Up => self.choose(sites, former),
            KeyCode::PageDown => self.first = self.first.saturating_add(PAGE),
            KeyCode::PageUp => self.first = self.first.saturating_sub(PAGE),
            KeyCode::Home => self.first = 0,
            _ => {}
        }
        Wish::Show
    }

    fn choose(&mut self, sites: &[&str], step: fn(Option<usize>, usize) -> Option<usize>) {
        let chosen = self.site.as_deref();
        let place = chosen.and_then(|name| sites.iter().position(|it| *it == name));
        self.site = step(place, sites.len()).map(|place| sites[place].to_owned());
        self.first = 0;
    }

    /// Whether a site is shown.
    pub(super) fn shows(&self, site: &str) -> bool {
        self.site.as_deref().is_none_or(|chosen| chosen == site)
    }
}

/// The next place, after the last one none.
fn next(place: Option<usize>, places: usize) -> Option<usize> {
    let next = place.map_or(0, |place| place + 1);
    (next < places).then_some(next)
}

/// The place before, before the first one none.
fn former(place: Option<usize>, places: usize) -> Option<usize> {
    place.unwrap_or(places).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITES: [&str; 2] = ["shop", "blog"];

    fn press(view: &mut View, code: KeyCode) -> Wish {
        view.press(KeyEvent::new(code, KeyModifiers::NONE), &SITES)
    }

    #[test]
    fn arrows_go_through_sites_and_columns_and_back() {
        let mut view = View::default();
        let sites = [KeyCode::Down, KeyCode::Down, KeyCode::Down, KeyCode::Up].map(|code| {
            press(&mut view, code);
            view.site.clone()
        });
        let expected = [Some("shop"), Some("blog"), None, Some("blog")];
        assert_eq!(sites, expected.map(|it| it.map(str::to_owned)));
        assert!(view.shows("blog") && !view.shows("shop"));
        press(&mut view, KeyCode::Left);
        assert_eq!(view.sort, Some(COLUMNS.len() - 1));
        press(&mut view, KeyCode::Right);
        press(&mut view, KeyCode::Right);
        assert_eq!(view.sort, Some(0));
    }

    #[test]
    fn without_a_site_arrows_choose_none() {
        let mut view = View::default();
        for code in [KeyCode::Up, KeyCode::Down] {
            view.press(KeyEvent::new(code, KeyModifiers::NONE), &[]);
            assert_eq!(view.site, None);
        }
    }

    #[test]
    fn it_ends_by_q_and_control_c_and_escape_leaves_the_help_first() {
        let mut view = View::default();
        assert_eq!(press(&mut view, KeyCode::Char('q')), Wish::Quit);
        assert_eq!(press(&mut view, KeyCode::Char('c')), Wish::Show);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.press(interrupt, &SITES), Wish::Quit);
        press(&mut view, KeyCode::Char('?'));
        assert!(view.help);
        assert_eq!(press(&mut view, KeyCode::Esc), Wish::Show);
        assert!(!view.help);
        assert_eq!(press(&mut view, KeyCode::Esc), Wish::Quit);
    }
}
