//! What the process's allocator can be asked for, which is mimalloc where the program has chosen it.
//!
//! It gives freed pages back to the system a moment after they are free, but looks for them only while the thread that freed them
//! allocates. A thread that frees much and then rests has to ask.

// The library that has the function.
use libmimalloc_sys as _;

unsafe extern "C" {
    fn mi_collect(force: bool);
}

/// Gives pages that this thread has freed a while ago back to the system. It takes some ten microseconds. A program with another
/// allocator has none.
pub fn give_back() {
    // SAFETY: it may be called at any time, by any thread, and touches the calling thread's own heap.
    unsafe { mi_collect(false) }
}
