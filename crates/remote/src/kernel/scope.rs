//! What a record covers, and how the programs are shown it.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use super::object::{FIND, Programs, Symbols};
use super::{KernelError, RegionError};

/// What the record covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KernelScope {
    /// The whole machine.
    #[default]
    Host,
    /// A control group of the cpu controller.
    Group {
        /// Version of its hierarchy, 1 or 2.
        version: u8,
        /// Its directory.
        directory: PathBuf,
    },
}

impl KernelScope {
    /// As it stands in the record.
    pub(super) fn number(&self) -> u8 {
        match self {
            Self::Host => 0,
            Self::Group { version, .. } => *version,
        }
    }

    /// Calls `find_addresses` where it sees the scope as its own. A host's run queues are found
    /// by their symbols if not otherwise.
    pub(super) fn call(&self, programs: &Programs) -> Result<(), KernelError> {
        let Self::Group { directory, .. } = self else {
            return programs.call(FIND).or_else(|error| {
                let symbols = Symbols::find().ok_or(error)?;
                call_with(programs, symbols)
            });
        };
        let path = directory.join("cgroup.procs");
        let members = OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(|error| KernelError::Options(format!("{}: {error}", path.display())))?;
        let program = programs.program(FIND)?;
        // SAFETY: the child shares no memory with us and calls nothing but `write`, `bpf` and
        // `_exit` (see `follow`), none of which needs a lock that another thread may hold.
        let child = unsafe { libc::fork() };
        match child {
            0 => {
                let code = follow(members.as_raw_fd(), program.as_fd().as_raw_fd());
                // SAFETY: ends the child without running anything of the parent's.
                unsafe { libc::_exit(code) }
            }
            1.. => wait(child, &path),
            _ => Err(RegionError::io("start a process")(io::Error::last_os_error()).into()),
        }
    }
}

/// Calls `find_addresses` with what the kernel lists of its symbols.
pub(super) fn call_with(programs: &Programs, symbols: Symbols) -> Result<(), KernelError> {
    programs.set("symbol_runqueues", symbols.runqueues)?;
    programs.set("symbol_per_cpu_offset", symbols.per_cpu_offset)?;
    programs.call(FIND)
}

/// What the child did not manage.
const NOT_JOINED: i32 = 101;
const NOT_CALLED: i32 = 102;

/// In a child of its own: joins the group and calls the program there.
fn follow(members: i32, program: i32) -> i32 {
    // SAFETY: an open file and two bytes of constant memory.
    if unsafe { libc::write(members, b"0\n".as_ptr().cast(), 2) } < 0 {
        return NOT_JOINED;
    }
    let mut options = libbpf_rs::libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_test_run_opts>() as _,
        ..Default::default()
    };
    // SAFETY: a program's descriptor and options that say how long they are; the library only
    // wraps the system call.
    if unsafe { libbpf_rs::libbpf_sys::bpf_prog_test_run_opts(program, &raw mut options) } != 0 {
        return NOT_CALLED;
    }
    options.retval as i32
}

fn wait(child: i32, path: &std::path::Path) -> Result<(), KernelError> {
    let mut status = 0;
    loop {
        // SAFETY: our own child, and a place for its status.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(RegionError::io("wait for a process")(error).into());
        }
    }
    let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    let what = match code {
        Some(0) => return Ok(()),
        Some(NOT_JOINED) => "a process may not join it",
        Some(NOT_CALLED) => "the kernel does not look for its counters",
        Some(_) => "its run queues were not found",
        None => "the process that joined it was killed",
    };
    Err(KernelError::Options(format!("{}: {what}", path.display())))
}
