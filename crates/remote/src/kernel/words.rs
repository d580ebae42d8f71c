//! Words that the programs keep, for the ways to a node that do not lead past the programs: front-ends
//! that map them, and datagrams that a process takes in.
//!
//! The programs know which atomics of which front-end they have carried out. So a process hands them the ones that
//! it takes in (`BPF_PROG_TEST_RUN` of `carry_out`): one table, one epoch, one clock, whichever way a
//! request or its copy comes. It takes the program's descriptor and no privilege.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{bpf_prog_test_run_opts, bpf_test_run_opts};

use super::object::Programs;
use super::{KernelError, KernelResponder};
use crate::memory::KernelWords;
use crate::region::RegionError;
use crate::udp::CarryOut;
use crate::udp::wire::{HEADER_BYTES, Request, Status};

/// The program that carries atomics out.
pub(super) const CARRY_OUT: &str = "carry_out";
/// Bytes of an Ethernet header, without which no packet is run.
const ETHERNET: usize = 14;
/// Where status and value stand in a header.
const STATUS_AT: usize = 7;
const VALUE_AT: usize = 40;

impl KernelResponder {
    /// The words that the programs keep.
    ///
    /// # Errors
    /// If no more descriptors can be had.
    pub fn words(&self) -> Result<KernelWords, KernelError> {
        let map = self.programs.map("words")?;
        let map = map.as_fd().try_clone_to_owned();
        Ok(KernelWords {
            map: map.map_err(RegionError::io("share the kernel's words"))?,
            epoch: self.epoch,
        })
    }

    /// Carries atomics out on those words.
    ///
    /// # Errors
    /// If no more descriptors can be had.
    pub fn atomics(&self) -> Result<KernelAtomics, KernelError> {
        KernelAtomics::of(&self.programs)
    }
}

/// Carries atomics out on the words that the programs keep.
#[derive(Debug)]
pub struct KernelAtomics {
    program: OwnedFd,
}

impl KernelAtomics {
    pub(super) fn of(programs: &Programs) -> Result<Self, KernelError> {
        let program = programs.program(CARRY_OUT)?;
        let program = program.as_fd().try_clone_to_owned();
        Ok(Self {
            program: program.map_err(RegionError::io("share the kernel's words"))?,
        })
    }
}

impl CarryOut for KernelAtomics {
    fn carry_out(&mut self, request: &Request) -> io::Result<(Status, u64)> {
        let mut packet = [0; ETHERNET + HEADER_BYTES];
        let mut header = [0; HEADER_BYTES];
        // Its MAC was verified when it was taken in.
        request.encode_unsigned(0, &mut header);
        packet[ETHERNET..].copy_from_slice(&header);
        let mut done = [0; ETHERNET + HEADER_BYTES];
        let mut options = bpf_test_run_opts {
            sz: size_of::<bpf_test_run_opts>() as _,
            data_in: packet.as_ptr().cast(),
            data_size_in: packet.len() as _,
            data_out: done.as_mut_ptr().cast(),
            data_size_out: done.len() as _,
            ..Default::default()
        };
        let program = self.program.as_raw_fd();
        // SAFETY: a program's descriptor, options that say how long they are, and two buffers as
        // long as they say, which live through the call.
        let failed = unsafe { bpf_prog_test_run_opts(program, &raw mut options) };
        if failed < 0 {
            return Err(io::Error::from_raw_os_error(-failed));
        }
        if options.retval != 0 {
            return Err(io::Error::other("the kernel's program refused"));
        }
        let done = &done[ETHERNET..];
        let mut value = [0; 8];
        value.copy_from_slice(&done[VALUE_AT..VALUE_AT + 8]);
        let status = Status::from_number(done[STATUS_AT]);
        Ok((status, u64::from_le_bytes(value)))
    }
}
