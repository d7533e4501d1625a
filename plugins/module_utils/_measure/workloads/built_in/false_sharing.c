/* Copyright: threadwise.smt contributors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * False sharing: each thread increments its own byte, and all these bytes are in one cache line.
 *
 *   false_sharing CPU,CPU,... ROUNDS
 *
 * One thread for each given CPU, pinned to it (-1: not pinned), with ROUNDS increments. Prints JSON: million increments per second of all threads.
 * stress-ng has a cacheline stressor, but pins all its instances to one set of CPUs instead of each to one CPU.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Cache lines of all supported architectures have at least 64 bytes. With more than 64 threads, some threads share a byte as well. */
#define LINE 64
#define MAX_THREADS 4096

static _Alignas(256) atomic_uchar line[LINE];
static pthread_barrier_t barrier;
static long rounds;

struct worker {
    pthread_t thread;
    int cpu;
    int index;
    /* Measured by the thread itself, because the main thread can get a CPU much later. */
    double begun, ended;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *count(void *given)
{
    struct worker *self = given;
    atomic_uchar *mine = &line[self->index % LINE];
    pthread_barrier_wait(&barrier);
    self->begun = now();
    for (long round = 0; round < rounds; round++)
        atomic_store_explicit(mine, (unsigned char)(atomic_load_explicit(mine, memory_order_relaxed) + 1), memory_order_relaxed);
    self->ended = now();
    return NULL;
}

static int start(struct worker *worker)
{
    pthread_attr_t attributes;
    cpu_set_t *cpus = CPU_ALLOC(worker->cpu + 1);
    size_t size = CPU_ALLOC_SIZE(worker->cpu + 1);
    pthread_attr_init(&attributes);
    if (worker->cpu >= 0) {
        CPU_ZERO_S(size, cpus);
        CPU_SET_S((size_t)worker->cpu, size, cpus);
        pthread_attr_setaffinity_np(&attributes, size, cpus);
    }
    int error = pthread_create(&worker->thread, &attributes, count, worker);
    CPU_FREE(cpus);
    if (error)
        fprintf(stderr, "false_sharing: cannot start a thread on CPU %d: %s\n", worker->cpu, strerror(error));
    return error;
}

int main(int argc, char **argv)
{
    static struct worker workers[MAX_THREADS];
    int threads = 0;
    rounds = argc == 3 ? atol(argv[2]) : 0;
    if (rounds < 1) {
        fprintf(stderr, "usage: false_sharing CPU,CPU,... ROUNDS\n");
        return 2;
    }
    for (char *cpu = strtok(argv[1], ","); cpu && threads < MAX_THREADS; cpu = strtok(NULL, ",")) {
        workers[threads].index = threads;
        workers[threads++].cpu = atoi(cpu);
    }
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++)
        if (start(&workers[i]))
            return 1;
    double begun = 0, ended = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        begun = i && begun < workers[i].begun ? begun : workers[i].begun;
        ended = ended > workers[i].ended ? ended : workers[i].ended;
    }
    double seconds = ended - begun;
    printf("{\"seconds\": %.9f, \"million_per_second\": %.6f}\n", seconds, (double)threads * (double)rounds / 1e6 / seconds);
    return 0;
}
