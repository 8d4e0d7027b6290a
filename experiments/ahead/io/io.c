// Waits that are not for another thread's computation: `io MODE SECONDS [ADDRESS]` prints rate, p50 and p99 in us.
//
//   lo      UDP request-reply of two processes over the loopback, each on its own vCPU
//   icmp    echo of ADDRESS by a raw socket: waits for the network card's interrupt
//   timer   sleeps of 100 us: how much later than asked it wakes
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/ip_icmp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 4000000
static unsigned times[MOST];

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int order(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
	return (x > y) - (x < y);
}

static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
}

static int socket_pair(struct sockaddr_in *other)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int server = socket(AF_INET, SOCK_DGRAM, 0);
	socklen_t length = sizeof any;

	if (bind(server, (void *)&any, sizeof any) || getsockname(server, (void *)&any, &length))
		exit(1);
	*other = any;
	if (!fork()) {
		struct sockaddr_in from;
		char data[64];

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		stay_on(0);
		for (;;) {
			length = sizeof from;
			ssize_t n = recvfrom(server, data, sizeof data, 0, (void *)&from, &length);
			sendto(server, data, n, 0, (void *)&from, length);
		}
	}
	stay_on(1);
	return socket(AF_INET, SOCK_DGRAM, 0);
}

static unsigned short sum(const unsigned short *p, int words)
{
	unsigned s = 0;
	while (words--)
		s += *p++;
	s = (s >> 16) + (s & 0xffff);
	return ~(s + (s >> 16));
}

int main(int argc, char **argv)
{
	int lo = argc > 2 && !strcmp(argv[1], "lo"), icmp = argc > 3 && !strcmp(argv[1], "icmp"), fd = -1;
	struct sockaddr_in to = {.sin_family = AF_INET};
	long long began, end;
	size_t n = 0;

	if (argc < 3)
		return 2;
	if (lo)
		fd = socket_pair(&to);
	if (icmp) {
		struct timeval patience = {.tv_usec = 200000};
		fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
		inet_pton(AF_INET, argv[3], &to.sin_addr);
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	}
	began = now();
	end = began + atoll(argv[2]) * 1000000000LL;
	for (long long at = now(); at < end && n < MOST; n++) {
		char data[256] = "request";
		if (lo) {
			sendto(fd, data, 32, 0, (void *)&to, sizeof to);
			if (recv(fd, data, sizeof data, 0) < 0)
				return 1;
		} else if (icmp) {
			struct icmphdr *h = (void *)data;
			unsigned short sequence = n;
			memset(data, 0, sizeof data);
			h->type = ICMP_ECHO;
			h->un.echo.id = getpid() & 0xffff;
			h->un.echo.sequence = sequence;
			h->checksum = sum((void *)data, 16);
			if (sendto(fd, data, 32, 0, (void *)&to, sizeof to) < 0)
				return 1;
			for (;;) {
				ssize_t got = recv(fd, data, sizeof data, 0);
				if (got < 0)
					break;
				h = (void *)(data + 20);
				if (h->type == ICMP_ECHOREPLY && h->un.echo.sequence == sequence)
					break;
			}
		} else {
			struct timespec gap = {.tv_nsec = 100000};
			clock_nanosleep(CLOCK_MONOTONIC, 0, &gap, 0);
		}
		long long then = now();
		times[n] = then - at - (lo || icmp ? 0 : 100000);
		at = then;
	}
	qsort(times, n, sizeof *times, order);
	if (!n)
		return 1;
	printf("%.0f %.1f %.1f\n", n * 1e9 / (now() - began), times[n / 2] / 1e3, times[n * 99 / 100] / 1e3);
	return 0;
}
