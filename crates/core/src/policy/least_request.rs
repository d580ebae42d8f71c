//! `least_request`: fewest own requests in flight per weight, of all nodes.
//!
//! Formula: least o / weight; among equals, chances are as the weights. So shares follow the
//! weights both when nothing is in flight anywhere and under load. Inputs: own requests in
//! flight o, configured weights. Failure case: it sees its own requests only. With 64
//! front-ends each has less than one request at most nodes, and p99 is 75 % above one
//! front-end's; antagonists and nodes that fail fast look idle. A pick looks at all nodes.
//! Source: least connections, SLBL-ARPN §4; Envoy's and nginx's least_request / least_conn.

use super::{Choice, Parameters, Policy, Term, View};
use crate::ids::NodeId;
use crate::prng::Prng;

/// See the module.
#[derive(Debug)]
pub(super) struct LeastRequest;

impl LeastRequest {
    pub(super) fn new(_: &Parameters) -> Self {
        Self
    }
}

impl Policy for LeastRequest {
    fn pick(&mut self, view: &View<'_>, prng: &mut Prng) -> Choice {
        let mut best = (f32::INFINITY, view.candidates[0]);
        let mut equals = 0.0;
        for node in view.candidates {
            let weight = view.weight(*node);
            let score = view.table.in_flight(*node) as f32 / weight;
            if score < best.0 {
                best = (score, *node);
                equals = weight;
            } else if score == best.0 {
                equals += weight;
                if prng.unit() * f64::from(equals) < f64::from(weight) {
                    best.1 = *node;
                }
            }
        }
        Choice {
            compared: view.candidates.len() as u32,
            score: best.0,
            ..Choice::blind(best.1)
        }
    }

    fn explain(&self, view: &View<'_>, node: NodeId) -> Vec<Term> {
        let own = view.table.in_flight(node) as f64;
        let weight = f64::from(view.weight(node));
        vec![
            Term::new("score", own / weight, "o / weight; least wins"),
            Term::new("o", own, "own requests in flight"),
            Term::new("weight", weight, "configured share"),
        ]
    }
}
