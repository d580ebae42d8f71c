//! `tidegate top`: sites, nodes, loads and the last requests of a running front-end, drawn anew each second.
//!
//! It asks the admin API and nothing else, so it sees what `tidegate status` sees. A front-end that does not answer
//! is asked again; what it said last stays on the screen with its age. Where there is no terminal, or with `--once`,
//! frames are plain text.

mod events;
#[cfg(test)]
mod fixture;
mod frame;
#[cfg(test)]
mod frame_tests;
mod head;
mod lists;
mod nodes;
mod sample;
mod table;
mod terminal;
mod view;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::Event as TerminalEvent;
use ratatui::layout::Rect;
use tidegate_core::time::Timestamp;
use tidegate_core::units::parse_duration;
use tidegate_remote::clock;
use tokio::signal::unix::SignalKind;
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::client::{AdminArgs, Client};
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::{Stop, listen};
use events::Events;
use frame::Frame;
use sample::{Culprits, Sample};
use terminal::Screen;
use view::{View, Wish};

/// Columns of a frame as text where nothing says how many there are.
const COLUMNS: usize = 120;
/// Most columns and lines of a frame as text.
const COLUMNS_MAX: usize = 1000;
const LINES_MAX: usize = 2000;
/// Shortest and longest `--interval`.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3600);

/// Options of `tidegate top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Time between two questions to the front-end.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// Print one frame as text, and end.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let parsed = parse_duration(text).map_err(|error| error.to_string())?;
    match INTERVALS.contains(&parsed) {
        true => Ok(parsed),
        false => Err("from 100ms to 1h".into()),
    }
}

/// Shows a front-end until it is asked to end.
pub(crate) fn run(args: &TopArgs, output: Output) -> Result<(), Failure> {
    let client = Arc::new(args.admin.client()?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let is_drawn = !args.once && !output.json && terminal::is_interactive();
    let done = runtime.block_on(async {
        match is_drawn {
            true => Top::new(client, args.interval).show().await,
            false => print(&client, args, output).await,
        }
    });
    // A question that is still open ends with the process.
    runtime.shutdown_background();
    done
}

/// Prints frames as text, or each status for programs.
async fn print(client: &Client, args: &TopArgs, output: Output) -> Result<(), Failure> {
    let mut stop = Stop::new()?;
    let mut clock = ticks(args.interval);
    let mut shown = Shown::default();
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            () = stop.wait() => return Ok(()),
        }
        let taken = tokio::select! {
            taken = Sample::take(client, shown.culprits()) => taken,
            () = stop.wait() => return Ok(()),
        };
        match taken {
            Err(why) if args.once => return Err(Failure::Failed(why)),
            taken => shown.take(taken),
        }
        match &shown.current {
            Some(current) if output.json && shown.trouble.is_none() => {
                output.result("", &current.status)?;
            }
            // What is no status is no line for programs: the error goes to the watchers of events.
            _ if output.json => output.event("no_answer", shown.trouble.as_deref().unwrap_or("")),
            _ => output.raw(&format!("{}\n", shown.text()))?,
        }
        if args.once {
            return Ok(());
        }
    }
}

/// Looks that were missed are not made up for.
fn ticks(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// What is known, and what of it is shown.
#[derive(Debug, Default)]
struct Shown {
    previous: Option<Sample>,
    current: Option<Sample>,
    events: Events,
    view: View,
    trouble: Option<String>,
    /// When the question was asked that is open.
    asked: Option<Timestamp>,
}

impl Shown {
    /// Takes the end of a question.
    fn take(&mut self, taken: Result<Sample, String>) {
        let now = clock::now();
        self.asked = None;
        match taken {
            Ok(sample) => {
                if let Some(before) = &self.current {
                    self.events.record(before, &sample);
                }
                if self.trouble.take().is_some() {
                    self.events.say(now, "the front-end answers again".into());
                }
                self.previous = self.current.replace(sample);
            }
            Err(why) => {
                if self.trouble.is_none() {
                    self.events.say(now, "the front-end does not answer".into());
                }
                self.trouble = Some(why);
            }
        }
    }

    fn culprits(&self) -> Culprits {
        let current = self.current.as_ref();
        current.map_or_else(Culprits::default, |it| it.culprits.clone())
    }

    fn frame(&self, has_keys: bool) -> Frame<'_> {
        Frame {
            previous: self.previous.as_ref(),
            current: self.current.as_ref(),
            events: &self.events,
            view: &self.view,
            trouble: self.trouble.as_deref(),
            asked: self.asked,
            now: clock::now(),
            has_keys,
        }
    }

    /// The frame as text, as long as it has to be.
    fn text(&self) -> String {
        let frame = self.frame(false);
        let width = Output::columns().unwrap_or(COLUMNS).min(COLUMNS_MAX);
        let height = frame.lines(width, None).len().min(LINES_MAX);
        // Both are bounded well below.
        let area = Rect::new(0, 0, width as u16, height as u16);
        let mut buffer = Buffer::empty(area);
        frame.draw(area, &mut buffer);
        frame::text(&buffer)
    }
}

/// A front-end on a terminal.
struct Top {
    client: Arc<Client>,
    interval: Duration,
    shown: Shown,
    asked: Option<JoinHandle<Result<Sample, String>>>,
}

impl Top {
    fn new(client: Arc<Client>, interval: Duration) -> Self {
        Self {
            client,
            interval,
            shown: Shown::default(),
            asked: None,
        }
    }

    async fn show(mut self) -> Result<(), Failure> {
        let mut stop = Stop::new()?;
        let mut hang_up = listen(SignalKind::hangup())?;
        let mut quit = listen(SignalKind::quit())?;
        let mut screen = Screen::open(terminal::has_colours())?;
        let mut keys = terminal::keys()?;
        let mut clock = ticks(self.interval);
        loop {
            let frame = self.shown.frame(true);
            screen.draw(|area, buffer| frame.draw(area, buffer))?;
            tokio::select! {
                () = stop.wait() => return Ok(()),
                _ = hang_up.recv() => return Ok(()),
                _ = quit.recv() => return Ok(()),
                _ = clock.tick() => self.ask(),
                taken = answer(&mut self.asked) => self.shown.take(taken),
                event = keys.recv() => match self.press(event)? {
                    Wish::Quit => return Ok(()),
                    Wish::Show => {}
                },
            }
        }
    }

    /// Takes what the terminal says; nothing more comes of one that is gone.
    fn press(&mut self, event: Option<io::Result<TerminalEvent>>) -> io::Result<Wish> {
        match event {
            Some(Ok(TerminalEvent::Key(key))) => {
                let current = self.shown.current.as_ref();
                let sites = current.map_or(&[][..], |it| &it.status.sites);
                let sites: Vec<_> = sites.iter().map(|it| it.name.as_str()).collect();
                Ok(self.shown.view.press(key, &sites))
            }
            // Another size: the next frame has it.
            Some(Ok(_)) => Ok(Wish::Show),
            Some(Err(error)) => Err(error),
            None => Ok(Wish::Quit),
        }
    }

    /// Asks, unless a question is open or nothing new is wanted.
    fn ask(&mut self) {
        if self.asked.is_none() && !self.shown.view.paused {
            let (client, culprits) = (Arc::clone(&self.client), self.shown.culprits());
            let take = async move { Sample::take(&client, culprits).await };
            self.asked = Some(tokio::spawn(take));
            self.shown.asked = Some(clock::now());
        }
    }
}

/// Waits for an answer, if one is to come.
async fn answer(asked: &mut Option<JoinHandle<Result<Sample, String>>>) -> Result<Sample, String> {
    let Some(question) = asked else {
        return std::future::pending().await;
    };
    let taken = question.await;
    *asked = None;
    taken.unwrap_or_else(|error| Err(error.to_string()))
}
