// vmm CPU: a VM of one page that computes for ever. Its vCPU's thread stays on CPU, and is named as QEMU names them.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

static int kvm, vm, cpu;
static void *run(void *argument)
{
	long id = (long)argument;
	char name[16];
	int vcpu = ioctl(vm, KVM_CREATE_VCPU, id);
	int size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	struct kvm_run *state = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	struct kvm_sregs sregs;
	struct kvm_regs regs = {.rip = 0x1000, .rflags = 2};
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
	snprintf(name, sizeof name, "CPU %ld/KVM", id);
	pthread_setname_np(pthread_self(), name);
	ioctl(vcpu, KVM_GET_SREGS, &sregs);
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	ioctl(vcpu, KVM_SET_SREGS, &sregs);
	ioctl(vcpu, KVM_SET_REGS, &regs);
	for (;;) {
		int error = ioctl(vcpu, KVM_RUN, 0);
		if (error < 0)
			continue;
		fprintf(stderr, "vCPU %ld: exit %d\n", id, state->exit_reason);
		exit(1);
	}
	return 0;
}
int main(int argc, char **argv)
{
	// 16-bit: inc ax; jmp to it
	static const unsigned char code[] = {0x40, 0xeb, 0xfd};
	unsigned char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct kvm_userspace_memory_region region = {
		.guest_phys_addr = 0x1000, .memory_size = 4096, .userspace_addr = (unsigned long)page};
	pthread_t thread;

	cpu = argc > 1 ? atoi(argv[1]) : 0;
	memcpy(page, code, sizeof code);
	kvm = open("/dev/kvm", O_RDWR);
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (vm < 0 || ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region))
		return perror("kvm"), 1;
	pthread_create(&thread, 0, run, (void *)0);
	pause();
}
