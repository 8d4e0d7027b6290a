// A trial: a sched_ext scheduler that does one thing. Each task has the slice of its process (`slices`, by tgid; else
// `other_ns`), waits in one queue a CPU, first come first served, and is switched away from by a timer of that CPU.
// Whoever wakes goes to the head if `wakers_first`.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;

struct cpumask;
struct task_struct {
	int pid, tgid;
	const struct cpumask *cpus_ptr;
	int nr_cpus_allowed;
	unsigned int flags;
} __attribute__((preserve_access_index));
struct scx_exit_info;
struct scx_init_task_args;

struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *ei);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

#define SCX_DSQ_LOCAL ((u64)0x8000000000000002ULL)
#define SCX_ENQ_WAKEUP 1ULL
#define SCX_ENQ_HEAD (1ULL << 16)
#define SCX_ENQ_PREEMPT (1ULL << 32)
#define SCX_KICK_PREEMPT 2ULL
#define SCX_OPS_SWITCH_PARTIAL (1ULL << 3)

void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq, u64 slice, u64 flags) __ksym;
_Bool scx_bpf_dsq_move_to_local(u64 dsq) __ksym;
s32 scx_bpf_create_dsq(u64 dsq, s32 node) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;

#define CPUS 64
const volatile u64 slice_ns = 1000000;
const volatile u32 cpus = 1;
const volatile u32 wakers_first = 1;
u64 kicks, exit_code;
s32 errors[4];
// When the task that a CPU runs was put there.
u64 since[CPUS];
u32 ready;

struct timed {
	struct bpf_timer timer;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CPUS);
	__type(key, u32);
	__type(value, struct timed);
} timers SEC(".maps");

char LICENSE[] SEC("license") = "GPL";

static int tick(void *map, u32 *key, struct timed *value)
{
	u32 cpu = *key;
	u64 next = slice_ns, ran;

	if (cpu < CPUS && scx_bpf_dsq_nr_queued(cpu) > 0) {
		ran = bpf_ktime_get_ns() - since[cpu];
		if (ran + slice_ns / 16 >= slice_ns) {
			kicks++;
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		} else {
			next = slice_ns - ran;
		}
	}
	bpf_timer_start(&value->timer, next, (1ULL << 1) /* BPF_F_TIMER_CPU_PIN */);
	return 0;
}

// A timer is of the CPU that starts it: run on each.
SEC("syscall")
int start(void *ctx)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct timed *t = bpf_map_lookup_elem(&timers, &cpu);

	if (!t)
		return 1;
	errors[0] = bpf_timer_init(&t->timer, &timers, 1 /* CLOCK_MONOTONIC */);
	errors[1] = bpf_timer_set_callback(&t->timer, tick);
	errors[2] = bpf_timer_start(&t->timer, slice_ns, 1ULL << 1);
	return errors[2];
}

SEC("struct_ops/select")
s32 BPF_PROG(on_select, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

SEC("struct_ops/enqueue")
void BPF_PROG(on_enqueue, struct task_struct *p, u64 flags)
{
	s32 cpu = scx_bpf_task_cpu(p);

	if (wakers_first && (flags & SCX_ENQ_WAKEUP)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, flags | SCX_ENQ_PREEMPT);
		return;
	}
	scx_bpf_dsq_insert(p, cpu, slice_ns, flags);
}

SEC("struct_ops/dispatch")
void BPF_PROG(on_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(cpu);
}

SEC("struct_ops/running")
void BPF_PROG(on_running, struct task_struct *p)
{
	u32 cpu = bpf_get_smp_processor_id();

	if (cpu < CPUS)
		since[cpu] = bpf_ktime_get_ns();
}

SEC("struct_ops.s/init")
s32 BPF_PROG(on_init)
{
	s32 error = 0;

	for (u32 cpu = 0; cpu < CPUS && cpu < cpus && !error; cpu++)
		error = scx_bpf_create_dsq(cpu, -1);
	return error;
}

SEC("struct_ops/exit")
void BPF_PROG(on_exit, struct scx_exit_info *ei)
{
	exit_code = 1;
}

SEC(".struct_ops.link")
struct sched_ext_ops slices = {
	.select_cpu = (void *)on_select,
	.enqueue = (void *)on_enqueue,
	.dispatch = (void *)on_dispatch,
	.running = (void *)on_running,
	.init = (void *)on_init,
	.exit = (void *)on_exit,
	.name = "gleaner_slices",
};
