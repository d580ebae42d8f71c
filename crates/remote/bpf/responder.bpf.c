/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Tidegate in the kernel: answers load reads and remote atomics as packets come in, counts CPU
 * time at every task switch, and publishes the record by a timer.
 *
 *   packet ── xdp_respond / tc_respond ── find ── answer ── turn_round ──> back to the sender
 *                                                   │
 *                    record of this moment ── fill ─┘<── on_switch: busy and runnable, ns
 *                                              └──> publish (timer) ──> a map that a process maps
 *
 * Nothing else is touched: whatever is no request of ours, made with one of our keys, goes on
 * to the network stack. */

#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/errno.h>
#include <linux/in.h>
#include <linux/snmp.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "kernel.h"
#include "tidegate_record.h"
#include "siphash.h"
#include "state.h"
#include "record.h"
#include "packet.h"
#include "answer.h"

char _license[] SEC("license") = "GPL";

#define RUNG_TC 3
#define RUNG_TIMER 4
/* On to the next filter; the last one's is to the stack. */
#define TC_ACT_UNSPEC (-1)
#define TC_ACT_OK 0
#define TC_ACT_SHOT 2

static __always_inline struct message *scratch_of(__u32 slot)
{
    return bpf_map_lookup_elem(&scratch, &slot);
}

/* The same number, of which the compiler knows nothing: what is checked is then what is used.
 * Else it checks a copy, and an old verifier takes the original for unbounded. */
static __always_inline __u32 opaque(__u32 number)
{
    __asm__ volatile("" : "+r"(number));
    return number;
}

SEC("xdp")
int xdp_respond(struct xdp_md *ctx)
{
    struct packet packet = {};

    if (!find((void *)(long)ctx->data, (void *)(long)ctx->data_end, &packet))
        return XDP_PASS;
    struct message *message = scratch_of(0);

    if (!message)
        return XDP_PASS;
    if (packet.length < HEADER_BYTES ||
        bpf_xdp_load_bytes(ctx, packet.payload, message, HEADER_BYTES)) {
        count(DROP_SHORT);
        return XDP_PASS;
    }
    switch (answer(ctx, ctx->ingress_ifindex, message, &packet, xdp_rung)) {
    case FATE_ANSWER:
        break;
    case FATE_DROP:
        return XDP_DROP;
    default:
        return XDP_PASS;
    }
    __u32 length = packet.length;

    if (length < HEADER_BYTES || length > MESSAGE_BYTES_MAX)
        return XDP_PASS;
    __u32 sum = packet.v6 ? sum_of(message, length) : 0;

    length = opaque(length);
    if (length < HEADER_BYTES || length > MESSAGE_BYTES_MAX)
        return XDP_PASS;
    if (bpf_xdp_store_bytes(ctx, packet.payload, message, length))
        return XDP_PASS;
    if (!turn_round((void *)(long)ctx->data, (void *)(long)ctx->data_end, &packet, sum))
        return XDP_DROP;
    return XDP_TX;
}

/* For the other end of a veth pair, which takes native answers only with a program of its own. */
SEC("xdp")
int xdp_pass(struct xdp_md *ctx)
{
    return XDP_PASS;
}

SEC("tc")
int tc_respond(struct __sk_buff *skb)
{
    struct packet packet = {};

    if (!find((void *)(long)skb->data, (void *)(long)skb->data_end, &packet)) {
        /* Headers may lie outside of what is at hand; small packets are pulled whole. */
        if (skb->data_end - skb->data >= 128 || skb->data_end - skb->data >= skb->len)
            return TC_ACT_UNSPEC;
        if (bpf_skb_pull_data(skb, skb->len < 128 ? skb->len : 128))
            return TC_ACT_UNSPEC;
        if (!find((void *)(long)skb->data, (void *)(long)skb->data_end, &packet))
            return TC_ACT_UNSPEC;
    }
    struct message *message = scratch_of(0);

    if (!message)
        return TC_ACT_UNSPEC;
    if (packet.length < HEADER_BYTES ||
        bpf_skb_load_bytes(skb, packet.payload, message, HEADER_BYTES)) {
        count(DROP_SHORT);
        return TC_ACT_UNSPEC;
    }
    switch (answer(skb, skb->ifindex, message, &packet, RUNG_TC)) {
    case FATE_ANSWER:
        break;
    case FATE_DROP:
        return TC_ACT_SHOT;
    default:
        return TC_ACT_UNSPEC;
    }
    __u32 length = packet.length;

    if (length < HEADER_BYTES || length > MESSAGE_BYTES_MAX)
        return TC_ACT_UNSPEC;
    __u32 sum = packet.v6 ? sum_of(message, length) : 0;

    length = opaque(length);
    if (length < HEADER_BYTES || length > MESSAGE_BYTES_MAX)
        return TC_ACT_UNSPEC;
    if (bpf_skb_store_bytes(skb, packet.payload, message, length, 0))
        return TC_ACT_UNSPEC;
    if (bpf_skb_pull_data(skb, packet.payload))
        return TC_ACT_SHOT;
    if (!turn_round((void *)(long)skb->data, (void *)(long)skb->data_end, &packet, sum))
        return TC_ACT_SHOT;
    return bpf_redirect(skb->ifindex, 0);
}

/* Carries an atomic out that a process has taken in and verified: what follows the Ethernet header is
 * the request's header, which gets status and value. Called, not attached. */
SEC("tc")
int carry_out(struct __sk_buff *skb)
{
    __u64 header[HEADER_BYTES / 8];
    struct message *message = (struct message *)header;
    __u64 value = 0;

    if (bpf_skb_load_bytes(skb, ETH_HLEN, header, sizeof(header)))
        return TC_ACT_SHOT;
    message->status = atomic(message, bpf_ktime_get_ns(), &value);
    message->operand = value;
    if (bpf_skb_store_bytes(skb, ETH_HLEN, header, sizeof(header), 0))
        return TC_ACT_SHOT;
    return TC_ACT_OK;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
    __u32 index = bpf_get_smp_processor_id();
    struct cpu *cpu = bpf_map_lookup_elem(&cpus, &index);

    if (!cpu || !cpu->rq)
        return 0;
    __u64 now = bpf_ktime_get_ns();
    __u64 passed = cpu->since ? now - cpu->since : 0;
    __u32 runnable = runnable_on(cpu);

    __sync_fetch_and_add(&cpu->changes, 1);
    if (cpu->on)
        cpu->busy_ns += passed;
    /* The length between two switches: the mean of both ends. */
    cpu->runnable_ns += passed * (cpu->runnable + runnable) / 2;
    cpu->runnable = runnable;
    cpu->on = in_scope(next);
    cpu->since = now;
    cpu->switches++;
    __sync_fetch_and_add(&cpu->changes, 1);
    return 0;
}

struct timer {
    struct bpf_timer timer;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct timer);
} timers SEC(".maps");

static int publish(void *map, __u32 *key, struct timer *timer)
{
    __u32 zero = 0;
    struct message *message = scratch_of(1);
    struct published *to = bpf_map_lookup_elem(&published, &zero);

    if (message && to) {
        fill(message, 1, set_publish_ns, RUNG_TIMER);
        __builtin_memcpy(&to->record, &message->record, sizeof(to->record));
        for (int i = 0; i < TIDEGATE_CPU_LINES_MAX; i++)
            __builtin_memcpy(&to->cpu[i], &message->cpu[i], sizeof(to->cpu[i]));
    }
    bpf_timer_start(&timer->timer, set_publish_ns, set_timer_flags);
    return 0;
}

SEC("syscall")
int start_publishing(void *ctx)
{
    __u32 zero = 0;
    struct timer *timer = bpf_map_lookup_elem(&timers, &zero);

    if (!timer)
        return 1;
    if (bpf_timer_init(&timer->timer, &timers, 1 /* CLOCK_MONOTONIC */))
        return 2;
    if (bpf_timer_set_callback(&timer->timer, publish))
        return 3;
    return bpf_timer_start(&timer->timer, set_publish_ns, set_timer_flags) ? 4 : 0;
}

/* A CPU's tasks of the scope, by way of the scope's group. */
static __always_inline struct cfs_rq *queue_of_group(struct task_group *group, __u32 index)
{
    struct cfs_rq *cfs = 0;

    if (group && bpf_core_field_exists(group->cfs_rq)) {
        struct cfs_rq **all = BPF_CORE_READ(group, cfs_rq);

        bpf_probe_read_kernel(&cfs, sizeof(cfs), &all[index]);
    }
    return cfs;
}

/* All tasks of a CPU, by the addresses that the kernel told. */
static __always_inline struct cfs_rq *queue_by_symbols(__u32 index)
{
    __u64 offset = 0;

    bpf_probe_read_kernel(&offset, sizeof(offset),
                          (void *)(symbol_per_cpu_offset + index * sizeof(offset)));
    return (void *)(symbol_runqueues + offset + bpf_core_field_offset(struct rq, cfs));
}

static long find_cpu(__u32 index, struct task_group **group)
{
    struct cpu *cpu = bpf_map_lookup_elem(&cpus, &index);

    if (!cpu)
        return 1;
    struct cfs_rq *cfs = symbol_runqueues ? queue_by_symbols(index) : queue_of_group(*group, index);
    struct rq *rq = BPF_CORE_READ(cfs, rq);

    if (!rq || BPF_CORE_READ(rq, cpu) != index)
        return 0;
    cpu->rq = (__u64)rq;
    cpu->cfs_rq = (__u64)cfs;
    found.cpus++;
    return 0;
}

static __always_inline struct cgroup_subsys_state *state_of(struct task_struct *task, int controller)
{
    struct cgroup_subsys_state **all =
        (void *)BPF_CORE_READ(task, cgroups) + bpf_core_field_offset(struct css_set, subsys);
    struct cgroup_subsys_state *state = 0;

    bpf_probe_read_kernel(&state, sizeof(state), &all[controller]);
    return state;
}

static __always_inline void find_memory(struct task_struct *task)
{
    struct cgroup_subsys_state *state =
        state_of(task, bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id));

    if (!state)
        return;
    struct mem_cgroup *group = (void *)state - bpf_core_field_offset(struct mem_cgroup, css);

    /* Version 2 has one group for all controllers; a limit of all ones is none. */
    if (set_scope == 2 && BPF_CORE_READ(group, memory.max) < (1ull << 40)) {
        found.memory_group = (__u64)group;
        found.sources |= TIDEGATE_SOURCE_MEMORY;
    }
    if (set_scope)
        return;
    struct mem_cgroup_per_node **nodes =
        (void *)group + bpf_core_field_offset(struct mem_cgroup, nodeinfo);

    for (int i = 0; i < NUMA_NODES_MAX; i++) {
        struct mem_cgroup_per_node *node = 0;

        if (bpf_probe_read_kernel(&node, sizeof(node), &nodes[i]) || !node)
            break;
        found.node[i] = (__u64)BPF_CORE_READ(node, lruvec.pgdat);
        found.sources |= TIDEGATE_SOURCE_MEMORY;
    }
}

/* Called once by a process in the control group that the record is about: follows the pointers
 * from that process to everything that will be read. Needs no address of any symbol, but takes
 * that of the run queues where the kernel does not schedule by groups. */
SEC("syscall")
int find_addresses(void *ctx)
{
    struct task_struct *task = (void *)bpf_get_current_task_btf();
    struct task_group *group = 0;

    if (bpf_core_field_exists(task->sched_task_group))
        group = BPF_CORE_READ(task, sched_task_group);
    if (!set_scope && group)
        for (int depth = 0; depth < 64; depth++) {
            struct task_group *parent = BPF_CORE_READ(group, parent);

            if (!parent)
                break;
            group = parent;
        }
    found.group = (__u64)group;
    found.cpus = 0;
    bpf_loop(set_cpus, find_cpu, &group, 0);
    if (!found.cpus)
        return 1;
    found.sources = TIDEGATE_SOURCE_RUNNABLE | TIDEGATE_SOURCE_PER_CPU;
    /* Interrupts and stolen time are the machine's: no control group has any. */
    if (set_scope)
        found.sources |= TIDEGATE_SOURCE_QUOTA;
    else
        found.sources |= TIDEGATE_SOURCE_UNINTERRUPTIBLE;
    if (set_off_softirq && !set_scope)
        found.sources |= TIDEGATE_SOURCE_SOFTIRQ;
    if (set_off_cpustat && !set_scope)
        found.sources |= TIDEGATE_SOURCE_STEAL;
    find_memory(task);

    struct cgroup_subsys_state *state =
        state_of(task, bpf_core_enum_value(enum cgroup_subsys_id, cpuacct_cgrp_id));

    if (state && set_off_cpustat) {
        for (int depth = 0; depth < 64; depth++) {
            struct cgroup_subsys_state *parent = BPF_CORE_READ(state, parent);

            if (!parent)
                break;
            state = parent;
        }
        struct cpuacct *root = (void *)state - bpf_core_field_offset(struct cpuacct, css);

        /* The root's statistics are the per-CPU variable itself. */
        found.percpu_base = (__u64)BPF_CORE_READ(root, cpustat) - set_off_cpustat;
        struct net *net = BPF_CORE_READ(task, nsproxy, net_ns);

        if (bpf_core_field_exists(net->ipv4.tcp_death_row.tw_refcount)) {
            found.tcp_statistics = (__u64)BPF_CORE_READ(net, mib.tcp_statistics);
            found.network = (__u64)net;
            found.sources |= TIDEGATE_SOURCE_SOCKETS;
        }
    }
    return 0;
}
