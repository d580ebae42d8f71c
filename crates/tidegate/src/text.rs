//! Numbers of the admin API as people read them.

use crate::models::{NodeStatus, Quantiles, ThrottleStatus};

/// A short time with the unit that reads best.
pub(crate) fn seconds(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".into(),
        Some(seconds) if seconds < 1e-3 => format!("{:.0}us", seconds * 1e6),
        Some(seconds) if seconds < 0.1 => format!("{:.1}ms", seconds * 1e3),
        Some(seconds) if seconds < 1.0 => format!("{:.0}ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1}s"),
    }
}

/// A long time in its two largest units.
pub(crate) fn duration(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m {}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}

/// A median and a 99th percentile.
pub(crate) fn quantiles(quantiles: &Quantiles) -> String {
    match (quantiles.p50_seconds, quantiles.p99_seconds) {
        (None, None) => "-".into(),
        (p50, p99) => format!("p50 {} p99 {}", seconds(p50), seconds(p99)),
    }
}

/// A share of 1 in percent.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:.0}%", share * 100.0))
}

/// A text as it may stand on a terminal: [`harmless`] in all its letters.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(harmless).collect()
}

/// A letter that neither moves the cursor nor changes the direction of writing, and can be seen; U+FFFD in place of others.
pub(crate) fn harmless(letter: char) -> char {
    match letter {
        // Marks of direction and joiners, which take no room and change what stands beside them.
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => {
            '\u{fffd}'
        }
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' => '\u{fffd}',
        '\u{e0000}'..='\u{e0fff}' => '\u{fffd}',
        _ if letter.is_control() => '\u{fffd}',
        _ => letter,
    }
}

/// A node's state: the operator's word first, then its agent's, then experience.
pub(crate) fn state(node: &NodeStatus) -> &str {
    let agent = node.agent.as_ref().filter(|it| it.state != "ready");
    if let ("ready", Some(agent)) = (node.state.as_str(), agent) {
        return &agent.state;
    }
    match (node.state.as_str(), node.slow_start) {
        ("ready", _) if node.moving => {
            let doing = node.moves_to.as_ref().map(|it| it.state.as_str());
            match doing {
                Some("drains") => "draining",
                Some("switches") => "switching",
                Some(_) | None => "moving",
            }
        }
        ("ready", Some(_)) => "starting",
        ("ready", None) => &node.health,
        (state, _) => state,
    }
}

/// Its run queue over its CPUs, while its load is known.
pub(crate) fn queue(node: &NodeStatus) -> String {
    let load = node.load.as_ref().filter(|load| load.fresh);
    match load.map(|load| (load.runnable, load.capacity)) {
        Some((Some(queue), Some(capacity))) => format!("{queue:.0}/{capacity}"),
        Some((Some(queue), None)) => format!("{queue:.0}"),
        Some((None, _)) | None => "-".into(),
    }
}

/// What a throttle does, in a line.
pub(crate) fn limits(throttle: &ThrottleStatus) -> String {
    match throttle.limits.checked() {
        Ok(limits) => limits.to_string(),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_moves_a_terminals_cursor() {
        let sent = "/z\u{9b}31mRED\u{202e}gnp\x1b[2J\u{200b}/é";
        assert_eq!(
            visible(sent),
            "/z\u{fffd}31mRED\u{fffd}gnp\u{fffd}[2J\u{fffd}/é"
        );
    }

    #[test]
    fn times_read_well() {
        assert_eq!(seconds(Some(0.000_25)), "250us");
        assert_eq!(seconds(Some(0.001_5)), "1.5ms");
        assert_eq!(seconds(Some(0.25)), "250ms");
        assert_eq!(seconds(Some(2.0)), "2.0s");
        assert_eq!(duration(59.9), "59s");
        assert_eq!(duration(90_061.0), "1d 1h");
    }
}
