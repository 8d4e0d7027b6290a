// SPDX-License-Identifier: GPL-2.0
//
// What every vCPU did, seen from the scheduler's own tracepoints.
//
// Problem: the policy needs true lengths (how long a vCPU computed between two idle periods, how long a thread
// computed between two synchronization points, how long idle periods were) at no more than 200 ns a context switch.
//
// How: one struct per CPU, written only by that CPU inside sched_switch, where interrupts are off, so no lock and
// no atomic is needed; user space maps the same memory, reads it without a system call and subtracts what it read
// before. A sequence number, odd while a writer is inside, tells it to read again.
//
//            fork, exec          waking
//               |                  |
//               v                  v
//            threads[tid]  <--> sched_switch --> cpus[cpu] --> user space (mmap)
//                                   |
//                                   +--> rings[cpu], only while a yielding thread waits (controls[cpu].armed)
//
// A task is idle (pid 0), yielding (the thread user space named for this CPU), of the group (in `threads`), or other.
// "Working" means group or other. Idle periods lie between two working tasks; see gleaner_model::window.
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

// Classes of tasks; also the index into cpu_state.wall_ns and .exec_ns.
#define UNKNOWN 0
#define IDLE 1
#define YIELDING 2
#define GROUP 3
#define OTHER 4
#define CLASSES 5

// Histograms in cpu_state.
#define L_COMP 0
#define L_IDLE 1
#define G_COMP 2
#define WAKE_TO_RUN 3
#define HISTOGRAMS 4

struct cpu_state {
	__u64 seq;
	// The stint in progress: who, since when, and the task's CPU time then.
	__u64 since_ns;
	__u64 exec_at_ns;
	__u32 class;
	__u32 pid;
	// When the idle period in progress began, 0 while working; CPU time worked since the last one ended.
	__u64 idle_since_ns;
	__u64 comp_ns;
	// Closed stints, by class: by the clock, and as the scheduler charged them (without stolen time).
	__u64 wall_ns[CLASSES];
	__u64 exec_ns[CLASSES];
	__u64 idle_entries;
	__u64 halts;
	__u64 work_switches;
	__u64 yield_switches;
	__u64 yield_nvcsw; // the yielding thread's own count when it came
	__u64 cross_wakeups;
	__u64 voluntary;
	__u64 involuntary;
	__u64 hlts;
	struct histogram histograms[HISTOGRAMS];
} __attribute__((aligned(64)));

// Written by user space.
struct cpu_control {
	__u32 yield_pid;
	__u32 armed; // cleared here when work starts, and then told through rings[cpu]
	__u64 unused[7];
} __attribute__((aligned(64)));

// Any CPU writes these: atomics, but only forks, execs and deaths do.
struct shared_state {
	__u32 adopt; // user space: the owner's next child process is the group's first
	__u32 unused;
	__u64 born;
	__u64 died;
	__u64 execs;
	__u64 untracked; // threads that found `threads` full
} __attribute__((aligned(64)));

struct thread_state {
	__u64 waking_ns; // when it was last woken, 0 once it ran
	__u64 comp_ns;   // CPU time since it last gave up the CPU of its own will
	__u64 exec_ns;   // all its CPU time, when last switched out
	__u64 nvcsw;     // the kernel's own count of that, when last switched out
	__u32 waker_cpu;
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); // user space: possible CPUs
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); // user space: possible CPUs
	__type(key, __u32);
	__type(value, struct cpu_control);
} controls SEC(".maps");

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

// The process that forks the group's first process and owns the yielding threads.
const volatile __u32 owner_tgid = 0;

char LICENSE[] SEC("license") = "GPL";

static __always_inline void record(struct histogram *histogram, __u64 value)
{
	record_scaled(histogram, value, value);
}

// Tells the yielding thread that waits on this CPU. One record a wait: arming is what pays for it.
static __always_inline void tell_busy(__u32 cpu, struct cpu_control *control)
{
	void *ring;
	__u64 record = 1;

	control->armed = 0;
	ring = bpf_map_lookup_elem(&rings, &cpu);
	if (ring)
		bpf_ringbuf_output(ring, &record, sizeof(record), BPF_RB_FORCE_WAKEUP);
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
static __always_inline void begin(struct cpu_state *c, __u32 class, __u64 now)
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
	c->class = class;
	c->since_ns = now;
}

// The task that leaves is not the one that came: a switch was not shown (the first ever; some kernels hide some
// tasks). It is taken to have happened when the stint began, and nothing to have been stolen.
static __always_inline void resume(struct cpu_state *c, __u32 pid, __u64 exec_ns, __u32 yield_pid, __u64 now)
{
	struct thread_state *thread;

	begin(c, class_of(pid, yield_pid, &thread), c->since_ns);
	c->exec_at_ns = exec_ns - (now - c->since_ns);
}

static __always_inline void forget(__u32 pid)
{
	struct shared_state *all;
	__u32 zero = 0;

	if (bpf_map_delete_elem(&threads, &pid))
		return;
	all = bpf_map_lookup_elem(&shared, &zero);
	if (all)
		__sync_fetch_and_add(&all->died, 1);
}

// A thread of the group is switched out. Its CPU time since it was last is the truth even where a switch was hidden.
static __always_inline __u64 leave_group(struct cpu_state *c, struct task_struct *prev, __u32 pid, __u64 exec)
{
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &pid);
	__u64 total = prev->se.sum_exec_runtime;

	c->work_switches++;
	if (!thread)
		return exec;
	// Less than was known: the entry is of another thread that had this id. Nothing rather than 2^64.
	exec = total > thread->exec_ns ? total - thread->exec_ns : 0;
	thread->exec_ns = total;
	thread->comp_ns += exec;
	if (prev->nvcsw != thread->nvcsw) {
		thread->nvcsw = prev->nvcsw;
		record(&c->histograms[G_COMP], thread->comp_ns);
		thread->comp_ns = 0;
		c->voluntary++;
	} else {
		thread->waking_ns = 0; // a wake-up that found it still running
		c->involuntary++;
	}
	if (prev->exit_state)
		forget(pid);
	return exec;
}

// Closes the stint of `prev`.
static __always_inline void leave(struct cpu_state *c, struct task_struct *prev, __u32 yield_pid, __u64 now)
{
	__u32 pid = prev->pid;
	__u64 total = prev->se.sum_exec_runtime;
	__u64 wall = now - c->since_ns;
	__u64 exec;
	__u32 class;

	if (c->pid != pid || c->class == UNKNOWN)
		resume(c, pid, total, yield_pid, now);
	class = c->class;
	if (class >= CLASSES) // never; the verifier wants to see it
		return;
	exec = class == IDLE ? wall : total - c->exec_at_ns;
	if (class == GROUP)
		exec = leave_group(c, prev, pid, exec);
	if (class >= GROUP)
		c->comp_ns += exec;
	// Displacements only: a yielding thread that sleeps has not been switched away from by anybody.
	if (class == YIELDING && prev->nvcsw == c->yield_nvcsw)
		c->yield_switches++;
	c->wall_ns[class] += wall;
	c->exec_ns[class] += exec;
}

// Opens the stint of `next`; says its class.
static __always_inline __u32 enter(struct cpu_state *c, __u32 cpu, struct task_struct *next, __u32 yield_pid, __u64 now)
{
	struct thread_state *thread;
	__u32 pid = next->pid;
	__u32 class = class_of(pid, yield_pid, &thread);

	if (thread && thread->waking_ns) {
		if (thread->waker_cpu != cpu)
			c->cross_wakeups++;
		if (now > thread->waking_ns)
			record(&c->histograms[WAKE_TO_RUN], now - thread->waking_ns);
		thread->waking_ns = 0;
	}
	begin(c, class, now);
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
	struct cpu_control *control = bpf_map_lookup_elem(&controls, &cpu);
	__u64 now = bpf_ktime_get_ns();
	__u32 class;

	if (!c || !control)
		return 0;
	c->seq++;
	barrier();
	leave(c, prev, control->yield_pid, now);
	class = enter(c, cpu, next, control->yield_pid, now);
	barrier();
	c->seq++;
	if (class >= GROUP && control->armed)
		tell_busy(cpu, control);
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

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 zero = 0, parent_pid = parent->pid, child_pid = child->pid;
	struct shared_state *all = bpf_map_lookup_elem(&shared, &zero);
	struct thread_state born = {};

	if (!all)
		return 0;
	if (!bpf_map_lookup_elem(&threads, &parent_pid)) {
		// A new thread of the owner is no child process.
		if (!all->adopt || parent->tgid != owner_tgid || child->tgid == owner_tgid)
			return 0;
		all->adopt = 0;
	}
	// Its first run is a wake-up by the forking CPU.
	born.waking_ns = bpf_ktime_get_ns();
	born.waker_cpu = bpf_get_smp_processor_id();
	if (bpf_map_update_elem(&threads, &child_pid, &born, BPF_ANY))
		__sync_fetch_and_add(&all->untracked, 1);
	else
		__sync_fetch_and_add(&all->born, 1);
	return 0;
}

// A thread that is not its process's first and calls exec takes over the first one's id, and its entry if that is still
// there.
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid)
{
	__u32 zero = 0, pid = task->pid, old = old_pid;
	struct shared_state *all = bpf_map_lookup_elem(&shared, &zero);
	struct thread_state state = {};
	struct thread_state *known = bpf_map_lookup_elem(&threads, &old);
	__u64 left_over = 0;

	if (bpf_map_lookup_elem(&threads, &pid))
		left_over = 1;
	// A number, or the compiler works with the pointer, which the verifier forbids.
	barrier_var(left_over);
	if (!all)
		return 0;
	if (known) {
		state = *known;
	} else if (left_over) {
		state.exec_ns = task->se.sum_exec_runtime;
		state.nvcsw = task->nvcsw;
	} else {
		return 0;
	}
	__sync_fetch_and_add(&all->execs, 1);
	if (old == pid)
		return 0;
	if (bpf_map_update_elem(&threads, &pid, &state, BPF_ANY) == 0 && !left_over)
		__sync_fetch_and_add(&all->born, 1);
	if (bpf_map_delete_elem(&threads, &old) == 0)
		__sync_fetch_and_add(&all->died, 1);
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
