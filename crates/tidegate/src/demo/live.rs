//! The live table: redrawn in place on a terminal, plain lines elsewhere.

use std::fmt::Write;

use crate::output::Output;
use tidegate_emulator::nodes::NodeNow;

/// Clears so many lines above the cursor and goes up to the first. Line by line: terminals that are asked to
/// clear all of their screen keep what was there as history.
fn rewind(lines: usize) -> String {
    "\x1b[A\x1b[2K".repeat(lines)
}

/// The table as lines that fit: one that wraps would count as two when the table is taken away, and some
/// terminals wrap one that is as long as they are wide.
fn lines(text: &str, columns: usize) -> Vec<String> {
    let most = columns.saturating_sub(1);
    let cut = |line: &str| line.chars().take(most).collect();
    text.lines().map(cut).collect()
}

/// See the module.
#[derive(Debug)]
pub(super) struct Live {
    output: Output,
    /// Whether tables are redrawn.
    redraws: bool,
    /// Lines of the table that stands on the terminal.
    lines: usize,
    before: Vec<NodeNow>,
}

impl Live {
    pub(super) fn new(output: Output) -> Self {
        Self {
            output,
            redraws: output.redraws(),
            lines: 0,
            before: Vec::new(),
        }
    }

    /// Whether tables are redrawn: it is a terminal.
    pub(super) fn is_watched(&self) -> bool {
        self.redraws
    }

    /// The nodes were emptied: what was done before counts no more.
    pub(super) fn begin(&mut self) {
        self.before.clear();
    }

    /// Something to keep: a line of text that stays.
    pub(super) fn say(&mut self, event: &str, text: &str) -> std::io::Result<()> {
        if self.output.json {
            self.output.event(event, text);
            return Ok(());
        }
        self.clear()?;
        self.output.raw(&self.output.fit(text))
    }

    /// The table of nodes as of now, each with its name and CPUs; `seconds` since the last one. The head
    /// stands above it.
    pub(super) fn show(
        &mut self,
        head: &str,
        nodes: &[(&str, u32, NodeNow)],
        seconds: f64,
    ) -> std::io::Result<()> {
        if !self.redraws {
            return Ok(());
        }
        let mut text = format!(
            "{head}\n{:<8} {:>4} {:>12} {:>10} {:>10} {:>8}",
            "node", "CPUs", "antagonists", "run queue", "in flight", "done/s"
        );
        for (index, (name, cores, now)) in nodes.iter().enumerate() {
            let before = self.before.get(index).copied().unwrap_or_default();
            let done = now.completions.saturating_sub(before.completions) as f64;
            let antagonists = match now.antagonists {
                0 => "-".to_owned(),
                tasks => tasks.to_string(),
            };
            // Writing to a string cannot fail.
            write!(
                text,
                "\n{name:<8} {cores:>4} {antagonists:>12} {:>10} {:>10} {:>8.0}",
                now.runnable,
                now.in_flight,
                done / seconds.max(1e-9)
            )
            .ok();
        }
        self.before = nodes.iter().map(|(_, _, now)| *now).collect();
        let columns = Output::columns().unwrap_or(usize::MAX);
        let lines = lines(&text, columns);
        self.clear()?;
        self.lines = lines.len();
        self.output.raw(&lines.join("\n"))
    }

    /// Takes the table away.
    pub(super) fn clear(&mut self) -> std::io::Result<()> {
        let lines = std::mem::take(&mut self.lines);
        match lines {
            0 => Ok(()),
            lines => self.output.control(&rewind(lines)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_narrower_than_its_terminal_and_goes_away_line_by_line() {
        let text = format!("{}\nshort", "long ".repeat(40));
        let lines = lines(&text, 80);
        assert_eq!(lines[0].len(), 79);
        assert_eq!(lines[1], "short");
        assert_eq!(rewind(lines.len()), "\x1b[A\x1b[2K\x1b[A\x1b[2K");
    }
}
