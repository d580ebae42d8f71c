//! The first lines: which front-end, how many requests, and what is wrong with it.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::sample::Sample;
use super::table::clean;
use crate::models::{Level, Requests, Status};
use crate::text::{duration, quantiles, seconds};

/// All requests per second.
struct Rates {
    answers: f64,
    errors: f64,
    refused: f64,
}

/// See the module.
pub(super) fn lines(previous: Option<&Sample>, current: &Sample) -> Vec<Line<'static>> {
    let status = &current.status;
    let mut all = vec![front_end(status)];
    all.extend(headline(status));
    let rates = rates(previous, current);
    all.push(Line::raw(format!(
        "{:.1} req/s · {:.1} errors/s · {:.1} refused/s · {} in flight · {} connections",
        rates.answers, rates.errors, rates.refused, status.requests.in_flight, status.connections,
    )));
    let reads = match status.reader.nodes {
        0 => String::new(),
        nodes => format!(
            " · {nodes} read every {}",
            seconds(Some(status.reader.interval_seconds))
        ),
    };
    all.push(Line::raw(format!(
        "latency {} · load age {}{reads}",
        quantiles(&status.recent.latency),
        quantiles(&status.load_age),
    )));
    let attention = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
    all.extend(unread(status).map(|text| Line::from(Span::raw(text)).style(attention)));
    all
}

fn front_end(status: &Status) -> Line<'static> {
    let state = match (status.draining, status.ready) {
        (true, _) => "draining",
        (false, true) => "ready",
        (false, false) => "not ready: no site has a candidate",
    };
    let listeners: Vec<_> = status.listeners.iter().map(|it| clean(it)).collect();
    let others = match status.front_ends {
        0 | 1 => String::new(),
        number => format!(" · one of {number} front-ends"),
    };
    let text = format!(
        "tidegate {} · {state} · up {} · {}{others}",
        clean(&status.version),
        duration(status.uptime_seconds),
        listeners.join(" "),
    );
    Line::from(Span::raw(text)).style(Style::new().add_modifier(Modifier::BOLD))
}

/// The worst that is wrong, and how much else is; all of it stands in `tidegate status`.
fn headline(status: &Status) -> Option<Line<'static>> {
    let headline = &status.headline;
    let colour = match headline.level {
        Level::Good => return None,
        Level::Warn => Color::Yellow,
        Level::Bad => Color::Red,
    };
    let more = match headline.others.len() {
        0 => String::new(),
        more => format!(" (+{more} more)"),
    };
    let text = format!("{}{more}", clean(&headline.text));
    let style = Style::new().fg(colour).add_modifier(Modifier::BOLD);
    Some(Line::from(Span::raw(text)).style(style))
}

/// Connections that were refused unread, which are no requests.
fn unread(status: &Status) -> Option<String> {
    let refused: u64 = status.connections_refused.values().sum();
    let by_reason = status.connections_refused.iter();
    let by_reason = by_reason.map(|(reason, count)| format!("{count} {}", clean(reason)));
    let by_reason = by_reason.collect::<Vec<_>>().join(", ");
    (refused > 0).then(|| format!("connections refused unread: {by_reason}"))
}

/// Of the time between the samples; without a sample before, of the front-end's last seconds.
fn rates(previous: Option<&Sample>, current: &Sample) -> Rates {
    let status = &current.status;
    let recent = Rates {
        answers: status.recent.requests_per_second,
        errors: status.recent.errors_per_second,
        refused: (status.sites.iter().map(|it| it.apart.refused_per_second)).sum(),
    };
    let Some(previous) = previous else {
        return recent;
    };
    let passed = current.at.seconds_since(previous.at);
    let more = |of: &dyn Fn(&Requests) -> u64| {
        let (now, before) = (of(&status.requests), of(&previous.status.requests));
        Some(now.checked_sub(before)? as f64 / passed)
    };
    let answers = more(&|it| it.completed.saturating_add(it.failed));
    let rejected = |it: &Requests| {
        it.rejected
            .values()
            .fold(0, |sum: u64, it| sum.saturating_add(*it))
    };
    match (answers, more(&rejected)) {
        (Some(answers), Some(refused)) if passed > 0.05 => Rates {
            answers,
            refused,
            // Server errors are among the answers, and are counted by the front-end alone.
            ..recent
        },
        _ => recent,
    }
}
