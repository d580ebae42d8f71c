//! L1, L2: from every state that can be reached, every lock can come free and every node can serve, if nothing fails any
//! more.
//!
//! ```text
//! rest      all locks free, all nodes serve
//! within    states from which rest can be reached by events that are no faults: backwards from rest, breadth first
//! stuck     reached, and not within
//! ```
//!
//! stateright's own `eventually` is unsound where states come back (its documentation says so), and here they do.
//! Inputs: the model. Failure case: more states than the bound, which is said.

use std::collections::VecDeque;

use stateright::Model;

use crate::world::{Moves, key};

#[expect(
    clippy::disallowed_types,
    reason = "millions of states, none iterated over: a search goes in the order of its queue"
)]
type Numbers = std::collections::HashMap<u64, u32>;

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub(crate) states: usize,
    pub(crate) at_rest: usize,
    pub(crate) stuck: usize,
    /// Whether all states were seen.
    pub(crate) whole: bool,
}

/// Looks at no more than so many states.
pub(crate) fn search(model: &Moves, states_max: usize) -> Rest {
    let mut numbers = Numbers::default();
    let mut queue = VecDeque::new();
    // By state: from which it is reached without a fault.
    let mut before: Vec<Vec<u32>> = Vec::new();
    let mut at_rest = Vec::new();
    let mut whole = true;
    for world in model.init_states() {
        numbers.insert(key(&world), before.len() as u32);
        before.push(Vec::new());
        at_rest.push(world.is_at_rest(model));
        queue.push_back(world);
    }
    let mut events = Vec::new();
    let mut number = 0;
    while let Some(world) = queue.pop_front() {
        events.clear();
        model.actions(&world, &mut events);
        for event in &events {
            let Some(next) = model.next_state(&world, *event) else {
                continue;
            };
            let named = key(&next);
            let known = numbers.get(&named).copied();
            if known.is_none() && before.len() == states_max {
                whole = false;
                continue;
            }
            let to = known.unwrap_or_else(|| {
                let new = before.len() as u32;
                numbers.insert(named, new);
                before.push(Vec::new());
                at_rest.push(next.is_at_rest(model));
                queue.push_back(next);
                new
            });
            if !event.is_fault() {
                before[to as usize].push(number);
            }
        }
        number += 1;
    }
    Rest {
        states: before.len(),
        at_rest: at_rest.iter().filter(|it| **it).count(),
        stuck: before.len() - within(&before, at_rest),
        whole,
    }
}

/// How many states there are from which one of these can be reached.
fn within(before: &[Vec<u32>], mut reached: Vec<bool>) -> usize {
    let all = 0..before.len() as u32;
    let mut queue: VecDeque<u32> = all.filter(|it| reached[*it as usize]).collect();
    let mut count = queue.len();
    while let Some(state) = queue.pop_front() {
        for from in &before[state as usize] {
            if !std::mem::replace(&mut reached[*from as usize], true) {
                count += 1;
                queue.push_back(*from);
            }
        }
    }
    count
}
