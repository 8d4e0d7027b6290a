// SPDX-License-Identifier: GPL-2.0
//
// Who wakes whom, thread by thread, among some processes.
//
// A wake-up is the doing of the thread that runs where it happens. What an interrupt wakes meanwhile counts as that
// thread's too: it is the interrupted one by chance, so such ties are weak.
//
// Nothing here asks the kernel's BTF, whose parse takes 40 ms. Where a task's ids stand is learnt: see `learn`.
#include "../bpf/processes.bpf.h"

#define PAIRS 1024
#define TASK_BYTES 4096

char LICENSE[] SEC("license") = "GPL";

struct ids {
	__u32 pid;
	__u32 tgid;
};

struct pair {
	__u32 waker;
	__u32 woken;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PAIRS);
	__type(key, struct pair);
	__type(value, __u64);
} pairs SEC(".maps");

// What `learn` saw: the ids of the task that ran it, and that task's first bytes.
struct ids own = {};
__u8 task[TASK_BYTES] = {};
// User space: where `struct ids` stands in a task.
__u32 ids_at = 0;

SEC("raw_tp")
int learn(void *ctx)
{
	__u64 both = bpf_get_current_pid_tgid();

	own.pid = (__u32)both;
	own.tgid = both >> 32;
	return bpf_probe_read_kernel(task, sizeof(task), (void *)bpf_get_current_task());
}

SEC("raw_tp/sched_waking")
int on_waking(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 both = bpf_get_current_pid_tgid(), one = 1, *wakes;
	__u32 tgid = both >> 32;
	struct ids woken = {};
	struct pair pair = {};

	// The idle task is of nobody's process: an interrupt wakes there.
	if (!tgid || !is_counted(tgid))
		return 0;
	if (bpf_probe_read_kernel(&woken, sizeof(woken), (void *)(ctx->args[0] + ids_at)))
		return 0;
	if (woken.tgid != tgid && !is_counted(woken.tgid))
		return 0;
	pair.waker = (__u32)both;
	pair.woken = woken.pid;
	wakes = bpf_map_lookup_elem(&pairs, &pair);
	if (wakes)
		__sync_fetch_and_add(wakes, 1);
	else
		bpf_map_update_elem(&pairs, &pair, &one, BPF_ANY);
	return 0;
}
