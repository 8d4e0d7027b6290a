/* A pipeline of threads: each takes an item from the queue before it, computes a little, and passes it on. With queues
 * of one item nearly every hand-over blocks somebody and wakes somebody else: what Gleaner is about, in forty lines,
 * for guests that have nothing installed.
 *
 *   pipeline STAGES ITEMS LOOPS      LOOPS: turns of a loop per item and stage
 *   pipeline STAGES 5s LOOPS         as many items as there are seconds for
 *
 * Prints how many items there were and how long they took, in milliseconds. */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STAGES_MAX = 64 };

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int full;
};

static struct queue queues[STAGES_MAX + 1];
static long stages, loops;
/* Once the time is over: how many there were. */
static atomic_long items;
static long limit_ms;
static struct timespec began;

static long passed_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - began.tv_sec) * 1000 + (now.tv_nsec - began.tv_nsec) / 1000000;
}

static void set(struct queue *queue, int full)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->full == full)
        pthread_cond_wait(&queue->changed, &queue->lock);
    queue->full = full;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

static void *stage(void *argument)
{
    long number = (long)argument;
    for (long item = 0; item < items; item++) {
        /* This item is the last: the stages behind it wait for it, and learn so before they have it. */
        if (number == 0 && limit_ms > 0 && passed_ms() >= limit_ms)
            items = item + 1;
        if (number > 0)
            set(&queues[number], 0);
        for (volatile long turn = 0; turn < loops; turn++)
            ;
        if (number < stages - 1)
            set(&queues[number + 1], 1);
    }
    return NULL;
}

int main(int count, char **words)
{
    char *unit = "?";
    long amount = count == 4 ? strtol(words[2], &unit, 10) : 0;
    int timed = strcmp(unit, "s") == 0;
    if (amount < 1 || amount > LONG_MAX / 1000 || (*unit != '\0' && !timed) || (stages = atol(words[1])) < 1 ||
        stages > STAGES_MAX || (loops = atol(words[3])) < 0) {
        fprintf(stderr, "usage: pipeline STAGES ITEMS|SECONDSs LOOPS (1 to %d stages)\n", STAGES_MAX);
        return 2;
    }
    items = timed ? LONG_MAX : amount;
    limit_ms = timed ? amount * 1000 : 0;
    pthread_t threads[STAGES_MAX];
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (long n = 0; n < stages; n++) {
        pthread_mutex_init(&queues[n].lock, NULL);
        pthread_cond_init(&queues[n].changed, NULL);
    }
    for (long n = 0; n < stages; n++)
        if (pthread_create(&threads[n], NULL, stage, (void *)n) != 0)
            return 1;
    for (long n = 0; n < stages; n++)
        pthread_join(threads[n], NULL);
    printf("%ld items in %ld ms\n", (long)items, passed_ms());
    return 0;
}
