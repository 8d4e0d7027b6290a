#!/usr/bin/env python3
"""What an interrupt on a parked vCPU costs: ICMP echoes to the gateway from vCPU 0, the network device's interrupts on
vCPU 0 or 1, in turn.

    interrupts.py IRQ,... [--to ADDRESS] [--rounds N] [--echoes N]

The first IRQ is the one that brings the answer (`virtioN-input` in /proc/interrupts). Affinities are put back. Root.
"""

import argparse, os, socket, struct, time


def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def echoes(sock, address, count, gap=0.001):
    """Round trips in seconds, ascending; what is lost is left out."""
    times = []
    for number in range(count):
        head = struct.pack("!BBHHH", 8, 0, 0, 77, number & 0xFFFF)
        head = struct.pack("!BBHHH", 8, 0, checksum(head), 77, number & 0xFFFF)
        began = time.perf_counter()
        sock.sendto(head, (address, 0))
        try:
            while sock.recv(200)[20] != 0:
                pass
            times.append(time.perf_counter() - began)
        except TimeoutError:
            pass
        time.sleep(gap)
    return sorted(times)


def affinity(irq):
    return f"/proc/irq/{irq}/smp_affinity_list"


def counts(irq):
    with open(f"/sys/kernel/irq/{irq}/per_cpu_count") as file:
        return [int(word) for word in file.read().split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("irqs", type=lambda text: text.split(","))
    parser.add_argument("--to", default="192.0.2.1")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--echoes", type=int, default=1500)
    args = parser.parse_args()
    os.sched_setaffinity(0, {0})
    sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    sock.settimeout(0.5)
    had = {irq: open(affinity(irq)).read().strip() for irq in args.irqs}
    put = lambda irq, value: open(affinity(irq), "w").write(value)
    try:
        for number in range(args.rounds):
            for cpu in (1, 0) if number % 2 else (0, 1):
                for irq in args.irqs:
                    put(irq, str(cpu))
                echoes(sock, args.to, 100)
                before = counts(args.irqs[0])
                times = echoes(sock, args.to, args.echoes)
                landed = [now - then for now, then in zip(counts(args.irqs[0]), before)]
                p50, p99 = times[len(times) // 2] * 1e6, times[len(times) * 99 // 100] * 1e6
                print(f"{number} on vCPU {cpu}: {len(times)} answers, p50 {p50:.1f} us, p99 {p99:.1f} us, {landed}",
                      flush=True)
    finally:
        for irq, value in had.items():
            put(irq, value)


if __name__ == "__main__":
    main()
