// SPDX-License-Identifier: GPL-2.0
//
// Concurrency: how many threads of a group run or wait to run at once, and for how long how many. See gleaner.bpf.c.
//
// One word counts them. Which level a thread crosses is what that word was, so the order of vCPUs does not matter. When
// it crosses goes into sums that each vCPU has of its own: time at a level is the sum of the moments when it was left
// less those when it was reached. The same sum says, in its low byte, whether the level is reached now.
#pragma once

static __always_inline __u64 crossing(__u64 now)
{
	return (now << LEVEL_BITS) + 1;
}

// `c`: what the group did on this CPU, with interrupts off; 0 where that is not so.
static __always_inline void crosses(struct group_state *g, struct group_cpu *c, __u64 level, __u64 amount)
{
	// As in record_scaled: what is checked is what is used.
	barrier_var(level);
	if (level >= LEVELS)
		return;
	barrier_var(level);
	if (c)
		c->crossings[level] += amount;
	else
		__sync_fetch_and_add(&g->crossings[level], amount);
}

static __always_inline bool is_counted(struct group_state *g, struct thread_state *thread)
{
	return thread->counted == g->epoch;
}

// A thread of the group can run.
static __always_inline void runs_more(struct group_state *g, struct group_cpu *c, struct thread_state *thread,
				      __u64 now)
{
	__u64 epoch = g->epoch;

	// Two vCPUs may come here with the same thread. One of them counts it.
	if (epoch && !is_counted(g, thread) && __sync_lock_test_and_set(&thread->counted, epoch) != epoch)
		crosses(g, c, __sync_fetch_and_add(&g->runnable, 1), crossing(now));
	if (g->watched)
		notes_more(g, thread->group, now);
}

// It cannot any more.
static __always_inline void runs_less(struct group_state *g, struct group_cpu *c, struct thread_state *thread,
				      __u64 now)
{
	__u64 epoch = g->epoch;

	if (!epoch || !is_counted(g, thread) || __sync_lock_test_and_set(&thread->counted, 0) != epoch)
		return;
	crosses(g, c, __sync_fetch_and_add(&g->runnable, -1) - 1, -crossing(now));
	if (g->watched)
		notes_less(g);
}
