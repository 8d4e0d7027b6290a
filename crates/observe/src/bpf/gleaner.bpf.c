// SPDX-License-Identifier: GPL-2.0
//
// What every vCPU did, for whom, seen from the scheduler's own tracepoints.
//
// Problem: the policy needs true lengths (how long a vCPU computed between two idle periods, how long a thread
// computed between two synchronization points, how long idle periods were) at no more than 200 ns a context switch,
// for several groups of threads at once.
//
// How: one struct per CPU, and one per group and CPU, written only by that CPU inside sched_switch, where interrupts
// are off, so no lock and no atomic is needed; user space maps the same memory, reads it without a system call and
// subtracts what it read before. A sequence number, odd while a writer is inside, tells it to read again.
//
//     fork, exec, cgroup     waking
//             |                |
//             v                v
//            threads[tid] <--> sched_switch --> cpus[cpu], group_cpus[group, cpu] --> user space (mmap)
//                                   |
//                                   +--> rings[cpu], only while a yielding thread waits (cpus[cpu].armed)
//
// A task is idle (pid 0), yielding (the thread user space named for this CPU), of a group (in `threads`, which says
// of which), or other. "Working" means group or other. Idle periods lie between two working tasks; see
// gleaner_model::window.
//
// A thread's group is its parent's. Where groups are cgroups, it follows the thread into another cgroup. Threads that
// were there before are entered by user space.
//
// Deliberately absent: sched_process_exit (an entry is deleted when its thread is switched out for the last time, so
// that its last stint still counts), sched_wakeup (sched_waking runs on the waker's own CPU, which is what makes a
// wake-up "cross"; the switch-in says where the thread went).

// The layout of gleaner_model::bucket_index (a test feeds both the same values), cut at 2^40 ns (18 minutes): longer
// ones share the last bucket.
#define SUB_BUCKET_BITS 3
#define BUCKETS 312
#include "common.bpf.h"

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
	__u64 hlts;
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
	__u32 adopt;   // user space: one more than the group whose first process is the owner's next child, or 0
	__u32 cgroups; // user space: how many groups are cgroups
	__u64 moved;   // processes of several threads that went to another cgroup: user space has to look
	__u64 untracked; // threads that found `threads` full
} __attribute__((aligned(64)));

// The same of each group.
struct group_state {
	__u32 kind; // user space
	__u32 unused;
	__u64 born;
	__u64 died;
	__u64 execs;
} __attribute__((aligned(64)));

struct thread_state {
	__u64 waking_ns; // when it was last woken, 0 once it ran
	__u64 comp_ns;   // CPU time since it last gave up the CPU of its own will
	__u64 exec_ns;   // all its CPU time, when last switched out
	__u64 nvcsw;     // the kernel's own count of that, when last switched out
	__u32 waker_cpu;
	__u32 group;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); // user space: possible CPUs
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpus SEC(".maps");

// Element `group * cpu_count + cpu`.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); // user space: groups times possible CPUs
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

// The process that forks a group's first process and owns the yielding threads.
const volatile __u32 owner_tgid = 0;
const volatile __u32 cpu_count = 1;

char LICENSE[] SEC("license") = "GPL";

static __always_inline void record(struct histogram *histogram, __u64 value)
{
	record_scaled(histogram, value, value);
}

// Tells the yielding thread that waits on this CPU. One record a wait: arming is what pays for it.
static __always_inline void tell_busy(__u32 cpu, struct cpu_state *c)
{
	void *ring;
	__u64 record = 1;

	c->armed = 0;
	ring = bpf_map_lookup_elem(&rings, &cpu);
	if (ring)
		bpf_ringbuf_output(ring, &record, sizeof(record), BPF_RB_FORCE_WAKEUP);
}

static __always_inline struct group_cpu *of_group(__u32 group, __u32 cpu)
{
	__u32 index = group * cpu_count + cpu;

	return bpf_map_lookup_elem(&group_cpus, &index);
}

static __always_inline __u32 class_of(__u32 pid, __u32 yield_pid, struct thread_state **thread)
{
	*thread = 0;
	if (pid == 0)
		return IDLE;
	if (pid == yield_pid)
		return YIELDING;
	*thread = bpf_map_lookup_elem(&threads, &pid);
	return *thread ? GROUP : OTHER;
}

// A stint of `class` begins: idle periods begin and end between working and not working.
static __always_inline void begin(struct cpu_state *c, __u32 class, struct thread_state *thread, __u64 now)
{
	if (class == IDLE)
		c->halts++;
	if (class >= GROUP) {
		if (c->idle_since_ns) {
			record(&c->histograms[L_IDLE], now - c->idle_since_ns);
			c->idle_since_ns = 0;
		}
	} else if (!c->idle_since_ns) {
		c->idle_since_ns = now;
		c->idle_entries++;
		if (c->comp_ns)
			record(&c->histograms[L_COMP], c->comp_ns);
		c->comp_ns = 0;
	}
	if (thread)
		c->group = thread->group;
	c->class = class;
	c->since_ns = now;
}

// The task that leaves is not the one that came: a switch was not shown (the first ever; some kernels hide some
// tasks). It is taken to have happened when the stint began, and nothing to have been stolen.
static __always_inline void resume(struct cpu_state *c, __u32 pid, __u64 exec_ns, __u64 now)
{
	struct thread_state *thread;
	__u32 class = class_of(pid, c->yield_pid, &thread);

	begin(c, class, thread, c->since_ns);
	c->exec_at_ns = exec_ns - (now - c->since_ns);
}

static __always_inline void forget(__u32 pid)
{
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &pid);
	struct group_state *group;
	__u32 of;

	if (!thread)
		return;
	of = thread->group;
	if (bpf_map_delete_elem(&threads, &pid))
		return;
	group = bpf_map_lookup_elem(&groups, &of);
	if (group)
		__sync_fetch_and_add(&group->died, 1);
}

// A thread of a group is switched out. Its CPU time since it was last is the truth even where a switch was hidden.
static __always_inline __u64 leave_group(struct group_cpu *g, struct task_struct *prev, __u32 pid, __u64 exec)
{
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &pid);
	__u64 total = prev->se.sum_exec_runtime;

	g->work_switches++;
	if (thread) {
		// Less than was known: the entry is of another thread that had this id. Nothing rather than 2^64.
		exec = total > thread->exec_ns ? total - thread->exec_ns : 0;
		thread->exec_ns = total;
		thread->comp_ns += exec;
		if (prev->nvcsw != thread->nvcsw) {
			thread->nvcsw = prev->nvcsw;
			record(&g->histograms[G_COMP], thread->comp_ns);
			thread->comp_ns = 0;
			g->voluntary++;
		} else {
			thread->waking_ns = 0; // a wake-up that found it still running
			g->involuntary++;
		}
	}
	g->exec_ns += exec;
	return exec;
}

// Closes the stint of `prev`.
static __always_inline void leave(struct cpu_state *c, __u32 cpu, struct task_struct *prev, __u64 now)
{
	struct group_cpu *g;
	__u32 pid = prev->pid;
	__u64 total = prev->se.sum_exec_runtime;
	__u64 exec;

	if (c->pid != pid || c->class == UNKNOWN)
		resume(c, pid, total, now);
	if (c->class <= IDLE) {
		c->halted_ns += now - c->since_ns;
		return;
	}
	exec = total - c->exec_at_ns;
	if (c->class == YIELDING) {
		c->yield_ns += exec;
		// Displacements only: a yielding thread that sleeps has not been switched away from by anybody.
		if (prev->nvcsw == c->yield_nvcsw)
			c->yield_switches++;
		return;
	}
	if (c->class == GROUP) {
		g = of_group(c->group, cpu);
		if (g)
			exec = leave_group(g, prev, pid, exec);
	}
	c->comp_ns += exec;
	// Also one that user space entered while it ran.
	if (prev->exit_state)
		forget(pid);
}

// Opens the stint of `next`; says its class.
static __always_inline __u32 enter(struct cpu_state *c, __u32 cpu, struct task_struct *next, __u64 now)
{
	struct thread_state *thread;
	struct group_cpu *g;
	__u32 pid = next->pid;
	__u32 class = class_of(pid, c->yield_pid, &thread);

	if (thread && thread->waking_ns) {
		g = of_group(thread->group, cpu);
		if (g) {
			if (thread->waker_cpu != cpu)
				g->cross_wakeups++;
			if (now > thread->waking_ns)
				record(&g->histograms[WAKE_TO_RUN], now - thread->waking_ns);
		}
		thread->waking_ns = 0;
	}
	begin(c, class, thread, now);
	c->pid = pid;
	c->exec_at_ns = next->se.sum_exec_runtime;
	if (class == YIELDING)
		c->yield_nvcsw = next->nvcsw;
	return class;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *c = bpf_map_lookup_elem(&cpus, &cpu);
	__u64 now = bpf_ktime_get_ns();
	__u32 class;

	if (!c)
		return 0;
	c->seq++;
	barrier();
	leave(c, cpu, prev, now);
	class = enter(c, cpu, next, now);
	barrier();
	c->seq++;
	if (class >= GROUP && c->armed)
		tell_busy(cpu, c);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	__u32 pid = task->pid;
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &pid);

	if (!thread)
		return 0;
	thread->waker_cpu = bpf_get_smp_processor_id();
	thread->waking_ns = bpf_ktime_get_ns();
	return 0;
}

// The group that is this cgroup, of the unified hierarchy, or one above it.
static __always_inline __u32 group_of_cgroup(struct cgroup *cgroup)
{
	struct cgroup_subsys_state *above;
	__u64 id;
	__u32 *found;

	for (int i = 0; i < CGROUP_DEPTH; i++) {
		id = BPF_CORE_READ(cgroup, kn, id);
		found = bpf_map_lookup_elem(&cgroups, &id);
		if (found)
			return *found;
		above = BPF_CORE_READ(cgroup, self.parent);
		if (!above)
			break;
		cgroup = (void *)above - bpf_core_field_offset(struct cgroup, self);
	}
	return NO_GROUP;
}

// The group of a thread that was of `group`, and whose cgroup in the unified hierarchy is `cgroup` now.
static __always_inline __u32 moved_to(__u32 group, struct cgroup *cgroup)
{
	struct group_state *had = bpf_map_lookup_elem(&groups, &group);

	// What belongs to a process tree goes on doing so.
	return had && had->kind == TREE ? group : group_of_cgroup(cgroup);
}

// The thread `pid` is of `group` from now on; false: it cannot be.
static __always_inline bool join(__u32 pid, __u32 group, struct thread_state *state, struct shared_state *all)
{
	struct group_state *joined = bpf_map_lookup_elem(&groups, &group);

	// A group that is let go has no new thread.
	if (!joined || joined->kind == FREE)
		return false;
	state->group = group;
	if (bpf_map_update_elem(&threads, &pid, state, BPF_ANY)) {
		__sync_fetch_and_add(&all->untracked, 1);
		return false;
	}
	__sync_fetch_and_add(&joined->born, 1);
	return true;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 zero = 0, parent_pid = parent->pid, child_pid = child->pid, group = NO_GROUP;
	struct shared_state *all = bpf_map_lookup_elem(&shared, &zero);
	struct thread_state *of = bpf_map_lookup_elem(&threads, &parent_pid);
	struct thread_state born = {};

	if (!all)
		return 0;
	if (of) {
		group = of->group;
	} else if (all->adopt && parent->tgid == owner_tgid && child->tgid != owner_tgid) {
		// A new thread of the owner is no child process.
		group = all->adopt - 1;
		all->adopt = 0;
	}
	// CLONE_INTO_CGROUP
	if (all->cgroups && child->cgroups != parent->cgroups)
		group = moved_to(group, child->cgroups->dfl_cgrp);
	if (group == NO_GROUP) {
		// Of another thread that had this id, and whose end nobody saw.
		forget(child_pid);
		return 0;
	}
	// Its first run is a wake-up by the forking CPU.
	born.waking_ns = bpf_ktime_get_ns();
	born.waker_cpu = bpf_get_smp_processor_id();
	join(child_pid, group, &born, all);
	return 0;
}

// A process goes to another cgroup. Of several threads only the first one is shown.
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_attach, struct cgroup *to, const char *path, struct task_struct *task, bool whole_process)
{
	__u32 zero = 0, pid = task->pid, had = NO_GROUP, group;
	struct shared_state *all = bpf_map_lookup_elem(&shared, &zero);
	struct thread_state *known = bpf_map_lookup_elem(&threads, &pid);
	struct thread_state state = {};

	// 0 is the unified one.
	if (!all || !all->cgroups || to->root->hierarchy_id)
		return 0;
	if (whole_process && task->signal->nr_threads > 1)
		__sync_fetch_and_add(&all->moved, 1);
	if (known)
		had = known->group;
	group = moved_to(had, to);
	if (group == had)
		return 0;
	forget(pid);
	if (group == NO_GROUP)
		return 0;
	state.exec_ns = task->se.sum_exec_runtime;
	state.nvcsw = task->nvcsw;
	join(pid, group, &state, all);
	return 0;
}

// A thread that is not its process's first and calls exec takes over the first one's id, and its entry if that is still
// there.
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid)
{
	__u32 zero = 0, pid = task->pid, old = old_pid, group;
	struct shared_state *all = bpf_map_lookup_elem(&shared, &zero);
	struct thread_state state = {};
	struct thread_state *known = bpf_map_lookup_elem(&threads, &old);
	struct thread_state *first = bpf_map_lookup_elem(&threads, &pid);
	struct group_state *of;

	if (!all)
		return 0;
	if (known) {
		state = *known;
	} else if (first) {
		state.exec_ns = task->se.sum_exec_runtime;
		state.nvcsw = task->nvcsw;
		state.group = first->group;
	} else {
		return 0;
	}
	group = state.group;
	of = bpf_map_lookup_elem(&groups, &group);
	if (of)
		__sync_fetch_and_add(&of->execs, 1);
	if (old == pid)
		return 0;
	if (first)
		*first = state;
	else
		join(pid, group, &state, all);
	forget(old);
	return 0;
}

// How often the idle task really gave the vCPU away: it may poll instead, or be woken by an interrupt and halt again.
SEC("tp_btf/cpu_idle")
int BPF_PROG(on_cpu_idle, unsigned int state)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *c = bpf_map_lookup_elem(&cpus, &cpu);

	if (c && state != (__u32)-1)
		c->hlts++;
	return 0;
}

// For the test that Rust and C agree on the buckets: never attached, only run by hand.
__u64 probe_values[64];
__u32 probe_indexes[64];

SEC("raw_tp")
int bucket_probe(void *ctx)
{
	for (int i = 0; i < 64; i++)
		probe_indexes[i] = bucket_index(probe_values[i]);
	return 0;
}
