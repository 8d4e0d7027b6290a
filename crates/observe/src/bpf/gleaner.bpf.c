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
//                                   +--> bursts, only while a group is packed (groups[group].watched)
//
// User space reads what has changed: a CPU says by `seq` that it switched, and by a bit a group that it counted for it.
//
// A task is idle (pid 0), yielding (the thread user space named for this CPU), of a group (in `threads`, which says
// of which), or other. "Working" means group or other. Idle periods lie between two working tasks; see
// gleaner_model::window.
//
// A thread's group is its parent's. Where groups are cgroups, it follows the thread into another cgroup. Threads that
// were there before are entered by user space.
//
// Threads of a group that run or could are counted. While it has fewer vCPUs than it may, more threads than vCPUs for
// longer than user space says are a burst. No tracepoint comes when nothing happens, so a timer looks: the
// first thread too many starts it. It fires at most once in two such times, whatever comes and goes meanwhile.
//
// Deliberately absent: sched_process_exit (an entry is deleted when its thread is switched out for the last time, so
// that its last stint still counts), sched_wakeup (sched_waking runs on the waker's own CPU, which is what makes a
// wake-up "cross"; the switch-in says where the thread went).

// The layout of gleaner_model::bucket_index (a test feeds both the same values), cut at 2^40 ns (18 minutes): longer
// ones share the last bucket.
#define SUB_BUCKET_BITS 3
#define BUCKETS 312
#include "common.bpf.h"

#include "maps.bpf.h"

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

#include "bursts.bpf.h"
#include "runnable.bpf.h"

static __always_inline struct group_cpu *of_group(__u32 group, struct cpu_state *c)
{
	__u32 index = group * places + c->place - 1;

	return c->place ? bpf_map_lookup_elem(&group_cpus, &index) : 0;
}

// User space is to look at what was counted of the group here. Only this CPU sets bits, with interrupts off, so what
// user space takes meanwhile is at worst told twice.
static __always_inline void touch(struct cpu_state *c, __u32 group)
{
	__u64 word = group / 64;

	// As in record_scaled: what is checked is what is used.
	barrier_var(word);
	if (word >= GROUP_WORDS)
		return;
	barrier_var(word);
	c->touched[word] |= 1ULL << (group % 64);
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
static __always_inline void begin(struct cpu_state *c, __u32 class, struct thread_state *thread, bool by_interrupt,
				  __u64 now)
{
	if (class == IDLE)
		c->halts++;
	if (class >= GROUP) {
		if (c->idle_since_ns) {
			record(&c->histograms[L_IDLE], now - c->idle_since_ns);
			c->interrupts += by_interrupt;
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

	begin(c, class, thread, false, c->since_ns);
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
	group = bpf_map_lookup_elem(&groups, &of);
	if (group)
		runs_less(group, thread);
	if (bpf_map_delete_elem(&threads, &pid))
		return;
	if (group)
		__sync_fetch_and_add(&group->died, 1);
}

// A thread of a group is switched out. Its CPU time since it was last is the truth even where a switch was hidden.
static __always_inline __u64 leave_group(struct group_cpu *g, struct task_struct *prev, __u64 exec)
{
	__u32 pid = prev->pid, group;
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &pid);
	struct group_state *of;
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
			group = thread->group;
			of = bpf_map_lookup_elem(&groups, &group);
			if (of)
				runs_less(of, thread);
		} else {
			thread->waking_ns = 0; // a wake-up that found it still running
			g->involuntary++;
		}
	}
	g->exec_ns += exec;
	return exec;
}

// Closes the stint of `prev`; says for how long it worked.
static __always_inline __u64 leave(struct cpu_state *c, struct task_struct *prev, __u64 now)
{
	struct group_cpu *g;
	__u32 pid = prev->pid;
	__u64 total = prev->se.sum_exec_runtime;
	__u64 exec;

	if (c->pid != pid || c->class == UNKNOWN)
		resume(c, pid, total, now);
	if (c->class <= IDLE) {
		c->halted_ns += now - c->since_ns;
		return 0;
	}
	exec = total - c->exec_at_ns;
	if (c->class == YIELDING) {
		c->yield_ns += exec;
		// Displacements only: a yielding thread that sleeps has not been switched away from by anybody.
		if (prev->nvcsw == c->yield_nvcsw)
			c->yield_switches++;
		return 0;
	}
	if (c->class == GROUP) {
		g = of_group(c->group, c);
		if (g) {
			touch(c, c->group);
			exec = leave_group(g, prev, exec);
		}
	}
	c->comp_ns += exec;
	// Also one that user space entered while it ran.
	if (prev->exit_state)
		forget(pid);
	return exec;
}

// A thread of a packed group runs, after another task had worked here for `held_ns`.
static __always_inline void comes(struct group_state *g, struct thread_state *thread, __u64 held_ns, __u64 now)
{
	__u64 delay = thread->waking_ns && now > thread->waking_ns ? now - thread->waking_ns : 0;

	// What the hypervisor took is in the delay, and not in what the other task was charged.
	if (delay > held_ns)
		delay = held_ns;
	if (delay >= g->delay_ns)
		report_burst(g, now, 0, delay);
}

// Opens the stint of `next`; says its class. `held_ns`: for how long a task worked here until now.
static __always_inline __u32 enter(struct cpu_state *c, __u32 cpu, struct task_struct *next, __u64 held_ns, __u64 now)
{
	struct thread_state *thread;
	struct group_state *of = 0;
	struct group_cpu *g;
	__u32 pid = next->pid, group;
	__u32 class = class_of(pid, c->yield_pid, &thread);
	bool by_interrupt = thread && thread->waking_ns ? thread->by_interrupt : c->woken_pid == pid;

	if (thread) {
		group = thread->group;
		of = bpf_map_lookup_elem(&groups, &group);
	}
	// It was counted when it was woken, but for one that could run already when counting began.
	if (of)
		runs_more(of, thread, now);
	if (of && of->watched)
		comes(of, thread, held_ns, now);

	if (thread && thread->waking_ns) {
		g = of_group(thread->group, c);
		if (g) {
			touch(c, thread->group);
			if (thread->waker_cpu != cpu)
				g->cross_wakeups++;
			if (now > thread->waking_ns)
				record(&g->histograms[WAKE_TO_RUN], now - thread->waking_ns);
		}
		thread->waking_ns = 0;
	}
	begin(c, class, thread, by_interrupt, now);
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
	__u64 now = bpf_ktime_get_ns(), held;
	__u32 class;

	if (!c)
		return 0;
	c->seq++;
	barrier();
	held = leave(c, prev, now);
	class = enter(c, cpu, next, held, now);
	barrier();
	c->seq++;
	if (class >= GROUP && c->armed)
		tell_busy(cpu, c);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	__u32 pid = task->pid, cpu = bpf_get_smp_processor_id();
	struct cpu_state *c = bpf_map_lookup_elem(&cpus, &cpu);
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &pid);
	// No task computes here: it is an interrupt that wakes.
	bool by_interrupt = c && (c->class == IDLE || c->class == YIELDING);
	struct group_state *of;
	__u32 group;

	if (by_interrupt)
		c->woken_pid = pid;
	if (!thread)
		return 0;
	thread->by_interrupt = by_interrupt;
	thread->waker_cpu = cpu;
	thread->waking_ns = bpf_ktime_get_ns();
	group = thread->group;
	of = bpf_map_lookup_elem(&groups, &group);
	if (of)
		runs_more(of, thread, thread->waking_ns);
	return 0;
}

// A new thread can run.
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_waking_new, struct task_struct *task)
{
	__u32 pid = task->pid, group;
	struct thread_state *thread = bpf_map_lookup_elem(&threads, &pid);
	struct group_state *of;

	if (!thread)
		return 0;
	group = thread->group;
	of = bpf_map_lookup_elem(&groups, &group);
	if (of)
		runs_more(of, thread, bpf_ktime_get_ns());
	return 0;
}

#include "members.bpf.h"

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
