//! Spares looks at a socket that cannot have changed. hyper reads on wherever it might find something:
//! before a request goes out, behind each message, on each turn. The reactor says when something
//! comes, so after a look that found nothing there is nothing until the bell has rung.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Rings for the reader. All of it happens on one thread; the atomic is what the type asks for.
#[derive(Debug)]
struct Bell {
    rung: AtomicBool,
    owner: Waker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Relaxed);
        self.owner.wake_by_ref();
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    bell: Option<(Arc<Bell>, Waker)>,
    /// The last look found nothing.
    waits: bool,
}

impl Reading {
    /// Whether a look would find nothing, and `context` is woken when that changes.
    #[inline]
    pub(crate) fn is_quiet(&self, context: &Context<'_>) -> bool {
        self.waits
            && (self.bell.as_ref()).is_some_and(|(bell, _)| {
                !bell.rung.load(Ordering::Relaxed) && bell.owner.will_wake(context.waker())
            })
    }

    /// Looks at the socket, unless it [is quiet](Self::is_quiet). `look` must keep the waker that it
    /// gets for as long as it finds nothing.
    #[inline]
    pub(crate) fn poll<T>(
        &mut self,
        context: &Context<'_>,
        look: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if self.is_quiet(context) {
            return Poll::Pending;
        }
        let (bell, waker) = match &mut self.bell {
            Some(it) if it.0.owner.will_wake(context.waker()) => it,
            slot => slot.insert(new_bell(context.waker().clone())),
        };
        // A look that is put off rings at once, so this comes before it.
        bell.rung.store(false, Ordering::Relaxed);
        let polled = look(&mut Context::from_waker(waker));
        self.waits = polled.is_pending();
        polled
    }
}

#[cold]
fn new_bell(owner: Waker) -> (Arc<Bell>, Waker) {
    let rung = AtomicBool::new(false);
    let bell = Arc::new(Bell { rung, owner });
    let waker = Waker::from(Arc::clone(&bell));
    (bell, waker)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[derive(Default)]
    struct Owner(AtomicU32);

    impl Wake for Owner {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether it looked, and the waker that it was given to keep.
    fn look(reading: &mut Reading, owner: &Waker, finds: Poll<()>) -> Option<Waker> {
        let mut given = None;
        let polled = reading.poll(&Context::from_waker(owner), |context| {
            given = Some(context.waker().clone());
            finds
        });
        assert_eq!(
            polled,
            if given.is_some() {
                finds
            } else {
                Poll::Pending
            }
        );
        given
    }

    #[test]
    fn nothing_is_looked_at_twice_until_the_bell_rings() {
        let owner = Arc::new(Owner::default());
        let waker = Waker::from(Arc::clone(&owner));
        let mut reading = Reading::default();
        assert!(look(&mut reading, &waker, Poll::Ready(())).is_some());
        let bell = look(&mut reading, &waker, Poll::Pending).unwrap();
        assert!(look(&mut reading, &waker, Poll::Ready(())).is_none());
        bell.wake_by_ref();
        assert_eq!(owner.0.load(Ordering::Relaxed), 1);
        assert!(look(&mut reading, &waker, Poll::Ready(())).is_some());
        assert!(look(&mut reading, &waker, Poll::Pending).is_some());
        assert!(look(&mut reading, &waker, Poll::Pending).is_none());
    }

    #[test]
    fn another_owner_looks_for_itself() {
        let [first, second] = [(); 2].map(|()| Waker::from(Arc::new(Owner::default())));
        let mut reading = Reading::default();
        assert!(look(&mut reading, &first, Poll::Pending).is_some());
        assert!(look(&mut reading, &second, Poll::Pending).is_some());
        assert!(look(&mut reading, &second, Poll::Pending).is_none());
        assert!(look(&mut reading, &first, Poll::Pending).is_some());
    }

    #[test]
    fn a_look_that_is_put_off_is_made_up_for() {
        let waker = Waker::from(Arc::new(Owner::default()));
        let mut reading = Reading::default();
        // As a runtime does with a task that has used up its turn.
        let polled: Poll<()> = reading.poll(&Context::from_waker(&waker), |context| {
            context.waker().wake_by_ref();
            Poll::Pending
        });
        assert!(polled.is_pending());
        assert!(look(&mut reading, &waker, Poll::Pending).is_some());
    }
}
