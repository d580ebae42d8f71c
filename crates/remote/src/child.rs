//! Children that run a program, started without a copy of this process's page tables, and ended with it where that is wanted.
//!
//! ```text
//! parent   all signals blocked ── clone(VM, VFORK) ── stands still ───────────────── signals as before, error if there is one
//! child        a stack of its own └── signals, group, death signal, folder, input, output ── exec ─┘
//! ```
//!
//! A fork copies the page tables of all memory that this process uses, and threads that write meanwhile stand still: tens of
//! milliseconds for a gigabyte. Here the child has the parent's memory until it runs its program, and writes to none of it but
//! its own stack and one number. `std` starts children like that as well, unless something is to be done before the program runs.
//!
//! Inputs: arguments, environment, where its output goes. Failure case: a death signal means the end of the thread that started
//! the child, so that thread waits for it. What the child has started itself stays, and a program that gains rights as it begins
//! (set-user-ID, file capabilities) stays as well. Source: clone(2); vfork(2), which names the dangers; prctl(2),
//! `PR_SET_PDEATHSIG`; posix_spawn of the C library, which blocks and resets signals for the same reason.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::ptr::null;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::{Pid, WaitOptions, waitpid};

/// What the child needs before its program runs, with room to spare.
const STACK_BYTES: usize = 64 << 10;
/// The last signal that Linux knows.
const SIGNAL_MAX: c_int = 64;

/// Whether a child outlives the thread that starts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// It goes on.
    Own,
    /// It is killed when that thread ends, also where this process is killed.
    Parents,
}

/// A child that runs, or has ended.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    ended: Option<ExitStatus>,
}

impl Child {
    /// Starts a program in a process group of its own and in `/`, without input; what it writes goes to `output`. The first
    /// argument is its path.
    pub fn start(
        arguments: &[String],
        environment: &[(&str, &str)],
        output: impl AsFd,
        lifetime: Lifetime,
    ) -> io::Result<Self> {
        let arguments: Vec<_> = arguments
            .iter()
            .map(|it| c_string(it))
            .collect::<Result<_, _>>()?;
        let environment = environment
            .iter()
            .map(|(name, value)| c_string(&format!("{name}={value}")));
        let environment: Vec<_> = environment.collect::<Result<_, _>>()?;
        let (arguments_at, environment_at) = (pointers(&arguments), pointers(&environment));
        let input = std::fs::File::open("/dev/null")?;
        let plan = Plan {
            program: arguments.first().ok_or(ErrorKind::InvalidInput)?.as_ptr(),
            arguments: arguments_at.as_ptr(),
            environment: environment_at.as_ptr(),
            input: input.as_raw_fd(),
            output: output.as_fd().as_raw_fd(),
            parent: rustix::process::getpid().as_raw_nonzero().get(),
            lifetime,
            error: AtomicI32::new(0),
        };
        start(&plan).map(|pid| Self { pid, ended: None })
    }

    /// Its number, which is its group's as well.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.wait_with(WaitOptions::NOHANG)
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.wait_with(WaitOptions::empty())? {
                return Ok(status);
            }
        }
    }

    fn wait_with(&mut self, options: WaitOptions) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            let ended = rustix::io::retry_on_intr(|| waitpid(Some(self.pid), options))?;
            self.ended = ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw()));
        }
        Ok(self.ended)
    }
}

/// What a child does before its program runs.
struct Plan {
    program: *const c_char,
    /// Ends with null, as does `environment`.
    arguments: *const *const c_char,
    environment: *const *const c_char,
    input: c_int,
    output: c_int,
    parent: libc::pid_t,
    lifetime: Lifetime,
    /// Why it does not run, written by the child; 0 while nothing is wrong.
    error: AtomicI32,
}

fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| ErrorKind::InvalidInput.into())
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    let each = texts.iter().map(|it| it.as_ptr());
    each.chain([null()]).collect()
}

/// Starts the child, and returns once its program runs or has failed to.
fn start(plan: &Plan) -> io::Result<Pid> {
    let mut stack = vec![0_u128; STACK_BYTES / size_of::<u128>()];
    let signals = BlockedSignals::new()?;
    let plan_at: *const Plan = plan;
    // SAFETY: the stack is aligned, grows down from its end, and lives until this call has returned, as do the plan and all it
    // points to: with CLONE_VFORK that is when the child has left this memory, by exec or by its end. Meanwhile this thread
    // stands still. The child runs `child` alone, which meets what vfork(2) asks for: system calls and no more, and no handler
    // of a signal runs in it, since all are blocked until it has none.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(child, top.cast(), flags, plan_at.cast_mut().cast())
    };
    let cloned = match pid {
        -1 => Err(io::Error::last_os_error()),
        _ => Pid::from_raw(pid).ok_or_else(|| ErrorKind::Other.into()),
    };
    drop(signals);
    let pid = cloned?;
    match plan.error.load(Ordering::Relaxed) {
        0 => Ok(pid),
        error => {
            let mut failed = Child { pid, ended: None };
            failed.wait()?;
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// The child's life until its program runs.
extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: it is the plan of `start`, which stands still meanwhile.
    let plan = unsafe { &*plan.cast_const().cast::<Plan>() };
    // SAFETY: this is the child.
    let error = unsafe { run(plan) };
    plan.error.store(error, Ordering::Relaxed);
    127
}

/// Makes the child what it is to be and runs its program; returns the error where that fails.
///
/// # Safety
///
/// It changes signals, folder, input and output of its process: only a new child calls it.
unsafe fn run(plan: &Plan) -> c_int {
    // SAFETY: system calls with numbers, and with pointers of the plan, which are valid and end with null.
    unsafe {
        let mut usual: libc::sigaction = MaybeUninit::zeroed().assume_init();
        usual.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=SIGNAL_MAX {
            // Some cannot be changed, and need not.
            libc::sigaction(signal, &raw const usual, std::ptr::null_mut());
        }
        if libc::setpgid(0, 0) != 0 {
            return error();
        }
        if plan.lifetime == Lifetime::Parents {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return error();
            }
            // A parent that ended before that has sent nothing.
            if libc::getppid() != plan.parent {
                return libc::ESRCH;
            }
        }
        if libc::chdir(c"/".as_ptr()) != 0
            || libc::dup2(plan.input, libc::STDIN_FILENO) < 0
            || libc::dup2(plan.output, libc::STDOUT_FILENO) < 0
            || libc::dup2(plan.output, libc::STDERR_FILENO) < 0
        {
            return error();
        }
        let mut none: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::execve(plan.program, plan.arguments, plan.environment);
        error()
    }
}

/// Why the last system call of this thread failed.
fn error() -> c_int {
    // It reads one number, and allocates nothing.
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// While this lives its thread takes no signal.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn new() -> io::Result<Self> {
        // SAFETY: both sets are ours, and plain numbers.
        let (failed, before) = unsafe {
            let mut all: libc::sigset_t = MaybeUninit::zeroed().assume_init();
            let mut before: libc::sigset_t = MaybeUninit::zeroed().assume_init();
            libc::sigfillset(&raw mut all);
            let failed = libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            (failed, before)
        };
        match failed {
            0 => Ok(Self { before }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that this thread had.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read as _};
    use std::sync::mpsc;

    use super::*;

    fn started(arguments: &[&str], lifetime: Lifetime) -> (Child, PipeReader) {
        let (reader, writer) = io::pipe().unwrap();
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        let child = Child::start(&arguments, &[("A", "1 2"), ("B", "")], writer, lifetime);
        (child.unwrap(), reader)
    }

    /// What it writes, and its exit code.
    fn said(arguments: &[&str]) -> (String, Option<i32>) {
        let (mut child, mut reader) = started(arguments, Lifetime::Parents);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        (text, child.wait().unwrap().code())
    }

    fn shell(script: &str) -> (String, Option<i32>) {
        said(&["/bin/sh", "-c", script])
    }

    #[test]
    fn a_program_has_what_it_is_given_and_no_more() {
        assert_eq!(said(&["/usr/bin/env"]), ("A=1 2\nB=\n".into(), Some(0)));
        assert_eq!(shell("pwd; exit 3"), ("/\n".into(), Some(3)));
        let both = shell("/bin/cat; echo wrong >&2");
        assert_eq!(both, ("wrong\n".into(), Some(0)));
        let group = "read -r pid name state parent group rest < /proc/$$/stat; [ $pid = $group ]";
        assert_eq!(shell(group).1, Some(0));
    }

    #[test]
    fn no_signal_is_blocked_or_ignored() {
        let set = |status: &str, name: &str| {
            let line = status.lines().find(|it| it.starts_with(name)).unwrap();
            u64::from_str_radix(line[name.len()..].trim(), 16).unwrap()
        };
        let (child, _) = said(&["/bin/cat", "/proc/self/status"]);
        assert_eq!(set(&child, "SigBlk:"), 0);
        // The C library keeps two for itself, which this process may have inherited so.
        assert_eq!(set(&child, "SigIgn:") & !(0b11 << 31), 0);
        // And this thread has its own again.
        let own = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        assert_eq!(set(&own, "SigBlk:"), 0);
    }

    #[test]
    fn why_a_program_does_not_run_is_said() {
        let start = |path: &str| {
            let (_, writer) = io::pipe().unwrap();
            let started = Child::start(&[path.into()], &[], writer, Lifetime::Own);
            started.map(|it| it.pid()).unwrap_err().kind()
        };
        assert_eq!(start("/no/such/program"), ErrorKind::NotFound);
        assert_eq!(start("/etc/passwd"), ErrorKind::PermissionDenied);
        assert_eq!(start("/bin/a\0b"), ErrorKind::InvalidInput);
        let (_, writer) = io::pipe().unwrap();
        let nothing = Child::start(&[], &[], writer, Lifetime::Own).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::InvalidInput);
    }

    /// Writes until its reader is closed, which is the test's own end at the latest.
    const WRITES: &[&str] = &["/usr/bin/yes"];

    #[test]
    fn a_child_ends_with_the_thread_that_started_it() {
        let thread = std::thread::spawn(|| started(WRITES, Lifetime::Parents));
        let (mut child, reader) = thread.join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        drop(reader);
    }

    #[test]
    fn a_child_with_a_life_of_its_own_outlives_that_thread() {
        let thread = std::thread::spawn(|| started(WRITES, Lifetime::Own));
        let (mut child, reader) = thread.join().unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        drop(reader);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGPIPE));
    }

    #[test]
    fn while_that_thread_waits_the_child_ends_by_itself() {
        let (sender, receiver) = mpsc::channel();
        let waiting = std::thread::spawn(move || {
            let (mut child, reader) = started(WRITES, Lifetime::Parents);
            sender.send(reader).unwrap();
            child.wait().unwrap()
        });
        drop(receiver.recv().unwrap());
        assert_eq!(waiting.join().unwrap().signal(), Some(libc::SIGPIPE));
    }

    #[test]
    fn threads_start_children_at_the_same_time() {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for turn in 0..20 {
                        let code = (thread * 20 + turn) % 200;
                        let (text, ended) = shell(&format!("echo {code}; exit {code}"));
                        assert_eq!((text, ended), (format!("{code}\n"), Some(code)));
                    }
                });
            }
        });
    }
}
