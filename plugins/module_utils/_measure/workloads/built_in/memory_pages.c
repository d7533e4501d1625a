/* Copyright: threadwise.smt contributors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The cost of a memory policy: allocates 16 MB, touches them page by page, copies and frees them, a number of times.
 *
 *   memory_pages PASSES
 *
 * Prints JSON: the allocated and copied MB (10^6 bytes) per second, and the page faults per second while touching. Pages have the smallest size.
 * The vm stressors of stress-ng report operations, not page faults.
 */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define BYTES (16L * 1000 * 1000 / 8192 * 8192)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

int main(int argc, char **argv)
{
    long passes = argc == 2 ? atol(argv[1]) : 0;
    if (passes < 1) {
        fprintf(stderr, "usage: memory_pages PASSES\n");
        return 2;
    }
    double touching = 0, begun = now();
    long faulted = 0;
    for (long pass = 0; pass < passes; pass++) {
        char *area = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (area == MAP_FAILED) {
            perror("memory_pages: mmap");
            return 1;
        }
        /* Fails on a kernel without huge pages, where it is not needed. */
        (void)madvise(area, BYTES, MADV_NOHUGEPAGE);
        long before = faults();
        double touched = now();
        memset(area, (int)pass, BYTES);
        touching += now() - touched;
        faulted += faults() - before;
        memcpy(area, area + BYTES / 2, BYTES / 2);
        /* The compiler must not drop data that is not read. */
        __asm__ volatile("" : : "r"(area) : "memory");
        munmap(area, BYTES);
    }
    double seconds = now() - begun;
    printf("{\"seconds\": %.9f, \"mb_per_second\": %.6f, \"faults_per_second\": %.6f, \"faults\": %ld}\n", seconds,
           (double)passes * BYTES / 1e6 / seconds, (double)faulted / touching, faulted);
    return 0;
}
