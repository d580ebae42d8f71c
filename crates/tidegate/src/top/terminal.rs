//! The terminal: a screen of its own while frames are drawn, and the keys. However the process ends, the terminal is
//! given back as it was: at the end, after an error, a panic or a signal that asks to stop.

use std::io::{self, IsTerminal, Stdout};
use std::sync::Once;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use tokio::sync::mpsc::{Receiver, channel};

/// Keys that wait; further ones wait in the terminal.
const KEYS_MAX: usize = 16;

/// The terminal while it is ours.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    colours: bool,
}

impl Screen {
    /// Takes the terminal; `colours` says whether it is to show any.
    pub(super) fn open(colours: bool) -> io::Result<Self> {
        restore_after_panics();
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        // From here on it is given back, whatever fails.
        let screen = Self { terminal, colours };
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
        Ok(screen)
    }

    /// Draws a frame in the size that the terminal has now.
    pub(super) fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> io::Result<()> {
        let colours = self.colours;
        self.terminal.draw(|frame| {
            let area = frame.area();
            draw(area, frame.buffer_mut());
            if !colours {
                without_colours(area, frame.buffer_mut());
            }
        })?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Takes colours away; bold and dim text stay.
pub(super) fn without_colours(area: Rect, buffer: &mut Buffer) {
    buffer.set_style(area, Style::new().fg(Color::Reset).bg(Color::Reset));
}

/// Gives the terminal back. One that is gone cannot be given back.
fn restore() {
    disable_raw_mode().unwrap_or_default();
    execute!(io::stdout(), LeaveAlternateScreen, Show).unwrap_or_default();
}

/// Has a panic's message written to the terminal as it was before.
fn restore_after_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            hook(panic);
        }));
    });
}

/// Whether frames can be drawn in place and keys be read.
pub(super) fn is_interactive() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    !dumb && io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// Whether colours are wanted: <https://no-color.org>.
pub(super) fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty())
}

/// Keys and changes of the size, read on a thread of their own: the terminal knows no other way to wait. It ends
/// with the terminal or the process.
pub(super) fn keys() -> io::Result<Receiver<io::Result<Event>>> {
    let (sender, receiver) = channel(KEYS_MAX);
    let thread = std::thread::Builder::new().name("keys".into());
    thread.spawn(move || {
        loop {
            let read = event::read();
            let ended = read.is_err();
            if sender.blocking_send(read).is_err() || ended {
                return;
            }
        }
    })?;
    Ok(receiver)
}
