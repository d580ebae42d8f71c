//! Random numbers for requests, from the system, some at a time: a system call for each would cost a
//! tenth of a read.

use crate::region::RegionError;

/// Numbers per system call: 256 bytes, which the system gives whole or not at all (getrandom(2)).
const WORDS: usize = 32;

/// See the module. Nothing that was sent tells what comes next.
#[derive(Default)]
pub(crate) struct Nonces {
    words: [u64; WORDS],
    left: usize,
}

impl Nonces {
    /// A number that no other party knows.
    pub(crate) fn draw(&mut self) -> Result<u64, RegionError> {
        if self.left == 0 {
            let mut bytes = [0; WORDS * 8];
            rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
                .map_err(RegionError::io("take random numbers"))?;
            for (word, bytes) in self.words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
            self.left = WORDS;
        }
        self.left -= 1;
        Ok(std::mem::take(&mut self.words[self.left]))
    }
}

impl std::fmt::Debug for Nonces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nonces").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_comes_twice_and_none_follows_from_another() {
        let mut nonces = Nonces::default();
        let mut drawn: Vec<_> = (0..4 * WORDS).map(|_| nonces.draw().unwrap()).collect();
        let upper_halves: std::collections::BTreeSet<_> = drawn.iter().map(|it| it >> 32).collect();
        assert!(upper_halves.len() > 3 * WORDS);
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 4 * WORDS);
    }
}
