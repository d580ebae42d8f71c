//! Whether the machine was fit for what was measured on it, over all runs: sentences for the report.

use super::usage::{OTHERS_MAX, STOLEN_MAX, Usage};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Fitness {
    runs: usize,
    repeated: usize,
    /// Of the runs that count and were disturbed.
    disturbed: Vec<Usage>,
    /// Share of late requests of the runs in which the load generator did not keep up.
    late: Vec<f64>,
}

impl Fitness {
    /// A run was disturbed and will be repeated.
    pub(super) fn repeat(&mut self) {
        self.repeated += 1;
    }

    /// A run counts.
    pub(super) fn run(&mut self, usage: &Usage) {
        self.runs += 1;
        if usage.is_disturbed() {
            self.disturbed.push(*usage);
        }
    }

    /// Its load generator did not keep up: this share of its requests was late.
    pub(super) fn late(&mut self, share: f64) {
        self.late.push(share);
    }

    /// What the reader of the report should know.
    pub(super) fn sentences(&self) -> Vec<String> {
        let percent = |share: f64| share * 100.0;
        let worst = |shares: &mut dyn Iterator<Item = f64>| percent(shares.fold(0.0, f64::max));
        let mut said = Vec::new();
        if self.repeated > 0 {
            said.push(format!(
                "Runs thrown away unseen and repeated: {}. Meanwhile the hypervisor had taken over {:.0} % of a CPU for other \
                 machines, or other programs over {:.0} % of the nodes' CPU.",
                self.repeated,
                percent(STOLEN_MAX),
                percent(OTHERS_MAX)
            ));
        }
        if !self.disturbed.is_empty() {
            said.push(format!(
                "DISTURBED: {} of {} runs count although they were disturbed as well, since there was no time left to repeat them. \
                 At worst the hypervisor took {:.0} % of a CPU, other programs {:.0} % of the nodes' CPU.",
                self.disturbed.len(),
                self.runs,
                worst(&mut self.disturbed.iter().map(|it| it.stolen)),
                worst(&mut self.disturbed.iter().map(|it| it.others)),
            ));
        }
        if !self.late.is_empty() {
            said.push(format!(
                "In {} of {} runs the load generator did not keep up: at worst {:.1} % of the requests began late, \
                 by over 1 ms and over a twentieth of what they took.",
                self.late.len(),
                self.runs,
                worst(&mut self.late.iter().copied())
            ));
        }
        said
    }
}
