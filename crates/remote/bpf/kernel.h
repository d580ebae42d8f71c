/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The parts of the kernel's structures that the programs read. Only names and types count:
 * offsets are those of the running kernel, put in when the programs are loaded (CO-RE). A name
 * with three underscores is a variant of another version. */
#ifndef TIDEGATE_KERNEL_H
#define TIDEGATE_KERNEL_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
    int counter;
} atomic_t;

typedef struct {
    long counter;
} atomic_long_t;

typedef _Bool bool;

struct cgroup_subsys_state {
    struct cgroup_subsys_state *parent;
};

struct rq;

struct cfs_rq {
    struct rq *rq;
    unsigned int h_nr_running;
};

/* 6.14 and later: tasks that sleep but stay queued are told apart. */
struct cfs_rq___counted {
    unsigned int h_nr_queued;
    unsigned int h_nr_runnable;
};

/* 6.12 and 6.13. */
struct cfs_rq___delayed {
    unsigned int h_nr_delayed;
};

struct list_head {
    struct list_head *next;
};

/* 6.18 and later: tasks that a quota holds back leave the run queue one by one, for a list. */
struct cfs_rq___held {
    int throttle_count; /* groups that are held back, from this one up */
    struct list_head throttled_limbo_list;
};

struct task_group;
struct css_set;
struct nsproxy;

struct task_struct {
    int pid;
    struct task_group *sched_task_group;
    struct css_set *cgroups;
    struct nsproxy *nsproxy;
};

struct rq {
    int cpu;
    int online;
    unsigned int nr_running;
    /* Half as wide in newer kernels; its low half is what is used. */
    unsigned long nr_uninterruptible;
    atomic_t nr_iowait;
    struct cfs_rq cfs;
};

struct cfs_bandwidth {
    __u64 period;
    __u64 quota;
    __u64 throttled_time;
};

struct task_group {
    struct cgroup_subsys_state css;
    struct cfs_rq **cfs_rq;
    struct task_group *parent;
    struct cfs_bandwidth cfs_bandwidth;
};

struct css_set {
    struct cgroup_subsys_state *subsys[1];
};

/* The numbers differ from kernel to kernel: relocated like offsets. */
enum cgroup_subsys_id {
    cpuacct_cgrp_id = 2,
    memory_cgrp_id = 4,
};

struct cpuacct {
    struct cgroup_subsys_state css;
    void *cpustat;
};

struct page_counter {
    atomic_long_t usage;
    unsigned long max;
};

enum node_stat_item {
    NR_INACTIVE_FILE = 2,
    NR_ACTIVE_FILE = 3,
    NR_SLAB_RECLAIMABLE_B = 5,
};

enum zone_stat_item {
    NR_FREE_PAGES = 0,
};

enum zone_watermarks {
    WMARK_LOW = 1,
};

struct zone {
    unsigned long _watermark[3];
    atomic_long_t managed_pages;
    atomic_long_t vm_stat[1];
};

struct pglist_data {
    struct zone node_zones[1];
    int nr_zones;
    unsigned long totalreserve_pages;
    atomic_long_t vm_stat[1];
};

struct lruvec {
    struct pglist_data *pgdat;
};

struct mem_cgroup_per_node {
    struct lruvec lruvec;
};

struct mem_cgroup {
    struct cgroup_subsys_state css;
    struct page_counter memory;
    struct mem_cgroup_per_node *nodeinfo[1];
};

struct tcp_mib;

struct netns_mib {
    struct tcp_mib *tcp_statistics;
};

typedef struct {
    atomic_t refs;
} refcount_t;

struct inet_timewait_death_row {
    refcount_t tw_refcount;
};

struct netns_ipv4 {
    struct inet_timewait_death_row tcp_death_row;
};

struct net {
    struct netns_mib mib;
    struct netns_ipv4 ipv4;
};

struct nsproxy {
    struct net *net_ns;
};

enum cpu_usage_stat {
    CPUTIME_SOFTIRQ = 3,
    CPUTIME_STEAL = 6,
};

#pragma clang attribute pop

#endif
