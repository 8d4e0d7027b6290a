// SPDX-License-Identifier: GPL-2.0
//
// How many system calls some processes make: what stays the same where the kernel runs their threads elsewhere.
//
// A program does a piece of work by the same calls wherever its threads run. What changes with the place is how often
// a thread finds a lock taken: it then waits for it (FUTEX_WAIT) and is woken from it (FUTEX_WAKE). So those are
// counted apart. A wait on a condition or a semaphore is FUTEX_WAIT_BITSET, and seldom spared. Who yields or sleeps
// waits, and does so more often where it waits longer: that is not counted.
#include "../bpf/processes.bpf.h"

#define WAIT_BUCKETS 64
#define FUTEX_COMMAND 0x7f
#define FUTEX_WAIT 0
#define FUTEX_WAKE 1

char LICENSE[] SEC("license") = "GPL";

struct call_counts {
	__u64 steady;
	__u64 lock_waits;
	__u64 wakes;
	__u64 waits_at[WAIT_BUCKETS]; // but for locks, by the word that is waited for
} __attribute__((aligned(64)));

// By CPU.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); // user space: possible CPUs
	__type(key, __u32);
	__type(value, struct call_counts);
} call_counts SEC(".maps");

const volatile __u32 nr_futex = 202;
const volatile __u32 nr_sched_yield = 24;
const volatile __u32 nr_nanosleep = 35;
const volatile __u32 nr_clock_nanosleep = 230;

// Where the first two arguments stand in what the entry saved: an ABI (arch/*/include/uapi/asm/ptrace.h). Asking BTF
// for it would make the library parse the kernel's, which takes 40 ms.
struct arguments {
#if defined(__TARGET_ARCH_arm64)
#define ARGUMENTS_AT 0
	__u64 first;
	__u64 second;
#else
#define ARGUMENTS_AT 104
	__u64 second;
	__u64 first;
#endif
};

// The two words that a condition of glibc's alternates between have one bucket.
static __always_inline __u32 bucket_of(__u64 address, __u32 tgid)
{
	__u64 word = address >> 3 ^ (__u64)tgid << 32;

	return word * 0x9e3779b97f4a7c15ULL >> 58;
}

static __always_inline int is_waiting(__u64 call)
{
	return call == nr_sched_yield || call == nr_nanosleep || call == nr_clock_nanosleep;
}

SEC("raw_tp/sys_enter")
int on_system_call(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32, cpu = bpf_get_smp_processor_id();
	struct arguments arguments = {};
	struct call_counts *counts;
	__u32 command;

	if (!is_counted(tgid))
		return 0;
	counts = bpf_map_lookup_elem(&call_counts, &cpu);
	if (!counts)
		return 0;
	if (ctx->args[1] != nr_futex) {
		if (!is_waiting(ctx->args[1]))
			counts->steady++;
		return 0;
	}
	bpf_probe_read_kernel(&arguments, sizeof(arguments), (void *)(ctx->args[0] + ARGUMENTS_AT));
	command = arguments.second & FUTEX_COMMAND;
	switch (command) {
	case FUTEX_WAIT:
		counts->lock_waits++;
		break;
	case FUTEX_WAKE:
		counts->wakes++;
		break;
	default:
		counts->waits_at[bucket_of(arguments.first, tgid) & (WAIT_BUCKETS - 1)]++;
	}
	return 0;
}
