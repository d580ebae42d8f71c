//! `tidegate events`: what happened, and with `--follow` what happens.

use std::time::Duration;

use clap::Args;

use crate::client::{AdminArgs, Client};
use crate::failure::Failure;
use crate::models::{EventLevel, EventModel, Events};
use crate::output::Output;

/// Between two questions for what is new.
const LOOK: Duration = Duration::from_secs(1);
/// Most events of one answer.
const EVENTS_MAX: u64 = 1000;

/// `tidegate events`.
#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    /// Show so many.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=EVENTS_MAX))]
    last: u64,
    /// Go on with each that comes, until it is stopped; with `--json` a line each.
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Shows them.
pub(super) fn run(args: &EventsArgs, output: Output) -> Result<(), Failure> {
    let client = args.admin.client()?;
    let events = ask(&client, 0, args.last).map_err(Failure::Failed)?;
    if !args.follow {
        return Ok(output.result(&show(&events), &events)?);
    }
    print(&events, output)?;
    follow(&client, events.since, events.newest, output)
}

fn ask(client: &Client, after: u64, last: u64) -> Result<Events, String> {
    client.get(&format!("/api/events?after={after}&last={last}"))
}

/// Prints what is newer, until the process is stopped or nothing takes the lines any more.
fn follow(client: &Client, mut since: u64, mut newest: u64, output: Output) -> Result<(), Failure> {
    let mut said: Option<String> = None;
    loop {
        // The time between two questions.
        std::thread::sleep(LOOK);
        let events = match ask(client, newest, EVENTS_MAX) {
            // Another process counts from one.
            Ok(events) if events.since != since || events.newest < newest => {
                ask(client, 0, EVENTS_MAX)
            }
            answer => answer,
        };
        match events {
            Ok(events) => {
                (since, newest) = (events.since, events.newest);
                said = None;
                print(&events, output)?;
            }
            // What was said already is not said again; it is asked again.
            Err(why) => {
                if said.as_ref() != Some(&why) {
                    output.event("no_answer", &why);
                    said = Some(why);
                }
            }
        }
    }
}

fn print(events: &Events, output: Output) -> Result<(), Failure> {
    for event in &events.events {
        output.result(&line(event), event)?;
    }
    Ok(())
}

fn show(events: &Events) -> String {
    match events.events.is_empty() {
        true => "nothing has happened yet\n".into(),
        false => events.events.iter().map(line).collect(),
    }
}

/// Times are in UTC, as in the log.
fn line(event: &EventModel) -> String {
    let mark = match event.level {
        EventLevel::Bad => "wrong",
        EventLevel::Warn => "warning",
        EventLevel::Good => "well",
        EventLevel::Note => "",
    };
    let again = match event.times {
        ..=1 => String::new(),
        times => format!(" ({times} times since {:.0})", at(event.first_at_seconds)),
    };
    let (at, text) = (at(event.at_seconds), &event.text);
    format!("{at:.3} {mark:7} {text}{again}\n")
}

fn at(seconds: f64) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond((seconds * 1e3) as i64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_when_how_bad_and_how_often() {
        let mut event = EventModel {
            number: 7,
            at_seconds: 1_795_868_400.25,
            times: 1,
            first_at_seconds: 1_795_868_400.25,
            kind: "ejected".into(),
            level: EventLevel::Warn,
            site: None,
            node: None,
            by: None,
            text: "node n1 is ejected".into(),
        };
        let said = "2026-11-28T12:20:00.250Z warning node n1 is ejected";
        assert_eq!(line(&event), format!("{said}\n"));
        (event.times, event.first_at_seconds) = (3, 1_795_868_100.0);
        let again = "(3 times since 2026-11-28T12:15:00Z)";
        assert_eq!(line(&event), format!("{said} {again}\n"));
        let events = Events {
            since: 0,
            newest: 0,
            oldest: 0,
            events: Vec::new(),
        };
        assert_eq!(show(&events), "nothing has happened yet\n");
    }
}
