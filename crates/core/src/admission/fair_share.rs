//! Whose turn it is among sites that share a limit: in proportion to their weights, while they have
//! something to send.
//!
//! ```text
//! start  = max(v, finish of the site's last turn)
//! finish = start + 1 / weight
//! next   the site with the least start among those that wait; v becomes that start
//! ```
//!
//! A site that was idle does not save up turns: v has gone on meanwhile.
//!
//! Inputs: weights, what waits. Failure case: requests of very different cost count as one each.
//!
//! Source: start-time fair queueing (SFQ-1996), with requests for packets.

/// See the module. Members are numbered.
#[derive(Clone, Debug)]
pub struct FairShare {
    weights: Vec<f64>,
    finish: Vec<f64>,
    now: f64,
}

impl FairShare {
    /// Among members of these weights; one that is not positive counts as very small.
    pub fn new(weights: &[f64]) -> Self {
        let weight = |weight: &f64| match *weight > 0.0 && weight.is_finite() {
            true => *weight,
            false => f64::MIN_POSITIVE.sqrt(),
        };
        Self {
            weights: weights.iter().map(weight).collect(),
            finish: vec![0.0; weights.len()],
            now: 0.0,
        }
    }

    /// A member has had its turn.
    pub fn served(&mut self, member: usize) {
        if member < self.finish.len() {
            let start = self.start(member);
            self.now = start;
            self.finish[member] = start + 1.0 / self.weights[member];
        }
    }

    /// When its next turn begins: the least goes first.
    pub fn start(&self, member: usize) -> f64 {
        let finish = self.finish.get(member);
        finish.map_or(f64::INFINITY, |finish| finish.max(self.now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(fair: &FairShare, waits: impl Fn(usize) -> bool) -> Option<usize> {
        let waiting = (0..fair.finish.len()).filter(|member| waits(*member));
        waiting.min_by(|one, other| fair.start(*one).total_cmp(&fair.start(*other)))
    }

    fn turns(fair: &mut FairShare, rounds: u32, waits: impl Fn(usize) -> bool) -> Vec<u32> {
        let mut turns = vec![0; fair.finish.len()];
        for _ in 0..rounds {
            if let Some(member) = next(fair, &waits) {
                fair.served(member);
                turns[member] += 1;
            }
        }
        turns
    }

    #[test]
    fn turns_are_in_proportion_to_weights() {
        let mut fair = FairShare::new(&[3.0, 1.0, 1.0]);
        assert_eq!(turns(&mut fair, 500, |_| true), [300, 100, 100]);
    }

    #[test]
    fn who_was_idle_has_saved_up_nothing() {
        let mut fair = FairShare::new(&[1.0, 1.0]);
        assert_eq!(turns(&mut fair, 100, |member| member == 0), [100, 0]);
        let after = turns(&mut fair, 10, |_| true);
        assert!(after[0] >= 4, "{after:?}");
    }

    #[test]
    fn a_weight_of_nothing_is_a_small_one() {
        let mut fair = FairShare::new(&[0.0, 1.0, f64::NAN]);
        let turns = turns(&mut fair, 100, |_| true);
        assert!(turns[1] >= 97, "{turns:?}");
        fair.served(9);
        assert_eq!(fair.start(9), f64::INFINITY);
    }
}
