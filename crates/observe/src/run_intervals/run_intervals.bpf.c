// SPDX-License-Identifier: GPL-2.0
//
// How long watched threads ran each time, how each run ended, and where they compete for a CPU.
//
// Problem: what slice did a vCPU thread really get? How: one struct per watched thread in memory that user space maps.
// A run interval ends when the thread sleeps, or when another thread takes its CPU although it wants to go on
// (preemption; sched_yield cannot be told from it).
//
//   UNKNOWN --enter--> RUNNING --leave, sleeps--> ASLEEP --enter--> RUNNING
//                      RUNNING --leave, a normal task comes--> PREEMPTED --enter--> RUNNING
//                      RUNNING --leave, a real-time task comes--> INTERRUPTED --enter--> RUNNING
//
// A real-time task that comes in between ends nothing if the same thread goes on afterwards: the tickers that enforce
// slices are such tasks, and an interval shall not end at every tick of a CPU that only one thread wants. Only when
// another thread runs after it was the interval ended, when the real-time task came.
//
// Competition: a thread was left able to run while another took its CPU, one of the two is watched, and the one that
// came is no kernel thread (those come for microseconds). User space reads when that was last seen on each CPU, or is
// told through `ring` if it has armed it.

#define PF_KTHREAD 0x00200000
// Real-time and deadline tasks have a priority below this.
#define MAX_RT_PRIO 100

// Log-linear buckets of 256 ns and more, 32 to an octave (3 %), up to 2^34 ns (17 s); see distribution.rs.
#define UNIT_BITS 8
#define SUB_BUCKET_BITS 5
#define BUCKETS 704
#include "../bpf/common.bpf.h"

#define RING_BYTES 4096
#define MAX_SLOTS 65536

#define UNKNOWN 0
#define RUNNING 1
#define INTERRUPTED 2
#define PREEMPTED 3
#define ASLEEP 4

struct watched_thread {
	__u64 seq; // odd while a writer is inside
	__u64 run_since_ns; // the interval in progress; 0: not known
	__u64 off_ns; // when it last left its CPU although it wanted to run
	__u64 waking_ns; // when it was last woken, 0 once it ran
	__u32 cpu;
	__u32 phase;
	__u64 burst_ns; // run since it last woke up, the interval in progress apart
	__u64 unused[2];
	struct histogram preempted; // run intervals that ended by preemption
	struct histogram slept; // run intervals that ended by sleeping
	struct histogram bursts; // all that it ran between a wake-up and the sleep that ended it
	struct histogram wake_to_run;
	struct histogram off_preempted; // from a preemption to running again
} __attribute__((aligned(64)));

struct cpu_competition {
	__u64 competing_ns; // when competition was last seen
	__u32 last_pid; // the normal task that ran last
	__u32 last_runnable; // it was displaced by a real-time task, and wants to go on
	__u32 last_watched;
	__u32 unused[11];
} __attribute__((aligned(64)));

struct competition_control {
	__u32 armed; // cleared here when competition is seen, and then told through the ring
	__u32 unused[15];
} __attribute__((aligned(64)));

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SLOTS); // user space: as many as slots
	__type(key, __u32); // thread id
	__type(value, __u32); // its slot
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); // user space
	__type(key, __u32);
	__type(value, struct watched_thread);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); // user space: possible CPUs
	__type(key, __u32);
	__type(value, struct cpu_competition);
} competition SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct competition_control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} ring SEC(".maps");

char LICENSE[] SEC("license") = "GPL";

static __always_inline void record(struct histogram *histogram, __u64 value)
{
	record_scaled(histogram, value, value >> UNIT_BITS);
}

static __always_inline struct watched_thread *find(__u32 pid)
{
	__u32 *slot = pid ? bpf_map_lookup_elem(&slots, &pid) : 0;

	return slot ? bpf_map_lookup_elem(&watched, slot) : 0;
}

static __always_inline void leave(struct watched_thread *t, bool runnable, bool to_rt, __u64 now)
{
	__u64 ran = now - t->run_since_ns;
	bool known = t->run_since_ns && now > t->run_since_ns;

	t->seq++;
	barrier();
	if (!runnable) {
		if (known) {
			record(&t->slept, ran);
			record(&t->bursts, t->burst_ns + ran);
		}
		t->burst_ns = 0;
		t->phase = ASLEEP;
		// A wake-up that found it still running; a waker on another CPU may be a moment ahead of this switch.
		if (now - t->waking_ns > 20000)
			t->waking_ns = 0;
	} else {
		t->waking_ns = 0;
		t->off_ns = now;
		if (!to_rt && known) {
			record(&t->preempted, ran);
			t->burst_ns += ran;
		}
		t->phase = to_rt ? INTERRUPTED : PREEMPTED;
	}
	barrier();
	t->seq++;
}

static __always_inline void enter(struct watched_thread *t, __u32 cpu, bool ran_last, __u64 now)
{
	t->seq++;
	barrier();
	if (t->phase == INTERRUPTED && t->cpu == cpu && ran_last) {
		if (t->run_since_ns)
			t->run_since_ns += now - t->off_ns;
	} else {
		if (t->phase == INTERRUPTED && t->run_since_ns && t->off_ns > t->run_since_ns) {
			record(&t->preempted, t->off_ns - t->run_since_ns);
			t->burst_ns += t->off_ns - t->run_since_ns;
		}
		if ((t->phase == INTERRUPTED || t->phase == PREEMPTED) && now > t->off_ns)
			record(&t->off_preempted, now - t->off_ns);
		else if (t->phase == ASLEEP && t->waking_ns && now > t->waking_ns)
			record(&t->wake_to_run, now - t->waking_ns);
		t->run_since_ns = now;
	}
	t->waking_ns = 0;
	t->cpu = cpu;
	t->phase = RUNNING;
	barrier();
	t->seq++;
}

static __always_inline void tell_competition(struct cpu_competition *c, __u64 now)
{
	struct competition_control *control_word;
	__u32 zero = 0;
	__u64 word = 1;

	c->competing_ns = now;
	control_word = bpf_map_lookup_elem(&control, &zero);
	if (!control_word || !control_word->armed)
		return;
	control_word->armed = 0;
	bpf_ringbuf_output(&ring, &word, sizeof(word), BPF_RB_FORCE_WAKEUP);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_interval_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 cpu = bpf_get_smp_processor_id(), prev_pid = prev->pid, next_pid = next->pid;
	struct cpu_competition *c = bpf_map_lookup_elem(&competition, &cpu);
	bool from_rt = prev->prio < MAX_RT_PRIO, to_rt = next->prio < MAX_RT_PRIO;
	bool runnable = prev_pid && (preempt || !state_of_task(prev));
	struct watched_thread *t;
	__u64 now = bpf_ktime_get_ns();
	__u32 last_pid, last_runnable, last_watched;

	if (!c)
		return 0;
	t = find(prev_pid);
	if (t)
		leave(t, runnable, to_rt, now);
	last_pid = from_rt ? c->last_pid : prev_pid;
	last_runnable = from_rt ? c->last_runnable : runnable;
	last_watched = from_rt ? c->last_watched : t != 0;
	c->last_runnable = last_runnable;
	c->last_watched = last_watched;
	c->last_pid = last_pid;
	if (to_rt)
		return 0;
	t = find(next_pid);
	if (t)
		enter(t, cpu, last_pid == next_pid, now);
	if (last_runnable && next_pid && next_pid != last_pid && (last_watched || t) && !(next->flags & PF_KTHREAD))
		tell_competition(c, now);
	c->last_runnable = 0;
	c->last_pid = next_pid;
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_interval_waking, struct task_struct *task)
{
	struct watched_thread *t = find(task->pid);

	if (t)
		t->waking_ns = bpf_ktime_get_ns();
	return 0;
}
