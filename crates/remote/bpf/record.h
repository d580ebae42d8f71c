/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Makes a load record of what the kernel knows at this moment. */
#ifndef TIDEGATE_FILL_H
#define TIDEGATE_FILL_H

/* A kernel address as a pointer whose fields can be read. */
#define AT(type, address) ((struct type *)(address))

static __always_inline __u64 read_u64(__u64 address)
{
    __u64 value = 0;

    bpf_probe_read_kernel(&value, sizeof(value), (void *)address);
    return value;
}

/* Most tasks in a list that are counted. */
#define HELD_MAX 64

/* Tasks that the quota of their group, or of one above, holds back though they would run: from
 * Linux 6.18 on they are not queued, before they stayed so. Tasks of groups below have lists of
 * their own, which are not seen. `on_switch` has the run queue's lock and counts exactly; a read
 * by another CPU may come while the list changes: it ends at what was taken out, or at the limit. */
static __always_inline __u32 held_on(struct cfs_rq *cfs)
{
    struct cfs_rq___held *queue = (void *)cfs;

    if (!bpf_core_field_exists(queue->throttled_limbo_list))
        return 0;
    if (!BPF_CORE_READ(queue, throttle_count))
        return 0;
    __u64 head = (__u64)queue + bpf_core_field_offset(struct cfs_rq___held, throttled_limbo_list);
    __u64 at = head;

    for (__u32 held = 0; held < HELD_MAX; held++) {
        __u64 next = read_u64(at);

        /* What was taken out points at itself; nothing where it could not be read. */
        if (!next || next == head || next == at)
            return held;
        at = next;
    }
    return HELD_MAX;
}

/* Tasks of the scope that run or wait for this CPU. Sleepers may stay queued: they do not count. */
static __always_inline __u32 runnable_on(const struct cpu *cpu)
{
    struct cfs_rq *cfs = AT(cfs_rq, cpu->cfs_rq);
    struct cfs_rq___counted *counted = (void *)cfs;
    struct cfs_rq___delayed *delayed = (void *)cfs;
    struct rq *rq = AT(rq, cpu->rq);
    __u32 queued, asleep = 0;

    if (bpf_core_field_exists(counted->h_nr_runnable)) {
        if (set_scope)
            return BPF_CORE_READ(counted, h_nr_runnable) + held_on(cfs);
        asleep = BPF_CORE_READ(counted, h_nr_queued) - BPF_CORE_READ(counted, h_nr_runnable);
    } else if (bpf_core_field_exists(delayed->h_nr_delayed)) {
        asleep = BPF_CORE_READ(delayed, h_nr_delayed);
    }
    queued = set_scope ? BPF_CORE_READ(cfs, h_nr_running) : BPF_CORE_READ(rq, nr_running);
    return queued > asleep ? queued - asleep : 0;
}

/* Whether the task belongs to the scope: its group or one above is the scope's. */
static __always_inline int in_scope(struct task_struct *task)
{
    if (task->pid == 0)
        return 0;
    if (!set_scope)
        return 1;
    struct task_group *group = task->sched_task_group;

    for (int depth = 0; depth < 8; depth++) {
        if (!group)
            return 0;
        if ((__u64)group == found.group)
            return 1;
        group = group->parent;
    }
    return 0;
}

/* A tick at the lowest usual rate. */
#define LOOK_PERIOD 4000000ull

struct sums {
    __u64 now;
    __u64 busy_ns;
    __u64 runnable_ns;
    __u64 softirq_ns;
    __u64 steal_ns;
    __u32 slot; /* of the scratch */
    __u32 runnable;
    __u32 softirqs;
    __s32 uninterruptible;
    __s32 established;
    __u32 lines;
    __u32 online;
    __u32 looks; /* whether what changes slowly is looked at */
};

/* Copies the sums of a CPU; whether they stood still meanwhile. */
static __always_inline int try_sums(const struct cpu *cpu, __u64 now, __u64 *busy, __u64 *runnable)
{
    __u64 before = *(volatile __u64 *)&cpu->changes;
    __u64 since = *(volatile __u64 *)&cpu->since;
    __u64 passed = since && now > since ? now - since : 0;

    *busy = *(volatile __u64 *)&cpu->busy_ns;
    if (*(volatile __u32 *)&cpu->on)
        *busy += passed;
    *runnable = *(volatile __u64 *)&cpu->runnable_ns;
    *runnable += passed * *(volatile __u32 *)&cpu->runnable;
    return !(before & 1) && before == *(volatile __u64 *)&cpu->changes;
}

/* Copies them while the CPU may change them. Not a loop: Linux 6.1 takes one that is entered in
 * its middle, as compilers make it, for one without an end. */
static __always_inline void sums_of(const struct cpu *cpu, __u64 now, __u64 *busy, __u64 *runnable)
{
    if (try_sums(cpu, now, busy, runnable))
        return;
    if (try_sums(cpu, now, busy, runnable))
        return;
    try_sums(cpu, now, busy, runnable);
}

/* Where a CPU's line goes: its own slot, or that of the least loaded CPU so far, if that is less. */
static __always_inline struct tidegate_cpu_line *line_for(struct message *out, struct sums *sums,
                                                          __u32 runnable)
{
    __u32 least = 0;

    if (sums->lines < TIDEGATE_CPU_LINES_MAX) {
        least = sums->lines++;
        return &out->cpu[least & (TIDEGATE_CPU_LINES_MAX - 1)];
    }
    for (int i = 1; i < TIDEGATE_CPU_LINES_MAX; i++)
        if (out->cpu[i].runnable < out->cpu[least & (TIDEGATE_CPU_LINES_MAX - 1)].runnable)
            least = i;
    least &= TIDEGATE_CPU_LINES_MAX - 1;
    return out->cpu[least].runnable < runnable ? &out->cpu[least] : 0;
}

/* What the kernel brings up to date at its tick need not be read more often. */
static __always_inline void look_at_cpu(struct cpu *cpu)
{
    struct rq *rq = AT(rq, cpu->rq);

    if (set_off_cpustat) {
        __u64 stat = cpu->rq + set_off_cpustat;

        cpu->softirq_ns =
            read_u64(stat + 8 * bpf_core_enum_value(enum cpu_usage_stat, CPUTIME_SOFTIRQ));
        cpu->steal_ns =
            read_u64(stat + 8 * bpf_core_enum_value(enum cpu_usage_stat, CPUTIME_STEAL));
    }
    if (found.tcp_statistics)
        cpu->established = (__s32)read_u64(found.tcp_statistics + (cpu->rq - found.percpu_base) +
                                           8 * TCP_MIB_CURRESTAB);
    cpu->iowait = BPF_CORE_READ(rq, nr_iowait.counter);
    /* CPUs come and go; their run queues stay, and what they have counted. */
    cpu->online = !bpf_core_field_exists(rq->online) || BPF_CORE_READ(rq, online);
}

static long add_cpu(__u32 index, struct sums *sums)
{
    struct cpu *cpu = bpf_map_lookup_elem(&cpus, &index);
    __u32 slot = sums->slot;
    struct message *out = bpf_map_lookup_elem(&scratch, &slot);

    if (!cpu || !out)
        return 1;
    if (!cpu->rq)
        return 0;
    struct rq *rq = AT(rq, cpu->rq);
    __u32 runnable = runnable_on(cpu);
    __u64 busy = 0, runnable_ns = 0;
    __u32 pending = 0;

    if (sums->looks)
        look_at_cpu(cpu);
    sums_of(cpu, sums->now, &busy, &runnable_ns);
    if (set_off_softirq && !set_scope)
        bpf_probe_read_kernel(&pending, set_softirq_bytes == 2 ? 2 : 4,
                              (void *)(cpu->rq + set_off_softirq));
    sums->online += cpu->online;
    sums->busy_ns += busy;
    sums->runnable_ns += runnable_ns;
    sums->softirq_ns += cpu->softirq_ns;
    sums->steal_ns += cpu->steal_ns;
    sums->established += cpu->established;
    sums->runnable += runnable;
    sums->softirqs += pending != 0;
    /* May be taken off at another CPU than put on: only the sum is right. */
    sums->uninterruptible += (__s32)BPF_CORE_READ(rq, nr_uninterruptible);
    if (!cpu->online)
        return 0;
    struct tidegate_cpu_line *line = line_for(out, sums, runnable);

    if (!line)
        return 0;
    line->cpu = index;
    line->busy_ns = busy;
    line->softirq_ns = cpu->softirq_ns;
    line->steal_ns = cpu->steal_ns;
    line->runnable_ns = runnable_ns;
    line->runnable = runnable;
    line->softirqs_pending = pending;
    line->iowait = cpu->iowait;
    return 0;
}

static __always_inline __u64 positive(__s64 value)
{
    return value > 0 ? value : 0;
}

struct memory {
    __u64 free;
    __u64 managed;
    __u64 low;
    __u64 cache;
    __u64 slab;
    __u64 reserve;
};

#define ZONES_MAX 8

/* One of the zones of all nodes; a node has fewer than that. */
static long add_zone(__u32 index, struct memory *memory)
{
    __u32 n = index / ZONES_MAX & (NUMA_NODES_MAX - 1), z = index % ZONES_MAX;
    struct pglist_data *node = AT(pglist_data, found.node[n]);

    if (!node)
        return 1;
    if (z == 0) {
        __u64 stat = (__u64)node + bpf_core_field_offset(struct pglist_data, vm_stat);

        memory->cache +=
            read_u64(stat + 8 * bpf_core_enum_value(enum node_stat_item, NR_INACTIVE_FILE));
        memory->cache +=
            read_u64(stat + 8 * bpf_core_enum_value(enum node_stat_item, NR_ACTIVE_FILE));
        memory->slab +=
            read_u64(stat + 8 * bpf_core_enum_value(enum node_stat_item, NR_SLAB_RECLAIMABLE_B));
        memory->reserve += BPF_CORE_READ(node, totalreserve_pages);
    }
    if (z >= BPF_CORE_READ(node, nr_zones))
        return 0;
    struct zone *zone = (void *)node + bpf_core_field_offset(struct pglist_data, node_zones) +
                        z * bpf_core_type_size(struct zone);

    memory->free += BPF_CORE_READ(zone, vm_stat[NR_FREE_PAGES].counter);
    memory->managed += BPF_CORE_READ(zone, managed_pages.counter);
    memory->low += BPF_CORE_READ(zone, _watermark[WMARK_LOW]);
    return 0;
}

/* MemAvailable as the kernel reckons it: free pages less reserves, and what of the page cache
 * and of slabs can be given back. */
static __always_inline void look_at_memory(void)
{
    struct memory m = {};

    bpf_loop(NUMA_NODES_MAX * ZONES_MAX, add_zone, &m, 0);
    __s64 available = (__s64)(m.free - m.reserve);

    available += m.cache - (m.cache / 2 < m.low ? m.cache / 2 : m.low);
    available += m.slab - (m.slab / 2 < m.low ? m.slab / 2 : m.low);
    memory_total = m.managed * set_page_bytes;
    memory_available = positive(available) * set_page_bytes;
}

/* The memory of a version 2 control group, where it is limited. */
static __always_inline void fill_group_memory(struct tidegate_record *record)
{
    struct mem_cgroup *group = AT(mem_cgroup, found.memory_group);
    __u64 total = BPF_CORE_READ(group, memory.max);
    __s64 used = BPF_CORE_READ(group, memory.usage.counter);

    record->memory_total = total * set_page_bytes;
    record->memory_available = positive((__s64)total - used) * set_page_bytes;
}

static __always_inline void fill_quota(struct tidegate_record *record)
{
    struct task_group *group = AT(task_group, found.group);
    __u64 period = BPF_CORE_READ(group, cfs_bandwidth.period);
    __u64 quota = BPF_CORE_READ(group, cfs_bandwidth.quota);

    record->throttled_ns = BPF_CORE_READ(group, cfs_bandwidth.throttled_time);
    /* No quota is all ones. */
    record->quota_milli = period && quota < (1ull << 50) ? quota * 1000 / period : 0;
}

/* What a process has told, if that is young enough; else nothing. */
static __always_inline void begin(struct tidegate_record *record, __u64 now)
{
    __u32 zero = 0;
    struct slow *told = bpf_map_lookup_elem(&slow, &zero);

    if (told) {
        const struct tidegate_record *from = &told->record[told->current & 1];

        if (from->t_ns && now - from->t_ns < set_slow_fresh_ns) {
            __builtin_memcpy(record, from, sizeof(*record));
            return;
        }
    }
    __builtin_memset(record, 0, sizeof(*record));
}

/* Fills the record and the CPU lines of a scratch message. Verified by itself, once. */
__noinline int fill(struct message *out, __u32 slot, __u64 interval, __u8 rung)
{
    if (!out)
        return 1;
    struct tidegate_record *record = &out->record;
    struct sums sums = {.now = bpf_ktime_get_ns(), .slot = slot};

    if (sums.now - looked_at > LOOK_PERIOD) {
        looked_at = sums.now;
        sums.looks = 1;
    }
    begin(record, sums.now);
    int told_no_memory = !(record->sources & TIDEGATE_SOURCE_MEMORY);

    bpf_loop(set_cpus, add_cpu, &sums, 0);
    record->magic = TIDEGATE_MAGIC;
    record->version = TIDEGATE_VERSION;
    record->lines = TIDEGATE_AGGREGATE_LINES + sums.lines;
    record->cpu_lines = sums.lines;
    record->scope = set_scope;
    record->rung = rung;
    record->generation = set_generation;
    record->t_ns = sums.now;
    if (switch_sources)
        record->sources &= ~(TIDEGATE_SOURCE_BUSY_ACCT | TIDEGATE_SOURCE_BUSY_TICK);
    record->sources |= found.sources | switch_sources;
    record->interval_ns = interval;
    record->on_cpu = bpf_get_smp_processor_id();
    record->busy_ns = sums.busy_ns;
    record->runnable_ns = sums.runnable_ns;
    record->runnable = sums.runnable;
    record->softirqs_pending = sums.softirqs;
    if (!record->cores_milli)
        record->cores_milli = sums.online * 1000;
    if (set_scope) {
        fill_quota(record);
        if (found.memory_group && told_no_memory)
            fill_group_memory(record);
    } else {
        record->steal_ns = sums.steal_ns;
        record->softirq_ns = sums.softirq_ns;
        record->uninterruptible = positive(sums.uninterruptible);
        if (found.node[0] && told_no_memory) {
            if (sums.looks)
                look_at_memory();
            record->memory_total = memory_total;
            record->memory_available = memory_available;
        }
    }
    if (found.network) {
        struct net *net = AT(net, found.network);
        /* The counter itself holds one. */
        __s32 waiting = BPF_CORE_READ(net, ipv4.tcp_death_row.tw_refcount.refs.counter) - 1;

        record->tcp_established = positive(sums.established);
        record->time_wait = positive(waiting);
    }

    __u32 number = __sync_fetch_and_add(&sequence, 1) + 1;
    if (!number)
        number = __sync_fetch_and_add(&sequence, 1) + 1;
    __u32 *line = (void *)record;

    for (int i = 0; i < LINES_MAX; i++) {
        line[0] = number;
        line[TIDEGATE_LINE_BYTES / 4 - 1] = number;
        line += TIDEGATE_LINE_BYTES / 4;
    }
    return 0;
}

#endif
