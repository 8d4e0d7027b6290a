// SPDX-License-Identifier: GPL-2.0
//
// Polls in the kernel's idle loop, before the vCPU halts.
//
// Problem: waking a halted vCPU costs an interrupt and two VM exits. A waker spares them if the idle task polls its own
// flags, which it says by TIF_POLLING_NRFLAG. How: that flag is set from the head of do_idle() until cpuidle is called.
// A program at the end of tick_nohz_idle_enter(), once an idle period and in between, looks at the flags until they say
// "reschedule", or for at most the vCPU's time-out. Whatever the cpuidle driver is, and without one.
//
//   do_idle: set polling -> tick_nohz_idle_enter -> [poll] -> while (!need_resched) halt -> tick_nohz_idle_exit [learn]
//   -> schedule
//
// The end of that function, not its beginning: from there on the kernel accounts the time as idle, as it is.
//
// Nothing else ends a poll early, and nothing else has to. Wake-ups through the wake list and function calls without an
// interrupt set the same flag (call_function_single_prep_ipi); interrupts are on, so the tick, timers and softirqs go
// on as in the kernel's own poll_idle(). A program runs as an RCU reader, though: grace periods wait for a poll's end.
// Hence TIMEOUT_MAX in Rust.
//
// Lazy rescheduling (6.13 and later) never marks an idle task: __resched_curr() turns the lazy flag into the eager one
// for it. So the one flag that is set at every exit, and not at every entry, is TIF_NEED_RESCHED; Rust learns which bit
// that is here.
//
// There is no PAUSE in BPF. Each look reads the clock (RDTSC behind LFENCE), which leaves an SMT sibling most of the
// core.

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

// Only the fields read here; their offsets come from the running kernel's BTF.
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct thread_info {
	unsigned long flags;
};
struct task_struct {
	struct thread_info thread_info;
	int pid;
};
#pragma clang attribute pop

// Most looks of one poll: a limit that no time-out reaches.
#define LOOKS_MAX (1 << 22)
// The stolen share is over the last SLOTS * slot_ns of polling; it forgets one slot at a time.
#define SLOTS 8

struct guard {
	__u64 slot;
	__u64 stolen_ns[SLOTS];
	__u64 hold_off_ns;
	__u64 stopped_until_ns;
};

// After polls that no wake-up ended the vCPU pauses: level n for 2^(n-1) time-outs. A miss raises the level by
// MISS_LEVELS, a hit lowers it by one, so polling goes on where at least three of four are hits. Where the host is
// short of CPUs a poll keeps the very vCPU off its CPU that is waited for, and the gaps of polls shorter than the
// host's slices say little of it: misses do, and at once.
#define MISS_LEVELS 3
#define LEVEL_MAX 10

// One a CPU. Written by that CPU alone, except timeout_ns, which is user space's.
struct idle_cpu {
	__u64 timeout_ns;
	// When the first interrupt since the last look came; 0: none. Only while `polling`.
	__u64 interrupt_ns;
	__u32 polling;
	// For learning: what the flags had in common at entries and at exits of the idle loop.
	__u32 entries;
	__u64 entry_flags;
	__u64 exit_flags;
	__u32 exits;
	__u32 trips;
	__u64 polls;
	__u64 held;
	__u64 timeouts;
	__u64 polled_ns;
	__u64 stolen_ns;
	// See MISS_LEVELS.
	__u64 paused_until_ns;
	__u64 pause_level;
	struct guard guard;
} __attribute__((aligned(128)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct idle_cpu);
} cpus SEC(".maps");

struct idle_control {
	// The owner's last sign of life, CLOCK_MONOTONIC.
	__u64 heart_ns;
	// The flag that says "reschedule"; 0 until it is learnt, and nobody polls.
	__u64 reschedule_flag;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct idle_control);
} control SEC(".maps");

// Set before loading; Rust's IdlePollParams says what each is.
const volatile __u64 stolen_gap_ns = 200000;
const volatile __u64 slot_ns = 25000000;
const volatile __u64 stolen_stop_ns = 30000000;
const volatile __u64 hold_off_min_ns = 1000000000;
const volatile __u64 hold_off_max_ns = 30000000000;
const volatile __u64 heart_stops_ns = 2000000000;

// A poll, kept on the stack.
struct poll {
	struct task_struct *task;
	struct idle_cpu *cpu;
	__u64 last_ns;
	__u64 end_ns;
	__u64 stolen_ns;
	__u64 flag;
	__u32 index;
	__u32 held;
};

static __always_inline __u64 flags_of(struct task_struct *task)
{
	return *(volatile unsigned long *)&task->thread_info.flags;
}

static __always_inline struct idle_cpu *cpu_at(__u32 index)
{
	return bpf_map_lookup_elem(&cpus, &index);
}

// Adds a gap and says whether too much has been stolen of late: then the vCPU does not poll for a while.
__attribute__((noinline)) int on_gap(__u32 index, __u64 now, __u64 stolen, __u64 polled)
{
	struct idle_cpu *cpu = cpu_at(index);
	__u64 slot, passed, sum = 0;
	struct guard *guard;

	if (!cpu || !slot_ns)
		return 0;
	guard = &cpu->guard;
	slot = polled / slot_ns;
	passed = slot - guard->slot;
	if (passed > SLOTS)
		passed = SLOTS;
	for (__u32 back = 0; back < SLOTS; back++) {
		if (back < passed)
			guard->stolen_ns[(slot - back) % SLOTS] = 0;
	}
	guard->slot = slot;
	guard->stolen_ns[slot % SLOTS] += stolen;
	for (__u32 i = 0; i < SLOTS; i++)
		sum += guard->stolen_ns[i];
	if (sum <= stolen_stop_ns)
		return 0;
	// It starts small again where it polled in peace for longer than it was stopped last.
	if (!guard->hold_off_ns || now - guard->stopped_until_ns > guard->hold_off_ns)
		guard->hold_off_ns = hold_off_min_ns;
	else
		guard->hold_off_ns *= 2;
	if (guard->hold_off_ns > hold_off_max_ns)
		guard->hold_off_ns = hold_off_max_ns;
	guard->stopped_until_ns = now + guard->hold_off_ns;
	for (__u32 i = 0; i < SLOTS; i++)
		guard->stolen_ns[i] = 0;
	cpu->trips++;
	return 1;
}

// One look; says whether the poll is over. What lies between two looks and began before an interrupt did is stolen
// time; from its first interrupt on the vCPU worked.
static long look(__u32 turn, struct poll *poll)
{
	__u64 flags = flags_of(poll->task), now = bpf_ktime_get_ns();
	__u64 last = poll->last_ns, interrupt;

	poll->last_ns = now;
	interrupt = *(volatile __u64 *)&poll->cpu->interrupt_ns;
	// One that came after this look belongs to the next.
	if (interrupt && interrupt <= now)
		*(volatile __u64 *)&poll->cpu->interrupt_ns = 0;
	else
		interrupt = now;
	if (interrupt > last + stolen_gap_ns) {
		__u64 polled = poll->cpu->polled_ns + poll->cpu->stolen_ns;

		poll->stolen_ns += interrupt - last;
		if (on_gap(poll->index, now, interrupt - last, polled))
			return 1;
	}
	if (flags & poll->flag) {
		poll->held = 1;
		return 1;
	}
	return now >= poll->end_ns;
}

// What is to be polled for how long, or nothing.
static __always_inline bool begin(struct poll *poll)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 zero = 0, index = bpf_get_smp_processor_id();
	struct idle_control *owner = bpf_map_lookup_elem(&control, &zero);
	struct idle_cpu *cpu = cpu_at(index);
	__u64 flags, now;

	// Idle injection runs do_idle() in threads of its own: those are there to halt.
	if (!cpu || !owner || task->pid)
		return false;
	flags = flags_of(task);
	if (!owner->reschedule_flag) {
		cpu->entry_flags = cpu->entries ? cpu->entry_flags & flags : flags;
		cpu->entries++;
		return false;
	}
	// A wake-up that came before the first look.
	if (!cpu->timeout_ns || flags & owner->reschedule_flag)
		return false;
	now = bpf_ktime_get_ns();
	// Ahead of this clock is the sign of life of an owner with another one (a time namespace): it could not be seen to
	// hang.
	if (now - owner->heart_ns + heart_stops_ns > 2 * heart_stops_ns)
		return false;
	if (now < cpu->guard.stopped_until_ns || now < cpu->paused_until_ns)
		return false;
	poll->task = task;
	poll->cpu = cpu;
	poll->index = index;
	poll->flag = owner->reschedule_flag;
	poll->last_ns = now;
	poll->end_ns = now + cpu->timeout_ns;
	poll->stolen_ns = 0;
	poll->held = 0;
	cpu->interrupt_ns = 0;
	cpu->polling = 1;
	return true;
}

static __always_inline void end(struct poll *poll, __u64 began_ns)
{
	struct idle_cpu *cpu = poll->cpu;
	__u64 level = cpu->pause_level;

	cpu->polling = 0;
	cpu->polls++;
	cpu->polled_ns += poll->last_ns - began_ns - poll->stolen_ns;
	cpu->stolen_ns += poll->stolen_ns;
	if (poll->held) {
		cpu->held++;
		if (level)
			level--;
	} else {
		cpu->timeouts++;
		level += MISS_LEVELS;
		if (level > LEVEL_MAX)
			level = LEVEL_MAX;
	}
	cpu->pause_level = level;
	cpu->paused_until_ns = level ? poll->last_ns + (cpu->timeout_ns << (level - 1)) : 0;
}

SEC("fexit/tick_nohz_idle_enter")
int on_idle_enter(void *ctx)
{
	struct poll poll;
	__u64 began_ns;

	if (!begin(&poll))
		return 0;
	began_ns = poll.last_ns;
	bpf_loop(LOOKS_MAX, look, &poll, 0);
	end(&poll, began_ns);
	return 0;
}

// Only until the flag is learnt.
SEC("fentry/tick_nohz_idle_exit")
int on_idle_exit(void *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	struct idle_cpu *cpu = cpu_at(bpf_get_smp_processor_id());
	__u64 flags;

	if (!cpu || task->pid)
		return 0;
	flags = flags_of(task);
	cpu->exit_flags = cpu->exits ? cpu->exit_flags & flags : flags;
	cpu->exits++;
	return 0;
}

// Tells interrupts from stolen time. They are work, but only from their beginning: a vCPU that comes back after it was
// preempted finds an interrupt waiting, and its being there explains nothing.
SEC("fentry/irq_enter_rcu")
int on_interrupt(void *ctx)
{
	struct idle_cpu *cpu = cpu_at(bpf_get_smp_processor_id());

	if (cpu && cpu->polling && !cpu->interrupt_ns)
		cpu->interrupt_ns = bpf_ktime_get_ns();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
