//! A node's words, which front-ends share: what its agent or its kernel would carry out on them.

use tidegate_core::load::WordOp;

/// A node's words.
#[derive(Clone, Debug)]
pub(crate) struct Words([u64; 64]);

impl Default for Words {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Words {
    /// Does it; what the word held before.
    pub(crate) fn carry_out(&mut self, op: WordOp) -> u64 {
        let of = |word: u32| word as usize % self.0.len();
        match op {
            WordOp::FetchAndAdd { word, delta } => {
                let word = &mut self.0[of(word)];
                let held = *word;
                *word = held.wrapping_add(delta);
                held
            }
            WordOp::CompareAndSwap {
                word,
                expected,
                new,
            } => {
                let word = &mut self.0[of(word)];
                let held = *word;
                if held == expected {
                    *word = new;
                }
                held
            }
        }
    }
}
