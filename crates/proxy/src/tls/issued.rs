//! A certificate that an authority issues while the front-end runs: handshakes show the one that is in force when they begin.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;

use super::certificate::Certificate;

/// See the module. Clones of its [`Arc`] are one certificate: what shows it, and what renews it.
pub struct IssuedCertificate {
    names: Vec<Box<str>>,
    current: ArcSwapOption<Certificate>,
    stands_in: AtomicBool,
}

impl fmt::Debug for IssuedCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("IssuedCertificate");
        shown.field("names", &self.names);
        shown.field("current", &self.current.load()).finish()
    }
}

impl IssuedCertificate {
    /// For these DNS names, in lower case; there is none yet.
    pub fn new(names: Vec<Box<str>>) -> Self {
        Self {
            names,
            current: ArcSwapOption::empty(),
            stands_in: AtomicBool::new(false),
        }
    }

    /// The names that it is for.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// New connections are shown this one from now on; those that are open stay.
    pub fn set(&self, certificate: Arc<Certificate>) {
        self.current.store(Some(certificate));
        self.stands_in.store(false, Ordering::Relaxed);
    }

    /// The same with one that is for other names, or from another authority: it is shown until there is a better one.
    pub fn set_stand_in(&self, certificate: Arc<Certificate>) {
        self.stands_in.store(true, Ordering::Relaxed);
        self.current.store(Some(certificate));
    }

    /// Whether the one in force stands in for one that is still to come.
    pub fn has_stand_in(&self) -> bool {
        self.stands_in.load(Ordering::Relaxed)
    }

    /// The one in force, if there is one.
    pub fn current(&self) -> Option<Arc<Certificate>> {
        self.current.load_full()
    }
}
