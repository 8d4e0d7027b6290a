// SPDX-License-Identifier: GPL-2.0
//
// Which threads are of which group: forks, execs, moves from cgroup to cgroup. See gleaner.bpf.c.
#pragma once

// The group that is this cgroup, of the unified hierarchy, or one above it.
static __always_inline __u32 group_of_cgroup(struct cgroup *cgroup)
{
	struct cgroup_subsys_state *above;
	__u64 id;
	__u32 *found;

	for (int i = 0; i < CGROUP_DEPTH; i++) {
		id = BPF_CORE_READ(cgroup, kn, id);
		found = bpf_map_lookup_elem(&cgroups, &id);
		if (found)
			return *found;
		above = BPF_CORE_READ(cgroup, self.parent);
		if (!above)
			break;
		cgroup = (void *)above - bpf_core_field_offset(struct cgroup, self);
	}
	return NO_GROUP;
}

// The group of a thread that was of `group`, and whose cgroup in the unified hierarchy is `cgroup` now.
static __always_inline __u32 moved_to(__u32 group, struct cgroup *cgroup)
{
	struct group_state *had = bpf_map_lookup_elem(&groups, &group);

	// What belongs to a process tree goes on doing so.
	return had && had->kind == TREE ? group : group_of_cgroup(cgroup);
}

// The thread `pid` is of `group` from now on; false: it cannot be.
static __always_inline bool join(__u32 pid, __u32 group, struct thread_state *state, struct shared_state *all)
{
	struct group_state *joined = bpf_map_lookup_elem(&groups, &group);

	// A group that is let go has no new thread.
	if (!joined || joined->kind == FREE)
		return false;
	state->group = group;
	if (bpf_map_update_elem(&threads, &pid, state, BPF_ANY)) {
		__sync_fetch_and_add(&all->untracked, 1);
		return false;
	}
	__sync_fetch_and_add(&joined->born, 1);
	return true;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 zero = 0, parent_pid = parent->pid, child_pid = child->pid, group = NO_GROUP;
	struct shared_state *all = bpf_map_lookup_elem(&shared, &zero);
	struct thread_state *of = bpf_map_lookup_elem(&threads, &parent_pid);
	struct thread_state born = {};

	if (!all)
		return 0;
	if (of)
		group = of->group;
	// CLONE_INTO_CGROUP
	if (all->cgroups && child->cgroups != parent->cgroups)
		group = moved_to(group, child->cgroups->dfl_cgrp);
	// Another thread may have had this id, and nobody saw its end.
	forget(child_pid);
	if (group == NO_GROUP)
		return 0;
	// Its first run is a wake-up by the forking CPU.
	born.waking_ns = bpf_ktime_get_ns();
	born.waker_cpu = bpf_get_smp_processor_id();
	join(child_pid, group, &born, all);
	return 0;
}

// A process goes to another cgroup. Of several threads only the first one is shown.
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_attach, struct cgroup *to, const char *path, struct task_struct *task, bool whole_process)
{
	__u32 zero = 0, pid = task->pid, had = NO_GROUP, group;
	struct shared_state *all = bpf_map_lookup_elem(&shared, &zero);
	struct thread_state *known = bpf_map_lookup_elem(&threads, &pid);
	struct thread_state state = {};

	// 0 is the unified one.
	if (!all || !all->cgroups || to->root->hierarchy_id)
		return 0;
	if (whole_process && task->signal->nr_threads > 1)
		__sync_fetch_and_add(&all->moved, 1);
	if (known)
		had = known->group;
	group = moved_to(had, to);
	if (group == had)
		return 0;
	forget(pid);
	if (group == NO_GROUP)
		return 0;
	state.exec_ns = task->se.sum_exec_runtime;
	state.nvcsw = task->nvcsw;
	join(pid, group, &state, all);
	return 0;
}

// A thread that is not its process's first and calls exec takes over the first one's id, and its entry if that is still
// there.
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_pid)
{
	__u32 zero = 0, pid = task->pid, old = old_pid, group;
	struct shared_state *all = bpf_map_lookup_elem(&shared, &zero);
	struct thread_state state = {};
	struct thread_state *known = bpf_map_lookup_elem(&threads, &old);
	struct thread_state *first = bpf_map_lookup_elem(&threads, &pid);
	struct group_state *of;

	if (!all)
		return 0;
	if (known) {
		state = *known;
	} else if (first) {
		state.exec_ns = task->se.sum_exec_runtime;
		state.nvcsw = task->nvcsw;
		state.group = first->group;
	} else {
		return 0;
	}
	group = state.group;
	of = bpf_map_lookup_elem(&groups, &group);
	if (of)
		__sync_fetch_and_add(&of->execs, 1);
	if (old == pid)
		return 0;
	// It is counted anew when it runs the next time.
	state.counted = 0;
	if (first && of)
		runs_less(of, first);
	if (first)
		*first = state;
	else
		join(pid, group, &state, all);
	forget(old);
	return 0;
}
