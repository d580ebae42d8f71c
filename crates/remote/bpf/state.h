/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What the programs share: settings from the loader, addresses found at start, maps. */
#ifndef TIDEGATE_STATE_H
#define TIDEGATE_STATE_H

#define CPUS_MAX 1024
#define NUMA_NODES_MAX 8
#define KEYS_MAX 8
#define WORDS 512
#define INITIATORS_MAX 1024
#define READERS_MAX 1024
#define ADDRESSES_MAX 1024
#define HEADER_BYTES 64
#define LINES_MAX (TIDEGATE_AGGREGATE_LINES + TIDEGATE_CPU_LINES_MAX)
#define MESSAGE_BYTES_MAX (HEADER_BYTES + LINES_MAX * TIDEGATE_LINE_BYTES)

/* Settings: written before the programs are loaded, constant from then on. */
const volatile __u32 set_cpus = 1;
const volatile __u16 set_port = 0;
const volatile __u8 set_scope = 0;
const volatile __u32 set_epoch = 1;
const volatile __u64 set_generation = 1;
const volatile __u64 set_page_bytes = 4096;
/* Datagrams of ours in a window, and its length, ns. */
const volatile __u32 set_rate_max = 2000;
const volatile __u64 set_rate_window = 10000000;
const volatile __u8 set_allow_all = 1;
/* Where per-CPU variables lie beside `runqueues`, bytes; 0: this kernel has none. */
const volatile __s64 set_off_cpustat = 0;
const volatile __s64 set_off_softirq = 0;
const volatile __u32 set_softirq_bytes = 0;
/* The published record's interval, ns. */
const volatile __u64 set_publish_ns = 1000000;
const volatile __u64 set_timer_flags = 0;
/* Lines of the slow half count no longer than this, ns. */
const volatile __u64 set_slow_fresh_ns = 1000000000;

/* Where the kernel told its symbols (/proc/kallsyms), if the loader had to ask; else 0. */
__u64 symbol_runqueues = 0;
__u64 symbol_per_cpu_offset = 0;

/* Found by `find_addresses`. */
struct found {
    __u64 group;       /* task_group of the scope */
    __u64 percpu_base; /* subtracted from run queue 0 it is CPU 0's per-CPU offset */
    __u64 memory_group;
    __u64 tcp_statistics;
    __u64 network; /* whose connections in TIME_WAIT are counted */
    __u64 node[NUMA_NODES_MAX];
    __u64 sources;
    __u32 cpus; /* whose run queue was found */
};
struct found found = {};

/* Told by the loader once programs are attached: sources that come of task switches, and the
 * rung on which XDP answers. */
__u64 switch_sources = 0;
__u32 xdp_rung = 0;

__u32 sequence = 0;
/* When what changes slowly was looked at: it would take as long to read as all the rest. */
__u64 looked_at = 0;
__u64 memory_total = 0;
__u64 memory_available = 0;
/* Datagrams that were looked at in the present window. */
struct rate {
    __u64 window;
    __u64 count;
};
enum {
    RATE_STRANGERS, /* not listened to */
    RATE_UNPROVEN,
    RATE_PROVEN, /* all of them together, each within its own rate */
    RATES,
};
struct rate rates[RATES] = {};
__u64 readers_window = 0;
__u64 readers_now = 0;
__u64 readers_last = 0;
__u64 swept_at = 0;

/* One CPU: addresses, and what its task switches added up to. */
struct cpu {
    __u64 rq;
    __u64 cfs_rq;
    __u64 changes; /* odd while the sums below change */
    __u64 busy_ns;
    __u64 runnable_ns;
    __u64 since;
    __u32 on;
    __u32 runnable;
    __u64 switches;
    /* What the kernel itself brings up to date at its tick, as last looked at. */
    __u64 softirq_ns;
    __u64 steal_ns;
    __s32 established;
    __u32 iowait;
    __u32 online;
    __u32 pad;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, CPUS_MAX);
    __type(key, __u32);
    __type(value, struct cpu);
} cpus SEC(".maps");

/* A message as it goes over the wire, see crates/remote/src/udp/wire.rs. */
struct message {
    __u32 magic;
    __u8 version;
    __u8 verb;
    __u8 lines;
    __u8 status;
    __u64 initiator;
    __u64 sequence;
    __u64 nonce;
    union {
        struct {
            __u16 word;
            __u16 key;
            __u32 epoch;
        } request;
        __u64 node_now;
    };
    __u64 operand; /* in an answer: the word's value */
    union {
        __u64 expected;
        struct {
            __u32 readers;
            __u32 epoch;
        } answer;
    };
    __u64 mac;
    struct tidegate_record record;
    struct tidegate_cpu_line cpu[TIDEGATE_CPU_LINES_MAX];
};
_Static_assert(sizeof(struct message) == MESSAGE_BYTES_MAX, "message");

/* Where messages are made: one for packets, one for timers and calls. */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, struct message);
} scratch SEC(".maps");

/* What only a process can see, if there is one: written by it, whole, slot by slot. */
struct slow {
    __u64 current; /* which of the two counts */
    __u64 pad[7];
    struct tidegate_record record[2];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct slow);
} slow SEC(".maps");

/* The record as a timer publishes it. */
struct published {
    struct tidegate_record record;
    struct tidegate_cpu_line cpu[TIDEGATE_CPU_LINES_MAX];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct published);
} published SEC(".maps");

struct key {
    __u64 low;
    __u64 high;
    __u64 node; /* number of the node's name */
    __u32 id;
    __u32 used;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, KEYS_MAX);
    __type(key, __u32);
    __type(value, struct key);
} keys SEC(".maps");

/* Networks that are listened to: IPv4 as ::ffff:0:0/96. */
struct network {
    __u32 prefix;
    __u8 address[16];
};

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 1024);
    __type(key, struct network);
    __type(value, __u32);
} allow SEC(".maps");

/* An address of IPv6; IPv4 as ::ffff:0:0/96. */
struct address {
    __u8 byte[16];
};

/* Addresses that are this host's, each with the interface by which alone its packets may come in, or
 * 0. What is for any other address passes: it is not ours to answer. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, ADDRESSES_MAX);
    __type(key, struct address);
    __type(value, __u32);
} addresses SEC(".maps");

struct words {
    __u64 word[WORDS];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct words);
} words SEC(".maps");

/* The last atomic of an initiator. */
struct last {
    struct bpf_spin_lock lock;
    __u16 word;
    __u8 verb;
    __u8 status;
    __u64 sequence;
    __u64 operand;
    __u64 expected;
    __u64 value;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, INITIATORS_MAX);
    __type(key, __u64);
    __type(value, struct last);
} initiators SEC(".maps");

/* An initiator that has proven that it has a key, by a request with our clock of then. */
struct proven {
    __u64 sequence; /* of its latest request */
    __u64 read_in;  /* the second of its last read */
    struct rate rate;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 2 * READERS_MAX);
    __type(key, __u64);
    __type(value, struct proven);
} proven SEC(".maps");

/* What was done, and what was not and why. The first are DropReason's, in its order. */
enum count {
    DROP_SOURCE,
    DROP_SHORT,
    DROP_MAGIC,
    DROP_VERSION,
    DROP_VERB,
    DROP_LINES,
    DROP_LENGTH,
    DROP_KEY,
    DROP_MAC,
    COUNT_READS,
    COUNT_ATOMICS,
    COUNT_REPEATED,
    COUNT_REFUSED,
    COUNT_LIMITED,
    COUNT_ELSEWHERE,
    COUNT_IMITATED,
    COUNTS,
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, COUNTS);
    __type(key, __u32);
    __type(value, __u64);
} counts SEC(".maps");

static __always_inline void count(__u32 which)
{
    __u64 *counter = bpf_map_lookup_elem(&counts, &which);

    if (counter)
        *counter += 1;
}

#endif
