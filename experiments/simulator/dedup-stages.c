#define _GNU_SOURCE /* RUSAGE_THREAD */
/* What dedup's stages ask of the kernel: a program with PARSEC dedup's structure (docs/research/models.md), to be
 * counted by `dedup-stages.sh`.
 *
 * Fragment -> FragmentRefine -> Deduplicate -> Compress -> Reorder, with the sizes of dedupdef.h and each allocation
 * and release by the thread that does it there: who allocates what, and who gives it back, decides what malloc asks of
 * the kernel. Written for this; what it leaves out (statistics, decoding, bzip2) asks for nothing.
 *
 *     stages THREADS INPUT OUTPUT     one line of JSON: chunks, each stage's CPU time in seconds and its page faults
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum { MAXBUF = 128 << 20, ANCHOR_JUMP = 2 << 20, BATCH = 20, PER_QUEUE = 4 };
enum { BUCKETS = 65536, WINDOW = 32, MASK = 0xfff };

static void need(int ok, const char *what) {
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void *get(size_t n) {
	void *p = malloc(n);
	need(p != NULL, "malloc");
	return p;
}

/* --- buffers that are split, and freed with their last part --- */

struct owner { int parts; void *start; };
struct buffer { unsigned char *at; size_t n; struct owner *owner; };

static struct buffer buffer_new(size_t n) {
	struct buffer b = { .at = get(n), .n = n, .owner = get(sizeof(struct owner)) };
	*b.owner = (struct owner){ 1, b.at };
	return b;
}

static void buffer_free(struct buffer *b) {
	if (__atomic_sub_fetch(&b->owner->parts, 1, __ATOMIC_ACQ_REL) == 0) {
		free(b->owner->start);
		free(b->owner);
	}
}

/* --- chunks --- */

struct chunk {
	pthread_mutex_t lock;
	pthread_cond_t update;
	struct chunk *original; /* of a duplicate */
	int compressed, written, last;
	unsigned char sha1[20];
	struct buffer raw, packed;
	uint32_t coarse, fine;
	struct chunk *chain; /* hash table */
};

/* --- queues of chunks, filled and emptied in batches --- */

static int threads, groups;

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct chunk **ring;
    size_t size, from, count;
    int producers;
};

/* One for each group; `stages` parallel stages fill it, or Fragment (0). The last group may have fewer threads. */
static struct queue *queues_new(int stages) {
	size_t size = 1 << 20;
	struct queue *q = get(groups * sizeof *q);
	for (int i = 0; i < groups; i++) {
		int members = threads - i * PER_QUEUE < PER_QUEUE ? threads - i * PER_QUEUE : PER_QUEUE;
		q[i] = (struct queue){ .ring = get(size * sizeof(void *)), .size = size, .producers = stages ? stages * members : 1 };
		pthread_mutex_init(&q[i].lock, NULL);
		pthread_cond_init(&q[i].filled, NULL);
	}
	return q;
}

static void put(struct queue *q, struct chunk **batch, int *n) {
	pthread_mutex_lock(&q->lock);
	need(q->count + *n <= q->size, "a queue is full");
	for (int i = 0; i < *n; i++)
		q->ring[(q->from + q->count++) % q->size] = batch[i];
	pthread_cond_signal(&q->filled);
	pthread_mutex_unlock(&q->lock);
	*n = 0;
}

/* As many as there are, up to `max`; 0 when nothing will come any more. */
static int take(struct queue *q, struct chunk **batch, int max) {
	pthread_mutex_lock(&q->lock);
	while (q->count == 0 && q->producers > 0)
		pthread_cond_wait(&q->filled, &q->lock);
	int n = 0;
	while (n < max && q->count > 0) {
		batch[n++] = q->ring[q->from];
		q->from = (q->from + 1) % q->size;
		q->count--;
	}
	pthread_mutex_unlock(&q->lock);
	return n;
}

static void close_queue(struct queue *q) {
	pthread_mutex_lock(&q->lock);
	if (--q->producers == 0)
		pthread_cond_broadcast(&q->filled);
	pthread_mutex_unlock(&q->lock);
}

/* --- what all threads share --- */

static struct queue *to_refine, *to_dedup, *to_compress, *to_reorder;
static struct { pthread_mutex_t lock; struct chunk *first; } *table;
static unsigned char *input;
static size_t input_size;
static const char *output;
static uint64_t chunks, duplicates;
static double cpu[6];
static long faults[6]; /* by stage: fragment, refine, deduplicate, compress, reorder; and main, which reads the input */
static pthread_mutex_t totals = PTHREAD_MUTEX_INITIALIZER;

static void ends(int stage) {
	struct timespec t;
	struct rusage usage;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	getrusage(RUSAGE_THREAD, &usage);
	pthread_mutex_lock(&totals);
	cpu[stage] += t.tv_sec + t.tv_nsec / 1e9;
	faults[stage] += usage.ru_minflt;
	pthread_mutex_unlock(&totals);
}

/* Where a rolling hash over 32 bytes has twelve zeros; `n` if nowhere: 4 KiB on average, as by a Rabin fingerprint with
 * a mask of 0xfff. */
static size_t anchor(const unsigned char *p, size_t n) {
	static const uint64_t base = 1099511628211u;
	uint64_t out = 1, hash = 0;
	for (int i = 0; i < WINDOW; i++)
		out *= base;
	for (size_t i = 0; i < n; i++) {
		hash = hash * base + p[i] + 1 - (i >= WINDOW ? out * (p[i - WINDOW] + 1u) : 0);
		if (i >= WINDOW && (hash >> 40 & MASK) == 0)
			return i;
	}
	return n;
}

/* Cuts the first `at` bytes off; what is left is the result's. */
static struct chunk *split(struct chunk *c, size_t at) {
	struct chunk *rest = get(sizeof *rest);
	__atomic_add_fetch(&c->raw.owner->parts, 1, __ATOMIC_RELAXED);
	rest->raw = (struct buffer){ c->raw.at + at, c->raw.n - at, c->raw.owner };
	rest->coarse = c->coarse;
	c->raw.n = at;
	return rest;
}

static void *fragment(void *unused) {
	(void)unused;
	size_t read = 0;
	uint32_t coarse = 0;
	int to = 0, one = 1;
	struct chunk *rest = NULL;
	for (;;) {
		size_t left = rest ? rest->raw.n : 0, fresh = input_size - read < MAXBUF ? input_size - read : MAXBUF;
		if (left + fresh == 0)
			break;
		struct chunk *c = get(sizeof *c);
		c->raw = buffer_new(left + MAXBUF);
		if (rest) {
			memcpy(c->raw.at, rest->raw.at, left);
			buffer_free(&rest->raw);
			free(rest);
			rest = NULL;
		}
		memcpy(c->raw.at + left, input + read, fresh);
		read += fresh;
		c->raw.n = left + fresh;
		size_t at;
		while (c->raw.n > ANCHOR_JUMP &&
		       (at = ANCHOR_JUMP + anchor(c->raw.at + ANCHOR_JUMP, c->raw.n - ANCHOR_JUMP)) < c->raw.n) {
			struct chunk *next = split(c, at);
			c->coarse = coarse++;
			put(&to_refine[to], &c, &one);
			one = 1;
			to = (to + 1) % groups;
			c = next;
		}
		if (fresh > 0) {
			rest = c;
			continue;
		}
		c->coarse = coarse++;
		put(&to_refine[to], &c, &one);
		break;
	}
	for (int i = 0; i < groups; i++)
		close_queue(&to_refine[i]);
	ends(0);
	return NULL;
}

static void *refine(void *group) {
	int g = (int)(intptr_t)group, n = 0;
	struct chunk *c, *batch[BATCH];
	/* dedup takes as many as there are; with one a time all threads of a group get some. */
	while (take(&to_refine[g], &c, 1)) {
		uint32_t fine = 0;
		size_t at;
		do {
			at = anchor(c->raw.at, c->raw.n);
			struct chunk *next = at < c->raw.n ? split(c, at) : NULL;
			c->fine = fine++;
			c->last = next == NULL;
			batch[n++] = c;
			if (n == BATCH)
				put(&to_dedup[g], batch, &n);
			c = next;
		} while (c);
	}
	if (n)
		put(&to_dedup[g], batch, &n);
	close_queue(&to_dedup[g]);
	ends(1);
	return NULL;
}

static int is_duplicate(struct chunk *c) {
	SHA1(c->raw.at, c->raw.n, c->sha1);
	unsigned bucket = (c->sha1[0] | c->sha1[1] << 8) % BUCKETS;
	pthread_mutex_lock(&table[bucket].lock);
	struct chunk *found = table[bucket].first;
	while (found && memcmp(found->sha1, c->sha1, sizeof c->sha1) != 0)
		found = found->chain;
	c->original = found;
	if (found) {
		buffer_free(&c->raw);
	} else {
		pthread_mutex_init(&c->lock, NULL);
		pthread_cond_init(&c->update, NULL);
		c->compressed = c->written = 0;
		c->chain = table[bucket].first;
		table[bucket].first = c;
	}
	pthread_mutex_unlock(&table[bucket].lock);
	return found != NULL;
}

static void *deduplicate(void *group) {
	int g = (int)(intptr_t)group, n, old = 0, new = 0;
	struct chunk *in[BATCH], *olds[BATCH], *news[BATCH];
	while ((n = take(&to_dedup[g], in, BATCH)))
		for (int i = 0; i < n; i++) {
			if (is_duplicate(in[i])) {
				olds[old++] = in[i];
				if (old == BATCH)
					put(&to_reorder[g], olds, &old);
			} else {
				news[new++] = in[i];
				if (new == BATCH)
					put(&to_compress[g], news, &new);
			}
		}
	if (new)
		put(&to_compress[g], news, &new);
	if (old)
		put(&to_reorder[g], olds, &old);
	close_queue(&to_compress[g]);
	close_queue(&to_reorder[g]);
	ends(2);
	return NULL;
}

static void *compress_all(void *group) {
	int g = (int)(intptr_t)group, n, out = 0;
	struct chunk *in[BATCH], *outs[BATCH];
	while ((n = take(&to_compress[g], in, BATCH)))
		for (int i = 0; i < n; i++) {
			struct chunk *c = in[i];
			pthread_mutex_lock(&c->lock);
			uLongf size = c->raw.n + (c->raw.n >> 9) + 64;
			c->packed = buffer_new(size);
			need(compress(c->packed.at, &size, c->raw.at, c->raw.n) == Z_OK, "compress");
			c->packed.owner->start = c->packed.at = realloc(c->packed.at, size);
			need(c->packed.at != NULL, "realloc");
			c->packed.n = size;
			buffer_free(&c->raw);
			c->compressed = 1;
			pthread_cond_broadcast(&c->update);
			pthread_mutex_unlock(&c->lock);
			outs[out++] = c;
			if (out == BATCH)
				put(&to_reorder[g], outs, &out);
		}
	if (out)
		put(&to_reorder[g], outs, &out);
	close_queue(&to_reorder[g]);
	ends(3);
	return NULL;
}

static void record(int fd, unsigned char type, uint64_t n, const void *content) {
	need(write(fd, &type, 1) == 1 && write(fd, &n, 8) == 8 && write(fd, content, n) == (ssize_t)n, output);
}

static void write_chunk(int fd, struct chunk *c) {
	struct chunk *o = c->original ? c->original : c;
	pthread_mutex_lock(&o->lock);
	while (!o->compressed)
		pthread_cond_wait(&o->update, &o->lock);
	if (o->written) {
		record(fd, 0, sizeof c->sha1, o->sha1);
	} else {
		record(fd, 1, o->packed.n, o->packed.at);
		buffer_free(&o->packed);
		o->written = 1;
	}
	pthread_mutex_unlock(&o->lock);
	chunks++;
	if (c != o) {
		duplicates++;
		free(c);
	}
}

/* Chunks that come too early wait in a list for each coarse one, by number; dedup has a tree of heaps. */
static void *reorder(void *unused) {
	(void)unused;
	int fd = open(output, O_CREAT | O_TRUNC | O_WRONLY, 0644), n, g = 0, idle = 0;
	need(fd >= 0, output);
	size_t rows = input_size / ANCHOR_JUMP + 2;
	struct { struct chunk **at; size_t room; } *early = calloc(rows, sizeof *early);
	need(early != NULL, "calloc");
	struct chunk *in[BATCH];
	uint32_t coarse = 0, fine = 0;
	while (idle < groups) {
		n = take(&to_reorder[g], in, BATCH);
		g = (g + 1) % groups;
		idle = n ? 0 : idle + 1;
		for (int i = 0; i < n; i++) {
			struct chunk *c = in[i];
			if (c->fine >= early[c->coarse].room) {
				size_t old = early[c->coarse].room, room = c->fine * 2 + 1024;
				early[c->coarse].at = realloc(early[c->coarse].at, room * sizeof(void *));
				need(early[c->coarse].at != NULL, "realloc");
				memset(early[c->coarse].at + old, 0, (room - old) * sizeof(void *));
				early[c->coarse].room = room;
			}
			early[c->coarse].at[c->fine] = c;
			while (coarse < rows && fine < early[coarse].room && (c = early[coarse].at[fine])) {
				int last = c->last;
				write_chunk(fd, c);
				fine++;
				if (last) {
					free(early[coarse++].at);
					fine = 0;
				}
			}
		}
	}
	close(fd);
	ends(4);
	return NULL;
}

static void begin(pthread_t *thread, void *(*stage)(void *), int group) {
	errno = pthread_create(thread, NULL, stage, (void *)(intptr_t)group);
	need(errno == 0, "pthread_create");
}

int main(int argc, char **argv) {
	if (argc != 4 || (threads = atoi(argv[1])) < 1) {
		fprintf(stderr, "usage: stages THREADS INPUT OUTPUT\n");
		return 2;
	}
	output = argv[3];
	int fd = open(argv[2], O_RDONLY);
	struct stat st;
	need(fd >= 0 && fstat(fd, &st) == 0, argv[2]);
	input_size = st.st_size;
	input = get(input_size);
	for (size_t at = 0; at < input_size;) {
		ssize_t r = read(fd, input + at, input_size - at);
		need(r > 0, argv[2]);
		at += r;
	}
	ends(5);
	groups = (threads + PER_QUEUE - 1) / PER_QUEUE;
	to_refine = queues_new(0);
	to_dedup = queues_new(1);
	to_compress = queues_new(1);
	/* Duplicates come from Deduplicate, the others from Compress. */
	to_reorder = queues_new(2);
	table = calloc(BUCKETS, sizeof *table);
	need(table != NULL, "calloc");
	for (int i = 0; i < BUCKETS; i++)
		pthread_mutex_init(&table[i].lock, NULL);
	pthread_t all[2 + 3 * threads];
	int n = 0;
	void *(*stages[])(void *) = { refine, deduplicate, compress_all };
	begin(&all[n++], fragment, 0);
	for (int stage = 0; stage < 3; stage++)
		for (int i = 0; i < threads; i++)
			begin(&all[n++], stages[stage], i / PER_QUEUE);
	begin(&all[n++], reorder, 0);
	for (int i = 0; i < n; i++)
		pthread_join(all[i], NULL);
	const char *stages_of[] = { "fragment", "refine", "deduplicate", "compress", "reorder", "read" };
	printf("{\"threads\":%d,\"bytes\":%zu,\"chunks\":%lu,\"duplicates\":%lu,\"cpu_s\":{", threads, input_size, (unsigned long)chunks, (unsigned long)duplicates);
	for (int i = 0; i < 6; i++)
		printf("%s\"%s\":%.3f", i ? "," : "", stages_of[i], cpu[i]);
	printf("},\"faults\":{");
	for (int i = 0; i < 6; i++)
		printf("%s\"%s\":%ld", i ? "," : "", stages_of[i], faults[i]);
	printf("}}\n");
	return 0;
}
