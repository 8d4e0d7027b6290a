// SPDX-License-Identifier: GPL-2.0
//
// Bursts: a packed group has more threads that could run than vCPUs. See gleaner.bpf.c.
#pragma once

static __always_inline void report_burst(struct group_state *g, __u64 now, __u64 lasted_ns, __u64 delay_ns)
{
	__u64 record = 1;

	if (g->reported)
		return;
	g->reported = 1;
	g->burst_at_ns = now;
	g->burst_runnable = g->runnable;
	g->burst_lasted_ns = lasted_ns;
	g->burst_delay_ns = delay_ns;
	barrier();
	bpf_ringbuf_output(&bursts, &record, sizeof(record), BPF_RB_FORCE_WAKEUP);
}

static __always_inline void look_in(struct burst_timer *t, __u64 now, __u64 ns)
{
	t->pending = 1;
	t->due_ns = now + ns;
	if (bpf_timer_start(&t->timer, ns, timer_flags))
		t->pending = 0;
}

// The timer of a group that has had too few vCPUs for a while, or not any more.
static int on_timer(void *map, __u32 *group, struct burst_timer *t)
{
	struct group_state *g;
	__u64 now = bpf_ktime_get_ns(), lasted;
	__u32 key = *group;

	t->pending = 0;
	t->fired_ns = now;
	g = bpf_map_lookup_elem(&groups, &key);
	if (!g || !g->watched || g->runnable <= g->watched)
		return 0;
	// Late: the hypervisor had taken the vCPU, and nothing ran that could have made room.
	if (!g->since_ns || now - t->due_ns > g->after_ns / 2)
		g->since_ns = now;
	lasted = now - g->since_ns;
	if (lasted >= g->after_ns)
		report_burst(g, now, lasted, 0);
	// Also after a report: user space may find it too little, and nobody may come or go meanwhile.
	look_in(t, now, lasted >= g->after_ns ? 2 * g->after_ns : g->after_ns - lasted);
	return 0;
}

// One more thread of a packed group can run, or the same as before.
static __always_inline void notes_more(struct group_state *g, __u32 group, __u64 now)
{
	struct burst_timer *t;
	__u64 soonest;

	if (*(volatile __u64 *)&g->runnable <= g->watched || g->since_ns)
		return;
	g->since_ns = now;
	if (!has_timers)
		return;
	t = bpf_map_lookup_elem(&burst_timers, &group);
	if (!t || t->pending)
		return;
	soonest = t->fired_ns + 2 * g->after_ns;
	look_in(t, now, soonest > now + g->after_ns ? soonest - now : g->after_ns);
}

// One fewer can.
static __always_inline void notes_less(struct group_state *g)
{
	if (*(volatile __u64 *)&g->runnable <= g->watched)
		g->since_ns = 0;
}

// Makes the timers, which allocates memory and so cannot be done in the scheduler: user space runs this once.
SEC("syscall")
int make_timers(void *ctx)
{
	struct burst_timer *t;
	__u32 group;

	for (int i = 0; i < MAX_GROUPS && i < group_count; i++) {
		group = i;
		t = bpf_map_lookup_elem(&burst_timers, &group);
		if (!t || bpf_timer_init(&t->timer, &burst_timers, 1 /* CLOCK_MONOTONIC */))
			return 1;
		if (bpf_timer_set_callback(&t->timer, on_timer))
			return 1;
	}
	return 0;
}
