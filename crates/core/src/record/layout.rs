//! The one definition of the record's layout. Struct, field tables, encoder, decoder and C
//! header all come from the two tables below. Append only: a published offset never changes.

use super::{AGGREGATE_LINES, LINE_BYTES, Sources};

/// One field as the tables declare it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name, the same in Rust and C.
    pub name: &'static str,
    /// Bytes from the start of the record (or of the line, for a CPU line).
    pub offset: usize,
    /// Bytes: 1, 2, 4 or 8.
    pub size: usize,
    /// What it means, with its unit.
    pub what: &'static str,
}

/// A value that the layout can hold.
trait Scalar: Sized + Copy {
    fn put(self, at: &mut [u8]);
    fn get(at: &[u8]) -> Self;
}

macro_rules! scalar {
    ($($ty:ty),*) => {$(
        impl Scalar for $ty {
            fn put(self, at: &mut [u8]) {
                at.copy_from_slice(&self.to_le_bytes());
            }
            fn get(at: &[u8]) -> Self {
                let mut bytes = [0; size_of::<Self>()];
                bytes.copy_from_slice(at);
                Self::from_le_bytes(bytes)
            }
        }
    )*};
}
scalar!(u8, u16, u32, u64);

impl Scalar for Sources {
    fn put(self, at: &mut [u8]) {
        self.bits().put(at);
    }
    fn get(at: &[u8]) -> Self {
        Self::from_bits(u64::get(at))
    }
}

macro_rules! layout {
    (
        $(#[$doc:meta])* $name:ident in $table:ident, $bytes:expr;
        $( $offset:literal $field:ident: $ty:ty, $what:literal; )*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $( #[doc = $what] pub $field: $ty, )* }

        #[doc = concat!("The fields of [`", stringify!($name), "`] in layout order.")]
        pub const $table: &[Field] = &[$(Field {
            name: stringify!($field),
            offset: $offset,
            size: size_of::<$ty>(),
            what: $what,
        }),*];

        const _: () = check($table, $bytes);

        impl $name {
            /// Writes the fields; `bytes` holds the whole layout.
            pub(super) fn put(&self, bytes: &mut [u8]) {
                $( Scalar::put(self.$field, &mut bytes[$offset..$offset + size_of::<$ty>()]); )*
            }
            /// Reads the fields that `bytes` is long enough for.
            pub(super) fn get(bytes: &[u8]) -> Self {
                let mut fields = Self::default();
                $( if let Some(at) = bytes.get($offset..$offset + size_of::<$ty>()) {
                    fields.$field = Scalar::get(at);
                } )*
                fields
            }
        }
    };
}

/// Each field aligned to its size, in order, inside its line and clear of the sequence ends
/// (the record's own `sequence` is the first line's head). Holds at compile time.
const fn check(fields: &[Field], bytes: usize) {
    let mut index = 0;
    let mut free = 0;
    while index < fields.len() {
        let Field { offset, size, .. } = fields[index];
        assert!(offset >= free, "fields overlap or are out of order");
        assert!(offset.is_multiple_of(size), "a field is not aligned");
        assert!(offset + size <= bytes, "a field lies outside the layout");
        let within = offset % LINE_BYTES;
        assert!(within >= 4 || offset == 0, "a field lies on a line's head");
        assert!(
            within + size <= LINE_BYTES - 4,
            "a field lies on a line's tail"
        );
        free = offset + size;
        index += 1;
    }
}

layout! {
    /// One load record, decoded: identity and the counters of the whole scope.
    ///
    /// `_ns` fields are counters that never fall within one generation. An "integral" is a
    /// length multiplied by the time it lasted: two of them give the mean length between.
    LoadRecord in FIELDS, AGGREGATE_LINES * LINE_BYTES;
    0   sequence: u32,            "number of this publication; grows by one, never zero";
    4   magic: u32,               "\"TGLR\"";
    8   version: u16,             "layout version of the writer";
    10  lines: u16,               "lines of this record, CPU lines included";
    12  cpu_lines: u16,           "CPU lines at the end of this record";
    14  scope: u8,                "what the counters cover: 0 host, 1 cgroup v1, 2 cgroup v2";
    15  rung: u8,                 "how the node makes the record; see Rung";
    16  generation: u64,          "changes when the writer or the node restarts: counters start anew";
    24  t_ns: u64,                "node's monotonic clock when the counters were read, ns";
    32  sources: Sources,         "which of the fields below were measured";
    40  interval_ns: u64,         "publication interval, ns; 0: made at the moment of the read";
    48  services: u64,            "bit i: service check i passes";
    56  on_cpu: u32,              "CPU that wrote the record";

    68  cores_milli: u32,         "CPUs that the scope may run on, thousandths";
    72  busy_ns: u64,             "CPU time used in the scope, ns";
    80  steal_ns: u64,            "time stolen by the hypervisor, ns";
    88  runnable_ns: u64,         "integral of the run-queue length, task·ns";
    96  throttled_ns: u64,        "time that the scope was held back by its quota, ns";
    104 psi_cpu_ns: u64,          "pressure stall, some, CPU, ns";
    112 quota_milli: u32,         "CPU quota of the scope, thousandths of a CPU; 0: none";
    116 runnable: u32,            "run-queue length at t_ns, running tasks included";
    120 softirqs_pending: u32,    "CPUs with soft interrupts pending at t_ns";

    132 uninterruptible: u32,     "tasks in uninterruptible sleep at t_ns";
    136 memory_total: u64,        "memory of the scope, bytes";
    144 memory_available: u64,    "memory that can be had without swapping, bytes";
    152 disk_ns: u64,             "time that the busiest disk had work, ns";
    160 psi_memory_ns: u64,       "pressure stall, some, memory, ns";
    168 psi_io_ns: u64,           "pressure stall, some, IO, ns";
    176 uninterruptible_ns: u64,  "integral of uninterruptible, task·ns";
    184 tasks: u32,               "tasks in the scope";

    196 tcp_established: u32,     "established TCP connections";
    200 files_open: u64,          "open files, system wide";
    208 files_max: u64,           "limit of open files, system wide";
    216 process_files_open: u32,  "open files of the watched process nearest to its limit";
    220 process_files_max: u32,   "limit of open files of that process";
    224 accept_queue_ns: u64,     "integral of the accept-queue length, connection·ns";
    232 accept_overflows: u64,    "connections dropped because an accept queue was full";
    240 accept_queue: u32,        "connections waiting to be accepted at t_ns";
    244 time_wait: u32,           "TCP connections in TIME_WAIT";
    248 process_id: u32,          "that watched process";

    260 in_flight: u32,           "requests in flight at the node, all front-ends together, at t_ns";
    264 received_bytes: u64,      "bytes received from the network";
    272 sent_bytes: u64,          "bytes sent to the network";
    280 in_flight_ns: u64,        "integral of in_flight, request·ns";
    288 completions: u64,         "requests completed";
    296 softirq_ns: u64,          "CPU time in soft interrupts, ns";
    304 context_switches: u64,    "switches from one task to another";
    312 services_checked: u32,    "bit i: there is a service check i";
}

layout! {
    /// One CPU of the node.
    CpuLine in CPU_FIELDS, LINE_BYTES;
    4   cpu: u32,                 "number of the CPU";
    8   busy_ns: u64,             "time that the CPU was not idle, ns";
    16  softirq_ns: u64,          "time in soft interrupts, ns";
    24  steal_ns: u64,            "time stolen by the hypervisor, ns";
    32  runnable_ns: u64,         "integral of the run-queue length, task·ns";
    40  runnable: u32,            "run-queue length, the running task included";
    44  softirqs_pending: u32,    "mask of pending soft interrupts";
    48  iowait: u32,              "tasks of this CPU that wait for IO";
}
