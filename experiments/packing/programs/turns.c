#define _GNU_SOURCE
#include <mqueue.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
static const char *kind;
static long n;
static int id, fds[2], ev[2];
static mqd_t mq[2];
static sem_t s[2];
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c[2] = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER};
static int turn;
static volatile double sink;
static void work(void) {
    double x = 1;
    for (int i = 0; i < 20000; i++)
        x = x * 1.0000001 + 1e-9;
    sink = x;
}
static void give(int me) {
    char b = 0;
    unsigned long one = 1;
    if (!strcmp(kind, "sysv")) {
        struct sembuf o = {!me, 1, 0};
        semop(id, &o, 1);
    } else if (!strcmp(kind, "sem") || !strcmp(kind, "work"))
        sem_post(&s[!me]);
    else if (!strcmp(kind, "eventfd")) {
        if (write(ev[!me], &one, 8) < 0)
            exit(1);
    } else if (!strcmp(kind, "socket")) {
        if (write(fds[me], &b, 1) < 0)
            exit(1);
    } else if (!strcmp(kind, "mqueue"))
        mq_send(mq[!me], &b, 1, 0);
    else {
        pthread_mutex_lock(&m);
        turn = !me;
        pthread_cond_signal(&c[!me]);
        pthread_mutex_unlock(&m);
    }
}
static void take(int me) {
    char b[16];
    unsigned long x;
    if (!strcmp(kind, "sysv")) {
        struct sembuf o = {me, -1, 0};
        semop(id, &o, 1);
    } else if (!strcmp(kind, "sem") || !strcmp(kind, "work"))
        sem_wait(&s[me]);
    else if (!strcmp(kind, "eventfd")) {
        if (read(ev[me], &x, 8) < 0)
            exit(1);
    } else if (!strcmp(kind, "socket")) {
        if (read(fds[me], b, 1) < 0)
            exit(1);
    } else if (!strcmp(kind, "mqueue"))
        mq_receive(mq[me], b, 16, 0);
    else {
        pthread_mutex_lock(&m);
        while (turn != me)
            pthread_cond_wait(&c[me], &m);
        pthread_mutex_unlock(&m);
    }
}
static void *player(void *p) {
    int me = (long)p;
    for (long i = 0; i < n; i++) {
        take(me);
        if (!strcmp(kind, "work"))
            work();
        give(me);
    }
    return 0;
}
int main(int argc, char **argv) {
    pthread_t t;
    kind = argv[1];
    n = atol(argv[2]);
    sem_init(&s[0], 0, 0);
    sem_init(&s[1], 0, 0);
    ev[0] = eventfd(0, 0);
    ev[1] = eventfd(0, 0);
    socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
    struct mq_attr a = {.mq_maxmsg = 1, .mq_msgsize = 1};
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, 32, "/turns-%d-%d", getpid(), i);
        mq[i] = mq_open(name, O_RDWR | O_CREAT, 0600, &a);
        mq_unlink(name);
    }
    id = semget(IPC_PRIVATE, 2, 0600);
    turn = 1;
    if (!strcmp(kind, "sysv")) {
        if (fork() == 0) {
            player((void *)0);
            _exit(0);
        }
        give(1);
        player((void *)1);
        wait(0);
        semctl(id, 0, IPC_RMID);
        return 0;
    }
    semctl(id, 0, IPC_RMID);
    pthread_create(&t, 0, player, (void *)0);
    give(1);
    player((void *)1);
    pthread_join(t, 0);
    return 0;
}
