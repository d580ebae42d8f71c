//! Least privilege: a process, and then each of its threads, gives away what it no longer needs.
//!
//! ```text
//! process  one thread   settle: another user, no new privileges, few capabilities
//! thread   when set up  keep: fewer still, most threads none
//! ```
//!
//! Linux keeps users and capabilities for each thread, and a new thread has those of the thread that starts it. So
//! [`settle`] runs while there is one thread, and refuses to run later.

use std::io;

use rustix::process::{Gid, Uid};
pub use rustix::thread::CapabilitySet;
use rustix::thread::{
    CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// No capability at all.
pub const NONE: CapabilitySet = CapabilitySet::empty();

/// A user and its group, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub user: u32,
    /// Its group. There are no others.
    pub group: u32,
}

/// Why privileges were not given away.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// Other threads would keep theirs.
    #[error("privileges must be given away before other threads start; there are {0} threads")]
    Threads(usize),
    /// Another user takes CAP_SETUID and CAP_SETGID.
    #[error("cannot become user {user}: {error}; only root can")]
    User {
        /// Its number.
        user: u32,
        /// What the system says.
        error: io::Error,
    },
    /// Something else.
    #[error("cannot {what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        error: io::Error,
    },
}

/// Becomes another user, if one is given, and keeps at most these capabilities, none of which a program that this
/// process starts would get, nor any other.
///
/// # Errors
/// If there are other threads, or the system refuses. The process must then end: some may have been given away.
pub fn settle(identity: Option<Identity>, kept: CapabilitySet) -> Result<(), PrivilegeError> {
    let failed = |what| move |error: io::Error| PrivilegeError::System { what, error };
    let threads = std::fs::read_dir("/proc/self/task");
    let threads = threads.map_err(failed("count the threads"))?.count();
    if threads != 1 {
        return Err(PrivilegeError::Threads(threads));
    }
    empty_bounding_set().map_err(failed("empty the bounding set"))?;
    if let Some(identity) = identity {
        become_user(identity).map_err(|error| PrivilegeError::User {
            user: identity.user,
            error,
        })?;
    }
    keep(kept).map_err(failed("give capabilities away"))?;
    let refused = failed("refuse new privileges");
    set_no_new_privs(true).map_err(|error| refused(error.into()))
}

/// Of what this thread has, it keeps these capabilities. Threads that it starts have no more.
///
/// # Errors
/// If the system refuses.
pub fn keep(kept: CapabilitySet) -> io::Result<()> {
    let permitted = capabilities(None)?.permitted & kept;
    // Ambient capabilities go with the inheritable ones.
    let sets = CapabilitySets {
        effective: permitted,
        permitted,
        inheritable: NONE,
    };
    Ok(set_capabilities(None, sets)?)
}

/// What this thread may do.
///
/// # Errors
/// If the system refuses.
pub fn permitted() -> io::Result<CapabilitySet> {
    Ok(capabilities(None)?.permitted)
}

/// What a program that is started could win. Without CAP_SETPCAP the set stays, and wins nothing either: no
/// new privileges are taken.
fn empty_bounding_set() -> io::Result<()> {
    if !capabilities(None)?
        .effective
        .contains(CapabilitySet::SETPCAP)
    {
        return Ok(());
    }
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(one) {
            Ok(true) => remove_capability_from_bounding_set(one)?,
            Ok(false) => {}
            // The kernel knows no more of them.
            Err(_) => break,
        }
    }
    Ok(())
}

/// Changes the user and the groups, and stays able to keep capabilities.
fn become_user(identity: Identity) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(identity.user), Gid::from_raw(identity.group));
    let now = (rustix::process::getuid(), rustix::process::geteuid());
    if now == (uid, uid) && !uid.is_root() {
        return Ok(());
    }
    set_thread_groups(&[gid])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_keep_capabilities(true)?;
    set_thread_res_uid(uid, uid, uid)?;
    Ok(set_keep_capabilities(false)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_what_it_names_and_wins_nothing() {
        // Of this thread alone.
        let before = capabilities(None).unwrap().permitted;
        let kept = CapabilitySet::SYS_NICE | CapabilitySet::NET_ADMIN;
        keep(kept).unwrap();
        let after = capabilities(None).unwrap();
        assert_eq!(after.permitted, before & kept);
        assert_eq!(after.effective, after.permitted);
        assert_eq!(after.inheritable, NONE);
        keep(NONE).unwrap();
        keep(kept).unwrap();
        assert_eq!(capabilities(None).unwrap().permitted, NONE);
    }

    #[test]
    fn a_process_with_other_threads_is_refused() {
        // The test runner's is one more.
        let error = settle(None, NONE).unwrap_err();
        assert!(matches!(error, PrivilegeError::Threads(2..)), "{error}");
    }
}
