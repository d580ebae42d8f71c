//! Where programs meet packets: interfaces, and the three ways to stand in their path.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_rs::libbpf_sys::{
    BPF_XDP, bpf_link_create, bpf_link_create_opts, bpf_link_detach, bpf_obj_pin,
};
use libbpf_rs::{ErrorKind, Program, TC_INGRESS, TcHook, TcHookBuilder, Xdp, XdpFlags};
use tidegate_core::load::Rung;

use crate::interface::Interface;

/// Handle and priority of our filter: what tells it from other people's. The handle's lower half is
/// the port.
const TC_HANDLE: u32 = 0x5447_0000;
const TC_PRIORITY: u32 = 0x5447;

/// Whether it is one end of a virtual cable, by what its driver calls itself.
fn is_veth(interface: &Interface) -> bool {
    driver_of(&interface.name).is_some_and(|driver| driver == "veth")
}

/// `struct ethtool_drvinfo` as far as it is looked at, and room for the rest.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 256],
}

const ETHTOOL_GDRVINFO: u32 = 3;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

fn driver_of(name: &str) -> Option<String> {
    let mut info = DriverInfo {
        command: ETHTOOL_GDRVINFO,
        driver: [0; 32],
        rest: [0; 256],
    };
    // SAFETY: a structure of integers and a pointer, for which all zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.as_bytes();
    if bytes.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // SAFETY: the request names an interface and points to a structure with room for more than
    // what the kernel writes for this command (196 bytes).
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    let length = info.driver.iter().position(|byte| *byte == 0)?;
    let _rest = info.rest;
    (done == 0).then(|| String::from_utf8_lossy(&info.driver[..length]).into_owned())
}

/// A program in an interface's path.
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) interface: Interface,
    pub(super) rung: Rung,
    program: OwnedFd,
    number: u32,
    port: u16,
    /// Holds an XDP program there: when nothing holds the link any more, not even a process that was
    /// killed, the program is gone.
    link: Option<OwnedFd>,
}

/// How a program is put in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) port: u16,
    /// Whether to try native XDP at a veth.
    pub(super) veth_native: bool,
}

/// Why a rung cannot be had at an interface: a sentence.
pub(super) type RungRefusal = String;

/// The ways to answer packets, best first.
pub(super) const LADDER: [Rung; 3] = [Rung::XdpNative, Rung::XdpGeneric, Rung::Tc];

impl Hook {
    /// Puts a program into the path of an interface.
    pub(super) fn attach(
        interface: &Interface,
        rung: Rung,
        program: BorrowedFd<'_>,
        manner: Manner,
    ) -> Result<Self, RungRefusal> {
        let name = &interface.name;
        if rung == Rung::XdpNative && !manner.veth_native && is_veth(interface) {
            return Err(format!(
                "{name} is a virtual cable (veth): answers sent natively are lost unless its \
                 other end has an XDP program too"
            ));
        }
        let mut hook = Self::new(interface.clone(), rung, program, manner.port)
            .map_err(|error| explain(name, rung, &error))?;
        let done = match xdp_mode(rung) {
            Some(mode) => link(program, interface.index, mode).map(|link| hook.link = Some(link)),
            None => hook
                .filter()
                .create()
                .and_then(|mut filter| filter.attach())
                .map(drop),
        };
        done.map_err(|error| explain(name, rung, &error))?;
        Ok(hook)
    }

    fn new(
        interface: Interface,
        rung: Rung,
        program: BorrowedFd<'_>,
        port: u16,
    ) -> Result<Self, libbpf_rs::Error> {
        Ok(Self {
            interface,
            rung,
            port,
            link: None,
            number: Program::id_from_fd(program)?,
            program: program.try_clone_to_owned()?,
        })
    }

    /// The hooks of a program at any interface of this network namespace.
    pub(super) fn of_program(
        program: BorrowedFd<'_>,
        port: u16,
    ) -> Result<Vec<Self>, libbpf_rs::Error> {
        let mut hooks = Vec::new();
        let all = Interface::all()?.into_iter();
        for interface in all.chain(Interface::loopback()?) {
            for rung in LADDER {
                let hook = Self::new(interface.clone(), rung, program, port)?;
                if hook.holds() {
                    hooks.push(hook);
                    break;
                }
            }
        }
        Ok(hooks)
    }

    /// The kernel's number of the program.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Whether our program still stands there.
    pub(super) fn holds(&self) -> bool {
        let there = match xdp_mode(self.rung) {
            Some(mode) => Xdp::new(self.program.as_fd()).query_id(self.interface.index, mode),
            None => self.filter().query(),
        };
        there.is_ok_and(|number| number == self.number)
    }

    /// Takes the program out of the path, if it still stands there.
    pub(super) fn detach(&self) -> Result<(), libbpf_rs::Error> {
        if !self.holds() {
            return Ok(());
        }
        match &self.link {
            // SAFETY: a call on a descriptor that lives through it.
            Some(link) => done(unsafe { bpf_link_detach(link.as_raw_fd()) }).map(drop),
            None => self.filter().detach(),
        }
    }

    /// Lets an XDP program stay when this process ends, for as long as this file does.
    pub(super) fn pin(&self, path: &Path) -> Result<(), libbpf_rs::Error> {
        let Some(link) = &self.link else {
            return Ok(());
        };
        let path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| libbpf_rs::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: a descriptor and a C string that live through the call.
        done(unsafe { bpf_obj_pin(link.as_raw_fd(), path.as_ptr()) }).map(drop)
    }

    fn filter(&self) -> TcHook {
        filter(&self.interface, self.port, self.program.as_fd())
    }
}

fn filter(interface: &Interface, port: u16, program: BorrowedFd<'_>) -> TcHook {
    TcHookBuilder::new(program)
        .ifindex(interface.index)
        .handle(TC_HANDLE | u32::from(port))
        .priority(TC_PRIORITY)
        .hook(TC_INGRESS)
}

/// Takes away the filter for this port that stands at an interface, if one does.
pub(super) fn clear(interface: &Interface, port: u16) -> Result<(), RungRefusal> {
    // Looking and removing take no program; the builder wants some descriptor.
    let none = io::stderr();
    let mut filter = filter(interface, port, none.as_fd());
    match filter.query() {
        Ok(_) => filter.detach().map_err(|error| {
            let name = &interface.name;
            format!("the filter that a killed agent left stays at {name}: {error}")
        }),
        Err(_) => Ok(()),
    }
}

/// Holds a program at an interface.
fn link(
    program: BorrowedFd<'_>,
    interface: i32,
    mode: XdpFlags,
) -> Result<OwnedFd, libbpf_rs::Error> {
    let options = bpf_link_create_opts {
        sz: size_of::<bpf_link_create_opts>() as _,
        flags: mode.bits(),
        ..Default::default()
    };
    // SAFETY: a program's descriptor and options that say how long they are, which live through the
    // call.
    let link = done(unsafe {
        bpf_link_create(program.as_raw_fd(), interface, BPF_XDP, &raw const options)
    })?;
    // SAFETY: a descriptor that the kernel has just made, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// What a call of the library gave, unless it is a negative error number.
fn done(returned: i32) -> Result<i32, libbpf_rs::Error> {
    match returned {
        0.. => Ok(returned),
        failed => Err(libbpf_rs::Error::from_raw_os_error(-failed)),
    }
}

fn xdp_mode(rung: Rung) -> Option<XdpFlags> {
    match rung {
        Rung::XdpNative => Some(XdpFlags::DRV_MODE),
        Rung::XdpGeneric => Some(XdpFlags::SKB_MODE),
        Rung::None
        | Rung::Tc
        | Rung::KernelRecord
        | Rung::AgentRealtime
        | Rung::Agent
        | Rung::SharedMemory
        | Rung::Rdma
        | Rung::Snmp
        | Rung::Orca
        | Rung::AgentCheck => None,
    }
}

fn explain(name: &str, rung: Rung, error: &libbpf_rs::Error) -> RungRefusal {
    let what = rung.label();
    let kind = error.kind();
    if kind == ErrorKind::PermissionDenied {
        return format!(
            "{name} takes no {what} program from this user: it needs CAP_NET_ADMIN and CAP_BPF"
        );
    }
    if is(error, libc::EBUSY) || is(error, libc::EEXIST) {
        return format!("{name} has another {what} program already, which is left alone");
    }
    if kind == ErrorKind::Unsupported && rung == Rung::XdpNative {
        return format!("the driver of {name} has no native XDP");
    }
    format!("{name} takes no {what} program: {error}")
}

/// Whether it is this error of the system's. The library gives its text alone.
fn is(error: &libbpf_rs::Error, number: i32) -> bool {
    let text = io::Error::from_raw_os_error(number).to_string();
    error.to_string().contains(&text)
}
