//! Frames as a terminal shows them, beside the files of `frames/`; `UPDATE_EXPECT=1` writes those anew.

use std::path::Path;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use tidegate_core::time::Timestamp;

use super::events::Events;
use super::fixture::{sample, two_samples};
use super::frame::{Frame, text};
use super::sample::Sample;
use super::terminal::without_colours;
use super::view::View;

const NOW: Timestamp = Timestamp::from_millis(102_500);

fn drawn(frame: Frame<'_>, width: u16, height: u16) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|it| frame.draw(it.area(), it.buffer_mut()))
        .unwrap();
    terminal.backend().clone()
}

#[track_caller]
fn check(name: &str, frame: Frame<'_>, width: u16, height: u16) {
    let actual = text(drawn(frame, width, height).buffer());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/top/frames/{name}.txt"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&file, &actual).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(
        actual,
        expected,
        "{}: UPDATE_EXPECT=1 rewrites it",
        file.display()
    );
}

fn events() -> Events {
    let (before, mut now) = two_samples();
    now.status.sites[0].nodes[1].health = "ejected".into();
    now.status.sites[0].nodes[1].trouble.ejected_for = Some("failures".into());
    let mut events = Events::default();
    events.record(&before, &now);
    events
}

fn frame<'a>(samples: &'a (Sample, Sample), events: &'a Events, view: &'a View) -> Frame<'a> {
    Frame {
        previous: Some(&samples.0),
        current: Some(&samples.1),
        events,
        view,
        trouble: None,
        asked: None,
        now: NOW,
        has_keys: true,
    }
}

#[test]
fn a_frame_has_sites_nodes_culprits_throttles_changes_and_requests() {
    let (samples, events, view) = (two_samples(), events(), View::default());
    check("whole", frame(&samples, &events, &view), 130, 36);
}

#[test]
fn a_small_terminal_shows_what_matters_most() {
    let (samples, events, view) = (two_samples(), events(), View::default());
    check("small", frame(&samples, &events, &view), 60, 16);
    for width in (0..140).step_by(7) {
        for height in 0..40 {
            drawn(frame(&samples, &events, &view), width, height);
        }
    }
}

#[test]
fn one_site_is_shown_in_the_order_of_a_column() {
    let (samples, events) = (two_samples(), Events::default());
    let view = View {
        site: Some("shop".into()),
        sort: Some(0),
        reverse: true,
        ..View::default()
    };
    check("site", frame(&samples, &events, &view), 130, 24);
}

#[test]
fn the_keys_are_explained() {
    let (samples, events) = (two_samples(), Events::default());
    let view = View {
        help: true,
        ..View::default()
    };
    check("help", frame(&samples, &events, &view), 90, 24);
}

#[test]
fn a_front_end_that_is_gone_is_said_beside_what_it_said_last() {
    let (samples, events) = (two_samples(), Events::default());
    let view = View {
        paused: true,
        ..View::default()
    };
    let mut gone = frame(&samples, &events, &view);
    gone.trouble = Some("no front-end answers at 127.0.0.1:9900");
    check("gone", gone, 90, 14);
    gone.current = None;
    check("never", gone, 90, 5);
}

#[test]
fn many_nodes_are_counted_and_can_be_gone_through() {
    let mut samples = two_samples();
    let nodes = &mut samples.1.status.sites[0].nodes;
    let node = nodes[0].clone();
    nodes.extend((0..500).map(|number| {
        let mut node = node.clone();
        node.name = format!("m{number:03}");
        node
    }));
    let events = Events::default();
    let mut view = View::default();
    let shown = |view: &View| text(drawn(frame(&samples, &events, view), 100, 30).buffer());
    let first = shown(&view);
    assert!(
        first.contains("m001") && first.contains("nodes more"),
        "{first}"
    );
    view.first = 400;
    let later = shown(&view);
    assert!(later.contains("m400") && !later.contains("m001"), "{later}");
    view.first = usize::MAX;
    assert!(shown(&view).contains("db"));
}

/// A front-end, or what listens in its place, has no more power over the terminal than these letters.
#[test]
fn names_that_would_move_the_cursor_are_shown_as_what_they_are() {
    let mut samples = two_samples();
    let evil = "\x1b[2J\x1b]0;owned\x07\u{9b}1A\r\n\u{202e}evil\u{200b}";
    let status = &mut samples.1.status;
    status.version = evil.into();
    status.listeners[0] = evil.into();
    status.sites[0].name = evil.into();
    status.sites[0].policy = evil.into();
    let node = &mut status.sites[0].nodes[0];
    (node.name, node.state, node.rung) = (evil.into(), evil.into(), evil.into());
    status.throttles[0].class = evil.into();
    status.resources[0].name = evil.into();
    samples.1.culprits.accused[0].class = evil.into();
    samples.1.decisions[0].decision.path = evil.into();
    (samples.1.status.connections_refused).insert(evil.into(), 1);
    let mut events = Events::default();
    events.record(&samples.0, &samples.1);
    let view = View::default();
    let mut hostile = frame(&samples, &events, &view);
    hostile.trouble = Some(evil);
    let text = text(drawn(hostile, 160, 60).buffer());
    let bad = text
        .chars()
        .find(|it| it.is_control() && *it != '\n' || "\u{202e}\u{200b}".contains(*it));
    assert_eq!(bad, None, "{text}");
    assert!(text.matches("evil").count() > 10, "{text}");
}

#[test]
fn without_colours_no_cell_has_any() {
    let (samples, events, view) = (two_samples(), events(), View::default());
    let mut buffer = drawn(frame(&samples, &events, &view), 130, 36)
        .buffer()
        .clone();
    let coloured = |buffer: &ratatui::buffer::Buffer| {
        let mut cells = buffer.content().iter();
        cells.any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(coloured(&buffer));
    without_colours(buffer.area, &mut buffer);
    assert!(!coloured(&buffer));
}

#[test]
fn the_first_sample_has_the_rates_that_the_front_end_gives() {
    let only = sample(NOW);
    let (events, view) = (Events::default(), View::default());
    let first = Frame {
        previous: None,
        current: Some(&only),
        events: &events,
        view: &view,
        trouble: None,
        asked: None,
        now: NOW,
        has_keys: false,
    };
    let lines = first.lines(120, None);
    assert!(
        lines[2]
            .to_string()
            .starts_with("751.5 req/s · 3.0 errors/s · 24.7 refused/s")
    );
}

#[test]
fn a_question_without_an_answer_is_said_after_two_seconds() {
    let (samples, events, view) = (two_samples(), Events::default(), View::default());
    let mut frame = frame(&samples, &events, &view);
    let says = |frame: &Frame<'_>| {
        let lines = frame.lines(120, None);
        lines.iter().any(|it| it.to_string() == "no answer for 3 s")
    };
    frame.now = NOW + Duration::from_secs(3);
    assert!(!says(&frame));
    frame.asked = Some(NOW);
    assert!(says(&frame));
    frame.asked = Some(NOW + Duration::from_millis(1500));
    assert!(!says(&frame));
}
