// SPDX-License-Identifier: GPL-2.0
//
// What each thread of one program did, event by event: created, got a vCPU, left it, was woken and by whom.
//
// Problem: a simulator shall play a real program back, so it needs to know who waited for whom, not only for how long.
// How: the scheduler's own tracepoints, for threads of the group only; everything else costs one look into a hash map.
//
//   fork ---> threads[tid] <--- exec (a thread that is not the first takes over the first one's id)
//                 |
//   switch, waking: reserve --> ring --> user space, which looks every few milliseconds: nobody is woken, for that
//   would
//                                        be seen in the recording
//
// A wake-up has a waker only if the thread that runs does it itself: what an interrupt does while that thread happens
// to run is not its doing. The CPU's preempt count would say so, but kernels without CONFIG_KALLSYMS_ALL do not tell
// where it is; so the tracepoints around timers, devices' handlers and soft interrupts set a flag and take it back.
//
// A full ring loses events, and they are counted. CPU time is the difference to what was last told, not to what last
// happened: so a lost event costs no CPU time.

#include "../bpf/common.bpf.h"

#define TASK_DEAD 0x80

// Kinds of interrupts, as bits.
#define TIMER 1
#define DEVICE 2
#define SOFT 4

#define MAX_THREADS 16384
#define RING_BYTES (16 << 20)

// Kinds of events, as in mod.rs.
#define BORN 1
#define IN 2
#define IN_FROM_IDLE 3
#define OUT_DISPLACED 4
#define OUT_BLOCKED 5
#define OUT_ENDED 6
#define WOKEN 7

struct raw_event {
	__u64 at_ns;
	__u64 ran_ns;
	__u32 tid;
	__u32 other; // parent or waker; 0: nobody who is recorded
	__u32 cpu;
	__u32 kind;
};

struct told {
	__u64 exec_ns; // CPU time that user space knows of
};

struct recorder_state {
	__u32 adopt; // user space: the owner's next child process is the group's first
	__u32 unused;
	__u64 born;
	__u64 died;
	__u64 lost; // events that found the ring full
	__u64 untracked; // threads that found `threads` full
} __attribute__((aligned(64)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct recorder_state);
} recorder SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THREADS);
	__type(key, __u32);
	__type(value, struct told);
} threads SEC(".maps");

// What interrupts each CPU is in. No kind interrupts itself.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} interrupts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES); // user space may make it smaller
} ring SEC(".maps");

// For skeletons: a type that only the ring carries is not in the object otherwise.
struct raw_event unused_event;

// The process that forks the group's first process.
const volatile __u32 owner_tgid = 0;

char LICENSE[] SEC("license") = "GPL";

static __always_inline struct recorder_state *state_of_recorder(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&recorder, &zero);
}

static __always_inline __u32 *interrupts_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&interrupts, &zero);
}

static __always_inline int enters(__u32 kind)
{
	__u32 *here = interrupts_here();

	if (here)
		*here |= kind;
	return 0;
}

static __always_inline int ends(__u32 kind)
{
	__u32 *here = interrupts_here();

	if (here)
		*here &= ~kind;
	return 0;
}

// False: it is lost, and counted.
static __always_inline bool tell(__u32 kind, __u32 tid, __u32 other, __u64 ran_ns)
{
	struct raw_event *event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);
	struct recorder_state *all;

	if (!event) {
		all = state_of_recorder();
		if (all)
			__sync_fetch_and_add(&all->lost, 1);
		return false;
	}
	event->at_ns = bpf_ktime_get_ns();
	event->ran_ns = ran_ns;
	event->tid = tid;
	event->other = other;
	event->cpu = bpf_get_smp_processor_id();
	event->kind = kind;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return true;
}

static __always_inline void leave(struct told *told, bool preempt, struct task_struct *prev, __u32 pid)
{
	__u64 exec = prev->se.sum_exec_runtime;
	__u64 ran = exec > told->exec_ns ? exec - told->exec_ns : 0;
	__u32 state = state_of_task(prev);
	__u32 kind = preempt || !state ? OUT_DISPLACED : state & TASK_DEAD ? OUT_ENDED : OUT_BLOCKED;
	struct recorder_state *all;

	if (tell(kind, pid, 0, ran))
		told->exec_ns = exec;
	if (kind != OUT_ENDED || bpf_map_delete_elem(&threads, &pid))
		return;
	all = state_of_recorder();
	if (all)
		__sync_fetch_and_add(&all->died, 1);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_record_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 prev_pid = prev->pid, next_pid = next->pid;
	struct told *told;

	if (prev_pid) {
		told = bpf_map_lookup_elem(&threads, &prev_pid);
		if (told)
			leave(told, preempt, prev, prev_pid);
	}
	if (next_pid && bpf_map_lookup_elem(&threads, &next_pid))
		tell(prev_pid ? IN : IN_FROM_IDLE, next_pid, 0, 0);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_record_waking, struct task_struct *task)
{
	__u32 pid = task->pid, waker = 0, *here;

	if (!bpf_map_lookup_elem(&threads, &pid))
		return 0;
	here = interrupts_here();
	if (here && !*here) {
		waker = (__u32)bpf_get_current_pid_tgid();
		if (!waker || !bpf_map_lookup_elem(&threads, &waker))
			waker = 0;
	}
	tell(WOKEN, pid, waker, 0);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_record_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_pid = parent->pid, child_pid = child->pid;
	struct recorder_state *all = state_of_recorder();
	struct told born = {};

	if (!all)
		return 0;
	if (!bpf_map_lookup_elem(&threads, &parent_pid)) {
		// A new thread of the owner is no child process.
		if (!all->adopt || parent->tgid != owner_tgid || child->tgid == owner_tgid)
			return 0;
		all->adopt = 0;
		parent_pid = 0;
	}
	if (bpf_map_update_elem(&threads, &child_pid, &born, BPF_ANY)) {
		__sync_fetch_and_add(&all->untracked, 1);
		return 0;
	}
	__sync_fetch_and_add(&all->born, 1);
	tell(BORN, child_pid, parent_pid, 0);
	return 0;
}

// A thread that is not its process's first and calls exec takes over the first one's id.
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_record_exec, struct task_struct *task, int old_pid)
{
	__u32 pid = task->pid, old = old_pid;
	struct recorder_state *all = state_of_recorder();
	struct told state = {};
	struct told *known;

	if (old == pid || !all)
		return 0;
	known = bpf_map_lookup_elem(&threads, &old);
	if (!known)
		return 0;
	state = *known;
	// The first thread has ended, and its entry is gone with it.
	if (bpf_map_update_elem(&threads, &pid, &state, BPF_ANY) == 0)
		bpf_map_delete_elem(&threads, &old);
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_timer_enter)
{
	return enters(TIMER);
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(on_timer_end)
{
	return ends(TIMER);
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_device_enter)
{
	return enters(DEVICE);
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_device_end)
{
	return ends(DEVICE);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_soft_enter)
{
	return enters(SOFT);
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_soft_end)
{
	return ends(SOFT);
}
