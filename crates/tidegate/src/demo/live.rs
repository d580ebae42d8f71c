//! The live table: redrawn in place on a terminal, plain lines elsewhere.

use std::fmt::Write;

use crate::output::Output;
use tidegate_lab::server::emulated::NodeNow;

/// Up by so many lines and clear what is below.
fn rewind(lines: usize) -> String {
    format!("\x1b[{lines}A\x1b[J")
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

    /// Whether tables are redrawn: somebody watches.
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
        self.output.raw(text)
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
        // A line that wraps would count as two when the table is taken away.
        let columns = Output::columns().unwrap_or(usize::MAX);
        let cut = |line: &str| line.chars().take(columns).collect::<String>();
        let text = text.lines().map(cut).collect::<Vec<_>>().join("\n");
        self.clear()?;
        self.lines = text.lines().count();
        self.output.raw(&text)
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
