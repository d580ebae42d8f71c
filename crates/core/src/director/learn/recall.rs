//! What was learned of a node's requests, for the next process.

use super::{NodeLearner, Responses, SiteLearner};
use crate::director::base_time::BaseTime;
use crate::director::credit::Served;
use crate::director::share::Share;
use crate::load::LoadTable;
use crate::topology::NodeId;

/// Numbers of each part.
const RESPONSES: usize = 5;
const SERVED: usize = 2;
const BASE_TIME: usize = 4;
const SHARE: usize = 6;
const ALL: usize = RESPONSES + SERVED + BASE_TIME + SHARE;
/// Most that a sum may be.
const SUM_MAX: f64 = 1e15;

/// What a node's requests cost, as decayed sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnedCosts {
    /// Count, sums of logarithms and of their squares, seconds, part of errors.
    responses: [f64; RESPONSES],
    served: [f64; SERVED],
    base_time: [f64; BASE_TIME],
    share: [f64; SHARE],
}

impl LearnedCosts {
    /// As numbers in a fixed order.
    pub fn numbers(&self) -> impl Iterator<Item = f64> {
        let Self {
            responses,
            served,
            base_time,
            share,
        } = *self;
        let first = responses.into_iter().chain(served);
        first.chain(base_time).chain(share)
    }

    /// Of such numbers; none if they are not as many, or make no sense.
    pub fn of_numbers(numbers: &[f64]) -> Option<Self> {
        let numbers: [f64; ALL] = numbers.try_into().ok()?;
        let mut numbers = numbers.into_iter();
        let costs = Self {
            responses: part(&mut numbers),
            served: part(&mut numbers),
            base_time: part(&mut numbers),
            share: part(&mut numbers),
        };
        costs.is_sensible().then_some(costs)
    }

    fn is_sensible(&self) -> bool {
        let [count, sum_ln, squares, seconds, errors] = self.responses;
        let sums = [count, squares, seconds];
        let sums = sums.iter().chain(&self.served).chain(&self.base_time);
        let are_sums = sums
            .chain(&self.share)
            .all(|it| (0.0..SUM_MAX).contains(it));
        // What a mean of squares is at the least, but for rounding.
        let is_spread = sum_ln * sum_ln <= squares * count * (1.0 + 1e-6) + 1e-6;
        are_sums && sum_ln.abs() < SUM_MAX && is_spread && (0.0..=1.0).contains(&errors)
    }
}

fn part<const N: usize>(numbers: &mut impl Iterator<Item = f64>) -> [f64; N] {
    std::array::from_fn(|_| numbers.next().unwrap_or_default())
}

impl SiteLearner {
    /// What is known of a node; none if it is not known.
    pub(in crate::director) fn learned(&self, node: NodeId) -> Option<LearnedCosts> {
        let place = self.nodes.binary_search_by_key(&node, |it| it.node).ok()?;
        Some(self.nodes[place].learned())
    }

    /// Before the first tick: a node of these begins with what was known.
    pub(in crate::director) fn recall(
        &mut self,
        nodes: &[NodeId],
        node: NodeId,
        costs: &LearnedCosts,
        table: &LoadTable,
    ) {
        self.on_members(nodes, table);
        let place = self.nodes.binary_search_by_key(&node, |it| it.node);
        if let Ok(place) = place {
            self.nodes[place].recall(costs);
        }
    }
}

impl NodeLearner {
    fn learned(&self) -> LearnedCosts {
        let Responses {
            count,
            sum_ln,
            sum_ln_squared,
        } = self.taught;
        LearnedCosts {
            responses: [count, sum_ln, sum_ln_squared, self.seconds, self.errors],
            served: self.served.learned(),
            base_time: self.base_time.learned(),
            share: self.share.learned(),
        }
    }

    fn recall(&mut self, costs: &LearnedCosts) {
        let [count, sum_ln, sum_ln_squared, seconds, errors] = costs.responses;
        self.taught = Responses {
            count,
            sum_ln,
            sum_ln_squared,
        };
        (self.seconds, self.errors) = (seconds, errors);
        self.served = Served::recalled(costs.served);
        self.base_time = BaseTime::recalled(costs.base_time);
        self.share = Share::recalled(costs.share);
    }
}
