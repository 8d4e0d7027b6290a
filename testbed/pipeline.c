/* A pipeline of threads: each takes an item from the queue before it, computes a little, and passes it on. With queues
 * of one item nearly every hand-over blocks somebody and wakes somebody else: what Gleaner is about, in forty lines,
 * for guests that have nothing installed.
 *
 *   pipeline STAGES ITEMS LOOPS      LOOPS: turns of a loop per item and stage
 *
 * Prints how long it took, in milliseconds. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { STAGES_MAX = 64 };

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int full;
};

static struct queue queues[STAGES_MAX + 1];
static long stages, items, loops;

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
    if (count != 4 || (stages = atol(words[1])) < 1 || stages > STAGES_MAX || (items = atol(words[2])) < 1 ||
        (loops = atol(words[3])) < 0) {
        fprintf(stderr, "usage: pipeline STAGES ITEMS LOOPS (1 to %d stages)\n", STAGES_MAX);
        return 2;
    }
    struct timespec began, ended;
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
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%ld\n", (ended.tv_sec - began.tv_sec) * 1000 + (ended.tv_nsec - began.tv_nsec) / 1000000);
    return 0;
}
