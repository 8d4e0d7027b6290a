// load OBJECT SLICE_NS CPUS: attaches the scheduler until stdin ends, then says how often it kicked.
#define _GNU_SOURCE
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct bpf_object *object = bpf_object__open_file(argv[1], NULL);
	struct bpf_map *map, *data, *ro;
	struct bpf_program *start;
	struct bpf_link *link;
	int cpus = atoi(argv[3]);
	size_t size;

	if (!object)
		return perror("open"), 1;
	ro = bpf_object__find_map_by_name(object, ".rodata");
	unsigned char *values = bpf_map__initial_value(ro, &size);
	// In order of declaration: slice_ns, cpus, wakers_first.
	*(unsigned long long *)values = strtoull(argv[2], NULL, 10);
	*(unsigned *)(values + 8) = cpus;
	if (bpf_object__load(object))
		return perror("load"), 1;
	map = bpf_object__find_map_by_name(object, "slices");
	link = bpf_map__attach_struct_ops(map);
	if (!link)
		return perror("attach"), 1;
	start = bpf_object__find_program_by_name(object, "start");
	for (int cpu = 0; cpu < cpus; cpu++) {
		cpu_set_t set;
		LIBBPF_OPTS(bpf_test_run_opts, opts);
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		sched_setaffinity(0, sizeof set, &set);
		if (bpf_prog_test_run_opts(bpf_program__fd(start), &opts) || opts.retval)
			fprintf(stderr, "timer on %d: %d %d\n", cpu, errno, (int)opts.retval);
	}
	puts("attached");
	fflush(stdout);
	char c;
	while (read(0, &c, 1) > 0)
		;
	data = bpf_object__find_map_by_name(object, ".bss");
	unsigned key = 0;
	static unsigned char bss[4096];
	if (data && !bpf_map_lookup_elem(bpf_map__fd(data), &key, bss))
		printf("kicks %llu ended %llu errors %d %d %d\n", ((unsigned long long *)bss)[2],
		       ((unsigned long long *)bss)[3], ((int *)bss)[0], ((int *)bss)[1], ((int *)bss)[2]);
	bpf_link__destroy(link);
	bpf_object__close(object);
	return 0;
}
