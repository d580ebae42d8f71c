/* Generated from crates/core/src/record by `cargo xtask generate`. Do not edit. */
/* The Tidegate load record: little endian, 64-byte lines, sequence at both ends. */
#ifndef TIDEGATE_RECORD_H
#define TIDEGATE_RECORD_H

#define TIDEGATE_MAGIC 0x524c4754u
#define TIDEGATE_VERSION 0x1u
#define TIDEGATE_LINE_BYTES 0x40u
#define TIDEGATE_AGGREGATE_LINES 0x5u
#define TIDEGATE_CPU_LINES_MAX 0x10u

/* busy_ns from every task switch: exact at any window */
#define TIDEGATE_SOURCE_BUSY_SWITCH (1ull << 0)
/* busy_ns from the scheduler's own accounting: good from 10 ms */
#define TIDEGATE_SOURCE_BUSY_ACCT (1ull << 1)
/* busy_ns from the timer tick: good from 100 ms */
#define TIDEGATE_SOURCE_BUSY_TICK (1ull << 2)
/* runnable */
#define TIDEGATE_SOURCE_RUNNABLE (1ull << 3)
/* runnable_ns */
#define TIDEGATE_SOURCE_RUNNABLE_INTEGRAL (1ull << 4)
/* uninterruptible */
#define TIDEGATE_SOURCE_UNINTERRUPTIBLE (1ull << 5)
/* softirqs_pending */
#define TIDEGATE_SOURCE_SOFTIRQ (1ull << 6)
/* steal_ns */
#define TIDEGATE_SOURCE_STEAL (1ull << 7)
/* memory_total and memory_available */
#define TIDEGATE_SOURCE_MEMORY (1ull << 8)
/* files_open and files_max */
#define TIDEGATE_SOURCE_FILES (1ull << 9)
/* process_files_open, process_files_max and process_id */
#define TIDEGATE_SOURCE_PROCESS_FILES (1ull << 10)
/* tcp_established and time_wait */
#define TIDEGATE_SOURCE_SOCKETS (1ull << 11)
/* accept_queue */
#define TIDEGATE_SOURCE_ACCEPT_QUEUE (1ull << 12)
/* accept_queue_ns */
#define TIDEGATE_SOURCE_ACCEPT_INTEGRAL (1ull << 13)
/* accept_overflows */
#define TIDEGATE_SOURCE_ACCEPT_OVERFLOWS (1ull << 14)
/* received_bytes and sent_bytes */
#define TIDEGATE_SOURCE_NETWORK (1ull << 15)
/* disk_ns */
#define TIDEGATE_SOURCE_DISK (1ull << 16)
/* psi_cpu_ns, psi_memory_ns and psi_io_ns */
#define TIDEGATE_SOURCE_PSI (1ull << 17)
/* quota_milli and throttled_ns */
#define TIDEGATE_SOURCE_QUOTA (1ull << 18)
/* in_flight */
#define TIDEGATE_SOURCE_IN_FLIGHT (1ull << 19)
/* completions and in_flight_ns */
#define TIDEGATE_SOURCE_COMPLETIONS (1ull << 20)
/* services and services_checked */
#define TIDEGATE_SOURCE_SERVICES (1ull << 21)
/* the CPU lines */
#define TIDEGATE_SOURCE_PER_CPU (1ull << 22)
/* context_switches */
#define TIDEGATE_SOURCE_CONTEXT_SWITCHES (1ull << 23)

struct tidegate_record {
    __u32 sequence; /* number of this publication; grows by one, never zero */
    __u32 magic; /* "TGLR" */
    __u16 version; /* layout version of the writer */
    __u16 lines; /* lines of this record, CPU lines included */
    __u16 cpu_lines; /* CPU lines at the end of this record */
    __u8 scope; /* what the counters cover: 0 host, 1 cgroup v1, 2 cgroup v2 */
    __u8 rung; /* how the node makes the record; see Rung */
    __u64 generation; /* changes when the writer or the node restarts: counters start anew */
    __u64 t_ns; /* node's monotonic clock when the counters were read, ns */
    __u64 sources; /* which of the fields below were measured */
    __u64 interval_ns; /* publication interval, ns; 0: made at the moment of the read */
    __u64 services; /* bit i: service check i passes */
    __u32 on_cpu; /* CPU that wrote the record */
    __u32 tail0;
    __u32 head1;
    __u32 cores_milli; /* CPUs that the scope may run on, thousandths */
    __u64 busy_ns; /* CPU time used in the scope, ns */
    __u64 steal_ns; /* time stolen by the hypervisor, ns */
    __u64 runnable_ns; /* integral of the run-queue length, task·ns */
    __u64 throttled_ns; /* time that the scope was held back by its quota, ns */
    __u64 psi_cpu_ns; /* pressure stall, some, CPU, ns */
    __u32 quota_milli; /* CPU quota of the scope, thousandths of a CPU; 0: none */
    __u32 runnable; /* run-queue length at t_ns, running tasks included */
    __u32 softirqs_pending; /* CPUs with soft interrupts pending at t_ns */
    __u32 tail1;
    __u32 head2;
    __u32 uninterruptible; /* tasks in uninterruptible sleep at t_ns */
    __u64 memory_total; /* memory of the scope, bytes */
    __u64 memory_available; /* memory that can be had without swapping, bytes */
    __u64 disk_ns; /* time that the busiest disk had work, ns */
    __u64 psi_memory_ns; /* pressure stall, some, memory, ns */
    __u64 psi_io_ns; /* pressure stall, some, IO, ns */
    __u64 uninterruptible_ns; /* integral of uninterruptible, task·ns */
    __u32 tasks; /* tasks in the scope */
    __u32 tail2;
    __u32 head3;
    __u32 tcp_established; /* established TCP connections */
    __u64 files_open; /* open files, system wide */
    __u64 files_max; /* limit of open files, system wide */
    __u32 process_files_open; /* open files of the watched process nearest to its limit */
    __u32 process_files_max; /* limit of open files of that process */
    __u64 accept_queue_ns; /* integral of the accept-queue length, connection·ns */
    __u64 accept_overflows; /* connections dropped because an accept queue was full */
    __u32 accept_queue; /* connections waiting to be accepted at t_ns */
    __u32 time_wait; /* TCP connections in TIME_WAIT */
    __u32 process_id; /* that watched process */
    __u32 tail3;
    __u32 head4;
    __u32 in_flight; /* requests in flight at the node, all front-ends together, at t_ns */
    __u64 received_bytes; /* bytes received from the network */
    __u64 sent_bytes; /* bytes sent to the network */
    __u64 in_flight_ns; /* integral of in_flight, request·ns */
    __u64 completions; /* requests completed */
    __u64 softirq_ns; /* CPU time in soft interrupts, ns */
    __u64 context_switches; /* switches from one task to another */
    __u32 services_checked; /* bit i: there is a service check i */
    __u32 tail4;
} __attribute__((packed, aligned(64)));
_Static_assert(__builtin_offsetof(struct tidegate_record, sequence) == 0, "sequence");
_Static_assert(__builtin_offsetof(struct tidegate_record, magic) == 4, "magic");
_Static_assert(__builtin_offsetof(struct tidegate_record, version) == 8, "version");
_Static_assert(__builtin_offsetof(struct tidegate_record, lines) == 10, "lines");
_Static_assert(__builtin_offsetof(struct tidegate_record, cpu_lines) == 12, "cpu_lines");
_Static_assert(__builtin_offsetof(struct tidegate_record, scope) == 14, "scope");
_Static_assert(__builtin_offsetof(struct tidegate_record, rung) == 15, "rung");
_Static_assert(__builtin_offsetof(struct tidegate_record, generation) == 16, "generation");
_Static_assert(__builtin_offsetof(struct tidegate_record, t_ns) == 24, "t_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, sources) == 32, "sources");
_Static_assert(__builtin_offsetof(struct tidegate_record, interval_ns) == 40, "interval_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, services) == 48, "services");
_Static_assert(__builtin_offsetof(struct tidegate_record, on_cpu) == 56, "on_cpu");
_Static_assert(__builtin_offsetof(struct tidegate_record, cores_milli) == 68, "cores_milli");
_Static_assert(__builtin_offsetof(struct tidegate_record, busy_ns) == 72, "busy_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, steal_ns) == 80, "steal_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, runnable_ns) == 88, "runnable_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, throttled_ns) == 96, "throttled_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, psi_cpu_ns) == 104, "psi_cpu_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, quota_milli) == 112, "quota_milli");
_Static_assert(__builtin_offsetof(struct tidegate_record, runnable) == 116, "runnable");
_Static_assert(__builtin_offsetof(struct tidegate_record, softirqs_pending) == 120, "softirqs_pending");
_Static_assert(__builtin_offsetof(struct tidegate_record, uninterruptible) == 132, "uninterruptible");
_Static_assert(__builtin_offsetof(struct tidegate_record, memory_total) == 136, "memory_total");
_Static_assert(__builtin_offsetof(struct tidegate_record, memory_available) == 144, "memory_available");
_Static_assert(__builtin_offsetof(struct tidegate_record, disk_ns) == 152, "disk_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, psi_memory_ns) == 160, "psi_memory_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, psi_io_ns) == 168, "psi_io_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, uninterruptible_ns) == 176, "uninterruptible_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, tasks) == 184, "tasks");
_Static_assert(__builtin_offsetof(struct tidegate_record, tcp_established) == 196, "tcp_established");
_Static_assert(__builtin_offsetof(struct tidegate_record, files_open) == 200, "files_open");
_Static_assert(__builtin_offsetof(struct tidegate_record, files_max) == 208, "files_max");
_Static_assert(__builtin_offsetof(struct tidegate_record, process_files_open) == 216, "process_files_open");
_Static_assert(__builtin_offsetof(struct tidegate_record, process_files_max) == 220, "process_files_max");
_Static_assert(__builtin_offsetof(struct tidegate_record, accept_queue_ns) == 224, "accept_queue_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, accept_overflows) == 232, "accept_overflows");
_Static_assert(__builtin_offsetof(struct tidegate_record, accept_queue) == 240, "accept_queue");
_Static_assert(__builtin_offsetof(struct tidegate_record, time_wait) == 244, "time_wait");
_Static_assert(__builtin_offsetof(struct tidegate_record, process_id) == 248, "process_id");
_Static_assert(__builtin_offsetof(struct tidegate_record, in_flight) == 260, "in_flight");
_Static_assert(__builtin_offsetof(struct tidegate_record, received_bytes) == 264, "received_bytes");
_Static_assert(__builtin_offsetof(struct tidegate_record, sent_bytes) == 272, "sent_bytes");
_Static_assert(__builtin_offsetof(struct tidegate_record, in_flight_ns) == 280, "in_flight_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, completions) == 288, "completions");
_Static_assert(__builtin_offsetof(struct tidegate_record, softirq_ns) == 296, "softirq_ns");
_Static_assert(__builtin_offsetof(struct tidegate_record, context_switches) == 304, "context_switches");
_Static_assert(__builtin_offsetof(struct tidegate_record, services_checked) == 312, "services_checked");
_Static_assert(sizeof(struct tidegate_record) == 320, "tidegate_record");


struct tidegate_cpu_line {
    __u32 head0;
    __u32 cpu; /* number of the CPU */
    __u64 busy_ns; /* time that the CPU was not idle, ns */
    __u64 softirq_ns; /* time in soft interrupts, ns */
    __u64 steal_ns; /* time stolen by the hypervisor, ns */
    __u64 runnable_ns; /* integral of the run-queue length, task·ns */
    __u32 runnable; /* run-queue length, the running task included */
    __u32 softirqs_pending; /* mask of pending soft interrupts */
    __u32 iowait; /* tasks of this CPU that wait for IO */
    __u8 reserved52[8];
    __u32 tail0;
} __attribute__((packed, aligned(64)));
_Static_assert(__builtin_offsetof(struct tidegate_cpu_line, cpu) == 4, "cpu");
_Static_assert(__builtin_offsetof(struct tidegate_cpu_line, busy_ns) == 8, "busy_ns");
_Static_assert(__builtin_offsetof(struct tidegate_cpu_line, softirq_ns) == 16, "softirq_ns");
_Static_assert(__builtin_offsetof(struct tidegate_cpu_line, steal_ns) == 24, "steal_ns");
_Static_assert(__builtin_offsetof(struct tidegate_cpu_line, runnable_ns) == 32, "runnable_ns");
_Static_assert(__builtin_offsetof(struct tidegate_cpu_line, runnable) == 40, "runnable");
_Static_assert(__builtin_offsetof(struct tidegate_cpu_line, softirqs_pending) == 44, "softirqs_pending");
_Static_assert(__builtin_offsetof(struct tidegate_cpu_line, iowait) == 48, "iowait");
_Static_assert(sizeof(struct tidegate_cpu_line) == 64, "tidegate_cpu_line");

#endif
