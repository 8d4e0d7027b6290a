/* SPDX-License-Identifier: GPL-2.0 */
// What the observer's programs have in common: the kernel's structs, and histograms.
//
// Whoever includes this defines SUB_BUCKET_BITS and BUCKETS first, if it has histograms.
#pragma once

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

// Only the fields read somewhere; their offsets come from the running kernel's BTF.
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sched_entity {
	__u64 sum_exec_runtime;
};
struct kernfs_node {
	__u64 id;
};
struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
};
struct cgroup_root {
	int hierarchy_id;
};
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_root *root;
};
struct css_set {
	struct cgroup *dfl_cgrp;
};
struct signal_struct {
	int nr_threads;
};
struct task_struct {
	int pid;
	int tgid;
	int prio;
	int exit_state;
	unsigned int flags;
	unsigned int __state;
	unsigned long nvcsw;
	struct sched_entity se;
	struct css_set *cgroups;
	struct signal_struct *signal;
};
#pragma clang attribute pop

// 0: it can run.
static __always_inline __u32 state_of_task(struct task_struct *task)
{
	return task->__state;
}

#ifdef SUB_BUCKET_BITS

// Log-linear, 2^SUB_BUCKET_BITS buckets an octave.
struct histogram {
	__u64 sum_ns;
	__u32 count; // wraps, like the buckets: user space subtracts
	__u32 buckets[BUCKETS];
	__u32 unused;
};

static __always_inline __u32 log2_of(__u64 value)
{
	__u32 bits = 0;

	if (value >> 32) { bits += 32; value >>= 32; }
	if (value >> 16) { bits += 16; value >>= 16; }
	if (value >> 8) { bits += 8; value >>= 8; }
	if (value >> 4) { bits += 4; value >>= 4; }
	if (value >> 2) { bits += 2; value >>= 2; }
	return bits + (__u32)(value >> 1);
}

static __always_inline __u32 bucket_index(__u64 value)
{
	__u32 shift;

	if (value < (1 << SUB_BUCKET_BITS))
		return value;
	shift = log2_of(value) - SUB_BUCKET_BITS;
	return ((shift + 1) << SUB_BUCKET_BITS) + ((value >> shift) & ((1 << SUB_BUCKET_BITS) - 1));
}

// `scaled`: the value in the unit of the buckets.
static __always_inline void record_scaled(struct histogram *histogram, __u64 value, __u64 scaled)
{
	__u64 index = bucket_index(scaled);

	// Kept in one register, so that what the verifier sees checked is what is used.
	barrier_var(index);
	if (index >= BUCKETS)
		index = BUCKETS - 1;
	barrier_var(index);
	histogram->buckets[index]++;
	histogram->count++;
	histogram->sum_ns += value;
}

#endif
