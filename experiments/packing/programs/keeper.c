/* Keeps two empty BPF programs at each tracepoint that is named, so that those that come and go later patch no text of
 * the kernel: QEMU without KVM breaks where that is patched while other vCPUs run. */
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int load(void) {
    struct bpf_insn code[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K}, {.code = BPF_JMP | BPF_EXIT}};
    union bpf_attr a;
    memset(&a, 0, sizeof a);
    a.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT;
    a.insns = (unsigned long)code;
    a.insn_cnt = 2;
    a.license = (unsigned long)"GPL";
    return syscall(SYS_bpf, BPF_PROG_LOAD, &a, sizeof a);
}

int main(int n, char **names) {
    for (int i = 1; i < n; i++)
        for (int twice = 0; twice < 2; twice++) {
            union bpf_attr a;
            memset(&a, 0, sizeof a);
            a.raw_tracepoint.name = (unsigned long)names[i];
            a.raw_tracepoint.prog_fd = load();
            if (syscall(SYS_bpf, BPF_RAW_TRACEPOINT_OPEN, &a, sizeof a) < 0)
                perror(names[i]);
        }
    puts("kept");
    fflush(stdout);
    for (;;)
        pause();
}
