// SPDX-License-Identifier: GPL-2.0
//
// What the programs of gleaner.bpf.c keep, and share with user space.
#pragma once

#define MAX_THREADS 16384
#define RING_BYTES 4096

// Classes of tasks.
#define UNKNOWN 0
#define IDLE 1
#define YIELDING 2
#define GROUP 3
#define OTHER 4

// Histograms in cpu_state.
#define L_COMP 0
#define L_IDLE 1
// In group_cpu.
#define G_COMP 0
#define WAKE_TO_RUN 1
#define HISTOGRAMS 2

// Groups at most; user space may take room for fewer.
#define MAX_GROUPS 256
#define GROUP_WORDS (MAX_GROUPS / 64)
#define NO_GROUP (~0U)
// group_state.kind
#define FREE 0
#define TREE 1
#define CGROUP 2
// Cgroups in cgroups that are climbed to find a group's.
#define CGROUP_DEPTH 12

struct cpu_state {
	// Written by user space: the yielding thread of this CPU, and whether it waits. The second is cleared here when work
	// starts, and then told through rings[cpu].
	__u32 yield_pid;
	__u32 armed;
	__u64 seq;
	// The stint in progress: who, since when, and the task's CPU time then.
	__u64 since_ns;
	__u64 exec_at_ns;
	__u32 class;
	__u32 pid;
	__u32 group; // of the task, where its class is GROUP
	__u32 woken_pid; // the last task that an interrupt woke here while nobody worked
	__u32 place; // user space: where its part of group_cpus is, counted from 1; 0: it has none
	__u32 unused;
	// When the idle period in progress began, 0 while working; CPU time worked since the last one ended.
	__u64 idle_since_ns;
	__u64 comp_ns;
	// Closed stints: of the idle task and of what nobody knows, by the clock; of the yielding thread, as the scheduler
	// charged them (without stolen time).
	__u64 halted_ns;
	__u64 yield_ns;
	__u64 idle_entries;
	__u64 halts;
	__u64 yield_switches;
	__u64 yield_nvcsw; // the yielding thread's own count when it came
	__u64 interrupts; // idle periods that an interrupt ended; the others that L_IDLE has, a wake-up by another vCPU's task
	// A bit for each group of which something was counted here, until user space takes it.
	__u64 touched[GROUP_WORDS];
	struct histogram histograms[HISTOGRAMS];
} __attribute__((aligned(64)));

// What one group did on one CPU. Written as cpu_state is, while its `seq` is odd.
struct group_cpu {
	__u64 exec_ns; // closed stints
	__u64 work_switches;
	__u64 cross_wakeups;
	__u64 voluntary;
	__u64 involuntary;
	struct histogram histograms[HISTOGRAMS];
} __attribute__((aligned(64)));

// Any CPU writes these: atomics, but only forks, execs, deaths and moves between cgroups do.
struct shared_state {
	__u32 cgroups; // user space: how many groups are cgroups
	__u32 unused;
	__u64 moved;   // processes of several threads that went to another cgroup: user space has to look
	__u64 untracked; // threads that found `threads` full
} __attribute__((aligned(64)));

// The same of each group.
struct group_state {
	__u32 kind; // user space
	// User space: on how many vCPUs it is packed, 0 where it has all of them. `epoch` is another one each time counting
	// begins, 0 while nothing is counted. `reported` is cleared when the next burst is to be told.
	__u32 watched;
	__u64 born;
	__u64 died;
	__u64 execs;
	__u32 epoch;
	__u32 reported;
	__u64 after_ns; // user space: what is a burst, and what wake-up that another task delayed is one
	__u64 delay_ns;
	__u64 runnable; // threads that run or could, as far as they were seen since counting began
	__u64 since_ns; // since when those are more than `watched`, 0 if they are not
	// The last burst.
	__u64 burst_at_ns;
	__u64 burst_runnable;
	__u64 burst_lasted_ns;
	__u64 burst_delay_ns;
} __attribute__((aligned(64)));

struct burst_timer {
	struct bpf_timer timer;
	__u64 due_ns;
	__u64 fired_ns;
	__u64 pending;
};

struct thread_state {
	__u64 waking_ns; // when it was last woken, 0 once it ran
	__u64 comp_ns;   // CPU time since it last gave up the CPU of its own will
	__u64 exec_ns;   // all its CPU time, when last switched out
	__u64 nvcsw;     // the kernel's own count of that, when last switched out
	__u32 waker_cpu;
	__u32 group;
	__u32 by_interrupt; // whether nobody worked where it was woken
	__u32 unused;
	__u64 counted; // the group's epoch, while it is among `runnable`
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); // user space: possible CPUs
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpus SEC(".maps");

// Element `group * places + place - 1`: there are more CPUs possible than there are.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); // user space: groups times places
	__type(key, __u32);
	__type(value, struct group_cpu);
} group_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_GROUPS);
	__type(key, __u32);
	__type(value, struct group_state);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shared_state);
} shared SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THREADS);
	__type(key, __u32);
	__type(value, struct thread_state);
} threads SEC(".maps");

// The groups that are cgroups, by the cgroup's id in the unified hierarchy.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_GROUPS);
	__type(key, __u64);
	__type(value, __u32);
} cgroups SEC(".maps");

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1); // user space: possible CPUs
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

// By group.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_GROUPS);
	__type(key, __u32);
	__type(value, struct burst_timer);
} burst_timers SEC(".maps");

// Its records carry nothing: what there is to say is in groups[group].
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} bursts SEC(".maps");

const volatile __u32 places = 1;
// Whether the kernel has timers for programs, and can keep one on its CPU.
const volatile bool has_timers = false;
const volatile __u64 timer_flags = 0;
const volatile __u32 group_count = 1;
