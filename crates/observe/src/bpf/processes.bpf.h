/* SPDX-License-Identifier: GPL-2.0 */
// Whose doings count, for programs that ask nothing else of the kernel: processes.rs writes it.
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define PROCESSES 256

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROCESSES);
	__type(key, __u32);
	__type(value, __u32);
} processes SEC(".maps");

static __always_inline int is_counted(__u32 tgid)
{
	return bpf_map_lookup_elem(&processes, &tgid) != (void *)0;
}
