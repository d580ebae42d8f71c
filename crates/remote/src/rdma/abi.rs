//! The structures of libibverbs that are passed to it, as C has them on machines whose words have 64 bits.
//!
//! Only what this crate uses has a name; the rest is room. The layout is part of the library's promise (its symbols
//! carry the version IBVERBS_1.1 since 2008): structures that it makes grow at their end only, those that callers
//! make do not grow. The assertions hold each place that is used; `tests` compares them with the header where that is
//! installed.
//!
//! Failure case: a library that breaks its promise. Nothing here could notice.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;

/// A device in the library's list. Made by the library, looked at by its functions only.
#[repr(C)]
pub(super) struct Device {
    _private: [u8; 0],
}

/// Memory and queues that may be used together. Made by the library.
#[repr(C)]
pub(super) struct ProtectionDomain {
    _private: [u8; 0],
}

/// Operations that the library has no symbol for: a driver's functions, by their places.
#[repr(C)]
pub(super) struct ContextOps {
    _before_poll: [*mut c_void; 11],
    pub(super) poll_cq:
        unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut WorkCompletion) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int,
    _before_post: [*mut c_void; 12],
    pub(super) post_send:
        unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    _behind: [*mut c_void; 6],
}

/// An open device. Made by the library.
#[repr(C)]
pub(super) struct Context {
    _device: *mut Device,
    pub(super) ops: ContextOps,
    // More follows.
}

/// Registered memory. Made by the library.
#[repr(C)]
pub(super) struct MemoryRegion {
    _before: [u64; 4],
    _handle: u32,
    pub(super) local_key: u32,
    pub(super) remote_key: u32,
}

/// Where completions are announced. Made by the library.
#[repr(C)]
pub(super) struct CompletionChannel {
    _context: *mut Context,
    pub(super) descriptor: c_int,
    _users: c_int,
}

/// Made by the library.
#[repr(C)]
pub(super) struct CompletionQueue {
    _context: *mut Context,
    // More follows.
}

/// Made by the library.
#[repr(C)]
pub(super) struct QueuePair {
    _before: [u64; 6],
    _handle: u32,
    pub(super) number: u32,
    // More follows.
}

/// An address of a port: an IPv6 address, or an IPv4 address mapped into one.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gid(pub(super) [u8; 16]);

/// A line of a device's table of addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GidEntry {
    pub(super) gid: Gid,
    pub(super) index: u32,
    pub(super) port: u32,
    pub(super) kind: u32,
    pub(super) interface: u32,
}

/// How many requests a queue pair has room for.
#[repr(C)]
#[derive(Default)]
pub(super) struct QueuePairRoom {
    pub(super) send_requests: u32,
    pub(super) receive_requests: u32,
    pub(super) send_pieces: u32,
    pub(super) receive_pieces: u32,
    pub(super) inline_bytes: u32,
}

#[repr(C)]
pub(super) struct QueuePairInit {
    pub(super) user: *mut c_void,
    pub(super) send_queue: *mut CompletionQueue,
    pub(super) receive_queue: *mut CompletionQueue,
    pub(super) shared_receive_queue: *mut c_void,
    pub(super) room: QueuePairRoom,
    pub(super) kind: c_int,
    pub(super) all_signaled: c_int,
}

#[repr(C)]
#[derive(Default)]
pub(super) struct GlobalRoute {
    pub(super) destination: Gid,
    pub(super) flow_label: u32,
    pub(super) source_index: u8,
    pub(super) hops_max: u8,
    pub(super) traffic_class: u8,
}

#[repr(C)]
#[derive(Default)]
pub(super) struct Route {
    pub(super) global: GlobalRoute,
    pub(super) local_id: u16,
    pub(super) service_level: u8,
    pub(super) path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port: u8,
}

#[repr(C)]
#[derive(Default)]
pub(super) struct QueuePairAttributes {
    pub(super) state: c_uint,
    pub(super) current_state: c_uint,
    pub(super) path_mtu: c_uint,
    pub(super) migration_state: c_uint,
    pub(super) datagram_key: u32,
    pub(super) receive_sequence: u32,
    pub(super) send_sequence: u32,
    pub(super) peer: u32,
    pub(super) access: c_uint,
    pub(super) room: QueuePairRoom,
    pub(super) route: Route,
    pub(super) other_route: Route,
    pub(super) partition_index: u16,
    pub(super) other_partition_index: u16,
    pub(super) drain_notice: u8,
    pub(super) draining: u8,
    pub(super) reads_out_max: u8,
    pub(super) reads_in_max: u8,
    pub(super) not_ready_timer: u8,
    pub(super) port: u8,
    pub(super) timeout: u8,
    pub(super) retries: u8,
    pub(super) not_ready_retries: u8,
    pub(super) other_port: u8,
    pub(super) other_timeout: u8,
    pub(super) rate_limit: u32,
}

/// A piece of local memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) local_key: u32,
}

/// What a request does at the other side. A read has its key where an atomic has its operand.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remote {
    pub(super) address: u64,
    /// Key of a read; what an atomic expects or adds.
    pub(super) key_or_compare: u64,
    pub(super) swap: u64,
    /// Key of an atomic.
    pub(super) key: u32,
}

#[repr(C)]
pub(super) struct SendRequest {
    pub(super) id: u64,
    pub(super) next: *mut Self,
    pub(super) pieces: *mut Piece,
    pub(super) pieces_count: c_int,
    pub(super) operation: c_uint,
    pub(super) flags: c_uint,
    pub(super) immediate: u32,
    pub(super) remote: Remote,
    _behind: [u64; 7],
}

impl SendRequest {
    pub(super) fn new(id: u64, operation: c_uint, remote: Remote) -> Self {
        Self {
            id,
            next: std::ptr::null_mut(),
            pieces: std::ptr::null_mut(),
            pieces_count: 0,
            operation,
            flags: 0,
            immediate: 0,
            remote,
            _behind: [0; 7],
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkCompletion {
    pub(super) id: u64,
    pub(super) status: c_uint,
    pub(super) operation: c_uint,
    pub(super) vendor_error: u32,
    pub(super) bytes: u32,
    _behind: [u32; 6],
}

/// What a port is like. The library fills in no more than this.
#[repr(C)]
#[derive(Default)]
pub(super) struct PortAttributes {
    pub(super) state: c_uint,
    pub(super) mtu_max: c_uint,
    pub(super) mtu: c_uint,
    pub(super) gids: c_int,
    _before_local_id: [u16; 9],
    pub(super) local_id: u16,
    _before_link: [u8; 10],
    pub(super) link: u8,
    pub(super) flags: u8,
    _behind: [u8; 4],
}

/// What a device is like.
#[repr(C, align(8))]
pub(super) struct DeviceAttributes {
    _before: [u8; 96],
    pub(super) vendor: u32,
    _vendor_part: u32,
    _hardware: u32,
    pub(super) queue_pairs_max: c_int,
    _before_reads: [u8; 32],
    pub(super) reads_in_max: c_int,
    _between: [u8; 8],
    pub(super) reads_out_max: c_int,
    _before_atomics: [u8; 4],
    pub(super) atomics: c_uint,
    _before_ports: [u8; 59],
    pub(super) ports: u8,
    _behind: [u8; 4],
}

/// A queue pair that is connected and loses nothing.
pub(super) const KIND_RELIABLE: c_int = 2;
pub(super) const GID_INFINIBAND: u32 = 0;
pub(super) const GID_ROCE_V2: u32 = 2;
pub(super) const LINK_INFINIBAND: u8 = 1;
/// A port whose every route has to name the peer's GID.
pub(super) const PORT_NEEDS_GLOBAL: u8 = 1;
pub(super) const PORT_ACTIVE: c_uint = 4;
/// A device without atomics.
pub(super) const ATOMICS_NONE: c_uint = 0;

pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_READ: c_int = 4;
pub(super) const ACCESS_REMOTE_ATOMIC: c_int = 8;

pub(super) const STATE_INIT: c_uint = 1;
pub(super) const STATE_RTR: c_uint = 2;
pub(super) const STATE_RTS: c_uint = 3;

pub(super) const SET_STATE: c_int = 1;
pub(super) const SET_ACCESS: c_int = 1 << 3;
pub(super) const SET_PARTITION: c_int = 1 << 4;
pub(super) const SET_PORT: c_int = 1 << 5;
pub(super) const SET_ROUTE: c_int = 1 << 7;
pub(super) const SET_PATH_MTU: c_int = 1 << 8;
pub(super) const SET_TIMEOUT: c_int = 1 << 9;
pub(super) const SET_RETRIES: c_int = 1 << 10;
pub(super) const SET_NOT_READY_RETRIES: c_int = 1 << 11;
pub(super) const SET_RECEIVE_SEQUENCE: c_int = 1 << 12;
pub(super) const SET_READS_OUT: c_int = 1 << 13;
pub(super) const SET_NOT_READY_TIMER: c_int = 1 << 15;
pub(super) const SET_SEND_SEQUENCE: c_int = 1 << 16;
pub(super) const SET_READS_IN: c_int = 1 << 17;
pub(super) const SET_PEER: c_int = 1 << 20;

pub(super) const OPERATION_READ: c_uint = 4;
pub(super) const OPERATION_COMPARE_AND_SWAP: c_uint = 5;
pub(super) const OPERATION_FETCH_AND_ADD: c_uint = 6;
/// Its completion is announced.
pub(super) const SIGNALED: c_uint = 2;

/// Asserts where a field lies, or how long a structure is, in bytes.
macro_rules! layout {
    ($($structure:ident { $($field:ident $at:literal,)* } $bytes:literal)*) => {
        const _: () = { $(
            $( assert!(offset_of!($structure, $field) == $at); )*
            assert!(size_of::<$structure>() == $bytes);
        )* };
    };
}

layout! {
    ContextOps { poll_cq 88, req_notify_cq 96, post_send 200, } 256
    Context { ops 8, } 264
    MemoryRegion { local_key 36, remote_key 40, } 48
    CompletionChannel { descriptor 8, } 16
    QueuePair { number 52, } 56
    GidEntry { gid 0, index 16, port 20, kind 24, interface 28, } 32
    QueuePairInit { send_queue 8, receive_queue 16, shared_receive_queue 24, room 32, kind 52, all_signaled 56, } 64
    GlobalRoute { destination 0, flow_label 16, source_index 20, hops_max 21, } 24
    Route { global 0, local_id 24, service_level 26, is_global 29, port 30, } 32
    QueuePairAttributes {
        state 0, path_mtu 8, receive_sequence 20, send_sequence 24, peer 28, access 32, room 36, route 56,
        partition_index 120, reads_out_max 126, reads_in_max 127, not_ready_timer 128, port 129, timeout 130,
        retries 131, not_ready_retries 132,
    } 144
    Piece { address 0, length 8, local_key 12, } 16
    SendRequest { next 8, pieces 16, pieces_count 24, operation 28, flags 32, remote 40, } 128
    Remote { address 0, key_or_compare 8, swap 16, key 24, } 32
    WorkCompletion { status 8, operation 12, vendor_error 16, bytes 20, } 48
    PortAttributes { state 0, mtu 8, gids 12, local_id 34, link 46, flags 47, } 52
    DeviceAttributes { vendor 96, queue_pairs_max 108, reads_in_max 144, reads_out_max 156, atomics 164, ports 227, } 232
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    const HEADER: &str = "/usr/include/infiniband/verbs.h";

    /// What the header calls it, and what it is here.
    const PLACES: &[(&str, usize)] = &[
        ("struct ibv_context, ops", offset_of!(Context, ops)),
        (
            "struct ibv_context, ops.poll_cq",
            offset_of!(Context, ops.poll_cq),
        ),
        (
            "struct ibv_context, ops.req_notify_cq",
            offset_of!(Context, ops.req_notify_cq),
        ),
        (
            "struct ibv_context, ops.post_send",
            offset_of!(Context, ops.post_send),
        ),
        ("struct ibv_mr, lkey", offset_of!(MemoryRegion, local_key)),
        ("struct ibv_mr, rkey", offset_of!(MemoryRegion, remote_key)),
        (
            "struct ibv_comp_channel, fd",
            offset_of!(CompletionChannel, descriptor),
        ),
        ("struct ibv_qp, qp_num", offset_of!(QueuePair, number)),
        (
            "struct ibv_gid_entry, gid_index",
            offset_of!(GidEntry, index),
        ),
        ("struct ibv_gid_entry, port_num", offset_of!(GidEntry, port)),
        ("struct ibv_gid_entry, gid_type", offset_of!(GidEntry, kind)),
        (
            "struct ibv_qp_init_attr, send_cq",
            offset_of!(QueuePairInit, send_queue),
        ),
        (
            "struct ibv_qp_init_attr, recv_cq",
            offset_of!(QueuePairInit, receive_queue),
        ),
        (
            "struct ibv_qp_init_attr, cap.max_send_wr",
            offset_of!(QueuePairInit, room),
        ),
        (
            "struct ibv_qp_init_attr, qp_type",
            offset_of!(QueuePairInit, kind),
        ),
        (
            "struct ibv_qp_attr, qp_state",
            offset_of!(QueuePairAttributes, state),
        ),
        (
            "struct ibv_qp_attr, path_mtu",
            offset_of!(QueuePairAttributes, path_mtu),
        ),
        (
            "struct ibv_qp_attr, rq_psn",
            offset_of!(QueuePairAttributes, receive_sequence),
        ),
        (
            "struct ibv_qp_attr, sq_psn",
            offset_of!(QueuePairAttributes, send_sequence),
        ),
        (
            "struct ibv_qp_attr, dest_qp_num",
            offset_of!(QueuePairAttributes, peer),
        ),
        (
            "struct ibv_qp_attr, qp_access_flags",
            offset_of!(QueuePairAttributes, access),
        ),
        (
            "struct ibv_qp_attr, pkey_index",
            offset_of!(QueuePairAttributes, partition_index),
        ),
        (
            "struct ibv_qp_attr, max_rd_atomic",
            offset_of!(QueuePairAttributes, reads_out_max),
        ),
        (
            "struct ibv_qp_attr, max_dest_rd_atomic",
            offset_of!(QueuePairAttributes, reads_in_max),
        ),
        (
            "struct ibv_qp_attr, min_rnr_timer",
            offset_of!(QueuePairAttributes, not_ready_timer),
        ),
        (
            "struct ibv_qp_attr, port_num",
            offset_of!(QueuePairAttributes, port),
        ),
        (
            "struct ibv_qp_attr, timeout",
            offset_of!(QueuePairAttributes, timeout),
        ),
        (
            "struct ibv_qp_attr, retry_cnt",
            offset_of!(QueuePairAttributes, retries),
        ),
        (
            "struct ibv_qp_attr, rnr_retry",
            offset_of!(QueuePairAttributes, not_ready_retries),
        ),
        (
            "struct ibv_qp_attr, ah_attr.grh.dgid",
            offset_of!(QueuePairAttributes, route.global.destination),
        ),
        (
            "struct ibv_qp_attr, ah_attr.grh.sgid_index",
            offset_of!(QueuePairAttributes, route.global.source_index),
        ),
        (
            "struct ibv_qp_attr, ah_attr.grh.hop_limit",
            offset_of!(QueuePairAttributes, route.global.hops_max),
        ),
        (
            "struct ibv_qp_attr, ah_attr.is_global",
            offset_of!(QueuePairAttributes, route.is_global),
        ),
        (
            "struct ibv_qp_attr, ah_attr.port_num",
            offset_of!(QueuePairAttributes, route.port),
        ),
        ("struct ibv_sge, lkey", offset_of!(Piece, local_key)),
        (
            "struct ibv_send_wr, sg_list",
            offset_of!(SendRequest, pieces),
        ),
        (
            "struct ibv_send_wr, opcode",
            offset_of!(SendRequest, operation),
        ),
        (
            "struct ibv_send_wr, send_flags",
            offset_of!(SendRequest, flags),
        ),
        (
            "struct ibv_send_wr, wr.rdma.remote_addr",
            offset_of!(SendRequest, remote.address),
        ),
        (
            "struct ibv_send_wr, wr.rdma.rkey",
            offset_of!(SendRequest, remote.key_or_compare),
        ),
        (
            "struct ibv_send_wr, wr.atomic.compare_add",
            offset_of!(SendRequest, remote.key_or_compare),
        ),
        (
            "struct ibv_send_wr, wr.atomic.swap",
            offset_of!(SendRequest, remote.swap),
        ),
        (
            "struct ibv_send_wr, wr.atomic.rkey",
            offset_of!(SendRequest, remote.key),
        ),
        ("struct ibv_wc, status", offset_of!(WorkCompletion, status)),
        (
            "struct ibv_port_attr, active_mtu",
            offset_of!(PortAttributes, mtu),
        ),
        (
            "struct ibv_port_attr, lid",
            offset_of!(PortAttributes, local_id),
        ),
        (
            "struct ibv_port_attr, link_layer",
            offset_of!(PortAttributes, link),
        ),
        (
            "struct ibv_port_attr, flags",
            offset_of!(PortAttributes, flags),
        ),
        ("struct ibv_ah_attr, dlid", offset_of!(Route, local_id)),
        (
            "struct ibv_device_attr, vendor_id",
            offset_of!(DeviceAttributes, vendor),
        ),
        (
            "struct ibv_device_attr, max_qp_rd_atom",
            offset_of!(DeviceAttributes, reads_in_max),
        ),
        (
            "struct ibv_device_attr, max_qp_init_rd_atom",
            offset_of!(DeviceAttributes, reads_out_max),
        ),
        (
            "struct ibv_device_attr, atomic_cap",
            offset_of!(DeviceAttributes, atomics),
        ),
    ];

    /// Lengths and numbers.
    const OTHERS: &[(&str, usize)] = &[
        ("sizeof(struct ibv_gid_entry)", size_of::<GidEntry>()),
        (
            "sizeof(struct ibv_qp_init_attr)",
            size_of::<QueuePairInit>(),
        ),
        (
            "sizeof(struct ibv_qp_attr)",
            size_of::<QueuePairAttributes>(),
        ),
        ("sizeof(struct ibv_sge)", size_of::<Piece>()),
        ("sizeof(struct ibv_send_wr)", size_of::<SendRequest>()),
        ("sizeof(struct ibv_wc)", size_of::<WorkCompletion>()),
        ("sizeof(struct ibv_port_attr)", size_of::<PortAttributes>()),
        (
            "sizeof(struct ibv_device_attr)",
            size_of::<DeviceAttributes>(),
        ),
        ("IBV_QPT_RC", KIND_RELIABLE as usize),
        ("IBV_GID_TYPE_IB", GID_INFINIBAND as usize),
        ("IBV_GID_TYPE_ROCE_V2", GID_ROCE_V2 as usize),
        ("IBV_QPF_GRH_REQUIRED", PORT_NEEDS_GLOBAL as usize),
        ("IBV_LINK_LAYER_INFINIBAND", LINK_INFINIBAND as usize),
        ("IBV_PORT_ACTIVE", PORT_ACTIVE as usize),
        ("IBV_ATOMIC_NONE", ATOMICS_NONE as usize),
        ("IBV_ACCESS_LOCAL_WRITE", ACCESS_LOCAL_WRITE as usize),
        ("IBV_ACCESS_REMOTE_READ", ACCESS_REMOTE_READ as usize),
        ("IBV_ACCESS_REMOTE_ATOMIC", ACCESS_REMOTE_ATOMIC as usize),
        ("IBV_QPS_INIT", STATE_INIT as usize),
        ("IBV_QPS_RTR", STATE_RTR as usize),
        ("IBV_QPS_RTS", STATE_RTS as usize),
        ("IBV_QP_STATE", SET_STATE as usize),
        ("IBV_QP_ACCESS_FLAGS", SET_ACCESS as usize),
        ("IBV_QP_PKEY_INDEX", SET_PARTITION as usize),
        ("IBV_QP_PORT", SET_PORT as usize),
        ("IBV_QP_AV", SET_ROUTE as usize),
        ("IBV_QP_PATH_MTU", SET_PATH_MTU as usize),
        ("IBV_QP_TIMEOUT", SET_TIMEOUT as usize),
        ("IBV_QP_RETRY_CNT", SET_RETRIES as usize),
        ("IBV_QP_RNR_RETRY", SET_NOT_READY_RETRIES as usize),
        ("IBV_QP_RQ_PSN", SET_RECEIVE_SEQUENCE as usize),
        ("IBV_QP_MAX_QP_RD_ATOMIC", SET_READS_OUT as usize),
        ("IBV_QP_MIN_RNR_TIMER", SET_NOT_READY_TIMER as usize),
        ("IBV_QP_SQ_PSN", SET_SEND_SEQUENCE as usize),
        ("IBV_QP_MAX_DEST_RD_ATOMIC", SET_READS_IN as usize),
        ("IBV_QP_DEST_QPN", SET_PEER as usize),
        ("IBV_WR_RDMA_READ", OPERATION_READ as usize),
        (
            "IBV_WR_ATOMIC_CMP_AND_SWP",
            OPERATION_COMPARE_AND_SWAP as usize,
        ),
        (
            "IBV_WR_ATOMIC_FETCH_AND_ADD",
            OPERATION_FETCH_AND_ADD as usize,
        ),
        ("IBV_SEND_SIGNALED", SIGNALED as usize),
    ];

    #[test]
    fn structures_and_numbers_are_those_of_the_header() {
        if !std::path::Path::new(HEADER).exists() {
            println!("SKIPPED: no header of libibverbs");
            return;
        }
        let mut source = "#include <stddef.h>\n#include <infiniband/verbs.h>\n".to_owned();
        let places = PLACES.iter();
        let places = places.map(|(place, ours)| (format!("offsetof({place})"), ours));
        let others = OTHERS.iter().map(|(it, ours)| ((*it).to_owned(), ours));
        for (theirs, ours) in places.chain(others) {
            source += &format!("_Static_assert({theirs} == {ours}, \"{theirs} is not {ours}\");\n");
        }
        let mut compiler = Command::new("cc")
            .args(["-fsyntax-only", "-x", "c", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = compiler.stdin.take().unwrap();
        input.write_all(source.as_bytes()).unwrap();
        drop(input);
        let output = compiler.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
    }
}
