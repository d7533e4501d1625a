/* Copyright: threadwise.smt contributors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Memory bandwidth: a[i] = b[i] + s * c[i] over three arrays of 64 MB, a number of times.
 *
 *   stream PASSES
 *
 * Prints JSON: the rate in MB (10^6 bytes) per second, 24 bytes for each element (two read, one written). Filling the arrays is not timed.
 * The operation is the triad of J. D. McCalpin, Memory Bandwidth and Machine Balance in Current High Performance Computers (1995).
 * stress-ng has a stream stressor, but in short samples its rate includes the allocation of its arrays.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ELEMENTS (8L * 1000 * 1000)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void triad(double *restrict a, const double *restrict b, const double *restrict c, double factor)
{
    for (long i = 0; i < ELEMENTS; i++)
        a[i] = b[i] + factor * c[i];
}

int main(int argc, char **argv)
{
    long passes = argc == 2 ? atol(argv[1]) : 0;
    if (passes < 1) {
        fprintf(stderr, "usage: stream PASSES\n");
        return 2;
    }
    double *a = malloc(ELEMENTS * sizeof(double)), *b = malloc(ELEMENTS * sizeof(double)), *c = malloc(ELEMENTS * sizeof(double));
    if (!a || !b || !c) {
        perror("stream");
        return 1;
    }
    for (long i = 0; i < ELEMENTS; i++) {
        a[i] = 0;
        b[i] = (double)i;
        c[i] = 1;
    }
    double begun = now();
    for (long pass = 0; pass < passes; pass++) {
        triad(a, b, c, (double)pass);
        /* The compiler must not merge passes. */
        __asm__ volatile("" : : "r"(a) : "memory");
    }
    double seconds = now() - begun;
    printf("{\"seconds\": %.9f, \"mb_per_second\": %.6f, \"last\": %.0f}\n", seconds,
           (double)passes * 3 * ELEMENTS * sizeof(double) / 1e6 / seconds, a[ELEMENTS - 1]);
    return 0;
}
