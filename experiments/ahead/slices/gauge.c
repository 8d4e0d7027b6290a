// gauge CPU SECONDS: two that compute and one that sleeps on one CPU. Prints what they had.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST 400000
struct shared {
	volatile int who, go, stop;
	volatile long starts;
	long long at[MOST];
	unsigned char of[MOST];
	long sleeps;
	unsigned late[MOST];
	volatile long long loops[2];
};
static struct shared *s;

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void on(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
}
static int order(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;
	return (x > y) - (x < y);
}
static void hog(int me)
{
	while (!s->go)
		usleep(1000);
	while (!s->stop) {
		if (s->who != me) {
			s->who = me;
			long n = s->starts;
			if (n < MOST) {
				s->at[n] = now();
				s->of[n] = me;
				s->starts = n + 1;
			}
		}
		s->loops[me]++;
	}
	exit(0);
}
int main(int argc, char **argv)
{
	int cpu = atoi(argv[1]), seconds = atoi(argv[2]), pids[3];
	static long long stints[MOST], gaps[MOST], late[MOST];
	long n = 0, m = 0;

	(void)argc;
	s = mmap(0, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	s->who = -1;
	for (int i = 0; i < 3; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			on(cpu);
			if (i < 2)
				hog(i);
			while (!s->go)
				usleep(1000);
			while (!s->stop && s->sleeps < MOST) {
				long long due = now() + 5000000 + (s->sleeps % 7) * 331000;
				struct timespec t = {due / 1000000000, due % 1000000000};
				clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
				s->late[s->sleeps] = now() - due;
				s->sleeps++;
			}
			exit(0);
		}
	}
	on(0);
	printf("pids %d %d\n", pids[0], pids[1]);
	fflush(stdout);
	sleep(2);
	s->go = 1;
	sleep(1);
	long from = s->starts, sleeps_from = s->sleeps;
	long long loops = s->loops[0] + s->loops[1], began = now();
	sleep(seconds);
	long to = s->starts, sleeps_to = s->sleeps;
	loops = s->loops[0] + s->loops[1] - loops;
	double took = (now() - began) / 1e9;
	s->stop = 1;
	for (int i = 0; i < 3; i++)
		waitpid(pids[i], 0, 0);
	for (long i = from; i + 1 < to; i++) {
		stints[n++] = s->at[i + 1] - s->at[i];
		if (s->of[i] == 1)
			gaps[m++] = s->at[i + 1] - s->at[i];
	}
	qsort(stints, n, sizeof *stints, order);
	qsort(gaps, m, sizeof *gaps, order);
	// One that spins is woken when it next runs: p99 over moments of the whole time.
	double limit = 0.01 * took * 1e9, left, t = 0;
	for (double low = 0, high = 1e9; high - low > 1000;) {
		t = (low + high) / 2;
		left = 0;
		for (long i = 0; i < m; i++)
			left += gaps[i] > t ? gaps[i] - t : 0;
		*(left > limit ? &low : &high) = t;
	}
	long l = 0;
	for (long i = sleeps_from; i < sleeps_to; i++)
		late[l++] = s->late[i];
	qsort(late, l, sizeof *late, order);
	printf("{\"stints\": %ld, \"slice_p50_us\": %.0f, \"slice_p90_us\": %.0f, \"spinner_wake_p99_us\": %.0f, "
	       "\"sleeper_p50_us\": %.0f, \"sleeper_p99_us\": %.0f, \"loops_per_s\": %.0f}\n",
	       n, n ? stints[n / 2] / 1e3 : 0, n ? stints[n * 9 / 10] / 1e3 : 0, t / 1e3, l ? late[l / 2] / 1e3 : 0,
	       l ? late[l * 99 / 100] / 1e3 : 0, loops / took);
	return 0;
}
