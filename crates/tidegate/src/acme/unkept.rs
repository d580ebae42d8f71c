//! Certificates that were issued and could not be written, to a full disk for example: they are in force from memory, and are written
//! once that can be done.
//!
//! Waits between tries are those behind an authority's silence ([`schedule`](super::schedule)): 1 s at first, doubled up to 10 min. Inputs: the
//! certificate's text, what became of tries. Failure case: a process that ends before; the next one orders anew.
//! Source: exponential backoff with jitter, as there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::order::IssuedPem;
use super::schedule::{Tries, next_try};

/// Which certificate of which authority.
type Whose = (String, String);

/// One that is not in its file.
struct Unkept {
    pem: Arc<IssuedPem>,
    tries: Tries,
}

/// All that are not.
#[derive(Default)]
pub(super) struct UnkeptCertificates(Mutex<BTreeMap<Whose, Unkept>>);

impl std::fmt::Debug for UnkeptCertificates {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys are in there.
        formatter
            .debug_struct("UnkeptCertificates")
            .finish_non_exhaustive()
    }
}

impl UnkeptCertificates {
    fn change<T>(&self, with: impl FnOnce(&mut BTreeMap<Whose, Unkept>) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writing it has failed.
    pub(super) fn failed(&self, whose: Whose, pem: Arc<IssuedPem>, now: u64, jitter: f64) {
        self.change(|all| {
            let before = all.remove(&whose);
            let tries = before.filter(|it| Arc::ptr_eq(&it.pem, &pem));
            let tries = tries.map_or_else(Tries::default, |it| it.tries);
            let tries = tries.failed(false, now, jitter);
            all.insert(whose, Unkept { pem, tries });
        });
    }

    /// It is in its file, or is not wanted any more.
    pub(super) fn done(&self, whose: &Whose) {
        self.change(|all| all.remove(whose));
    }

    /// Only these are wanted.
    pub(super) fn retain(&self, is_wanted: impl Fn(&Whose) -> bool) {
        self.change(|all| all.retain(|whose, _| is_wanted(whose)));
    }

    /// When it is to be written, in seconds since 1970; none if there is nothing to write.
    pub(super) fn due(&self, whose: &Whose) -> Option<u64> {
        self.change(|all| all.get(whose).map(|it| next_try(None, it.tries)))
    }

    /// What is to be written by now.
    pub(super) fn pem(&self, whose: &Whose, now: u64) -> Option<Arc<IssuedPem>> {
        let is_due = self.due(whose).is_some_and(|due| due <= now);
        let pem = self.change(|all| all.get(whose).map(|it| Arc::clone(&it.pem)));
        pem.filter(|_| is_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_at_longer_and_longer_intervals_until_that_is_done() {
        let all = UnkeptCertificates::default();
        let whose = || ("https://authority/".to_owned(), "shop.test".to_owned());
        let pem = Arc::new(IssuedPem::of("key and chain".into()));
        assert_eq!(all.due(&whose()), None);
        let mut now = 1000;
        for wait in [1, 2, 4] {
            all.failed(whose(), Arc::clone(&pem), now, 1.0);
            assert_eq!(all.due(&whose()), Some(now + wait));
            assert!(all.pem(&whose(), now).is_none());
            now += wait;
            assert!(all.pem(&whose(), now).is_some());
        }
        // A newer one takes its place, and is tried soon.
        let newer = Arc::new(IssuedPem::of("another".into()));
        all.failed(whose(), newer, now, 1.0);
        assert_eq!(all.due(&whose()), Some(now + 1));
        all.retain(|(directory, _)| directory == "https://authority/");
        assert!(all.pem(&whose(), now + 1).is_some());
        all.done(&whose());
        assert_eq!(all.due(&whose()), None);
        all.failed(whose(), pem, now, 1.0);
        all.retain(|_| false);
        assert_eq!(all.due(&whose()), None);
    }
}
