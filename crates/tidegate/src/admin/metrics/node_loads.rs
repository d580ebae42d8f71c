//! What is known of the nodes' own loads.

use tidegate_core::load::NodeLoad;

use super::Scene;
use crate::exposition::{Kind, Text};

impl Scene<'_> {
    pub(super) fn node_loads(&self, text: &mut Text) {
        let help = "Time since the newest load record was made, believed or not.";
        let mut family = text.family("tidegate_node_load_age_seconds", Kind::Gauge, help);
        self.each_node(|labels, id, _| {
            let seen = self.plane.shared.table.last(id).observed_at;
            if seen.nanos() > 0 {
                family.sample(labels, self.look.now.since(seen).as_secs_f64());
            }
        });
        type Value = fn(&NodeLoad) -> f32;
        let gauges: [(_, _, Value); 7] = [
            (
                "tidegate_node_cpus",
                "CPUs that the node can use.",
                |load| load.capacity,
            ),
            (
                "tidegate_node_run_queue",
                "Tasks that run or wait for a CPU.",
                |load| load.runnable,
            ),
            (
                "tidegate_node_cpu_ratio",
                "Used share of the CPUs over the last 10 ms or so.",
                |load| load.utilization.clamp(0.0, 1.0),
            ),
            (
                "tidegate_node_memory_ratio",
                "Used share of the memory.",
                |load| load.memory,
            ),
            (
                "tidegate_node_files_ratio",
                "Used share of the file descriptors.",
                |load| load.files,
            ),
            (
                "tidegate_node_requests",
                "Requests in flight of all front-ends.",
                |load| load.in_flight,
            ),
            (
                "tidegate_node_one_way_seconds",
                "One-way delay between node and front-end.",
                |load| load.one_way,
            ),
        ];
        for (name, help, value) in gauges {
            let mut family = text.family(name, Kind::Gauge, help);
            self.each_node(|labels, id, _| {
                if let Some(load) = self.plane.shared.table.fresh(id, self.look.now) {
                    family.sample(labels, value(&load).into());
                }
            });
        }
        let help =
            "CPU time that the node has used, whatever for; from zero again when it starts anew.";
        let mut family = text.family("tidegate_node_cpu_seconds", Kind::Counter, help);
        self.each_node(|labels, id, _| {
            let counters = self.plane.shared.table.counters(id);
            if let Some(busy_ns) = counters.and_then(|it| it.busy_ns) {
                family.sample(labels, busy_ns as f64 / 1e9);
            }
        });
    }
}
