// SPDX-License-Identifier: GPL-2.0
//
// How many threads of a group run or wait to run. See gleaner.bpf.c.
#pragma once

static __always_inline bool is_counted(struct group_state *g, struct thread_state *thread)
{
	return thread->counted == g->epoch;
}

// A thread of the group can run.
static __always_inline void runs_more(struct group_state *g, struct thread_state *thread, __u64 now)
{
	__u64 epoch = g->epoch;

	// Two vCPUs may come here with the same thread. One of them counts it.
	if (epoch && !is_counted(g, thread) && __sync_lock_test_and_set(&thread->counted, epoch) != epoch)
		__sync_fetch_and_add(&g->runnable, 1);
	if (g->watched)
		notes_more(g, thread->group, now);
}

// It cannot any more.
static __always_inline void runs_less(struct group_state *g, struct thread_state *thread)
{
	__u64 epoch = g->epoch;

	if (!epoch || !is_counted(g, thread) || __sync_lock_test_and_set(&thread->counted, 0) != epoch)
		return;
	__sync_fetch_and_add(&g->runnable, -1);
	if (g->watched)
		notes_less(g);
}
