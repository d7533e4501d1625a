/* Copyright: threadwise.smt contributors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Does a fixed amount of integer work in bursts that begin at fixed times, so that a CPU of its own is busy for a share of the time.
 *
 *   load_levels PIECES SECONDS LEVEL
 *
 * SECONDS is how long all PIECES take on a CPU of their own without pauses; 0 stands for "not known", and works without pauses.
 * LEVEL is the share of that CPU's time, above 0 up to 1. A burst that is late begins at once, and none is left out: where the CPU does less than
 * one of its own, the same work keeps it busy for longer.
 *
 * Prints JSON: the seconds from the first piece to the last, and the pieces per second.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 20000
/* Long against the cost of a sleep, short against a sample. */
#define BURST_SECONDS 0.005

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void sleep_until(double moment)
{
    struct timespec time;
    time.tv_sec = (time_t)moment;
    time.tv_nsec = (long)((moment - (double)time.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
}

static unsigned long piece(unsigned long state)
{
    for (int round = 0; round < ROUNDS; round++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state += (unsigned long)round * 0x9e3779b9UL;
    }
    return state;
}

int main(int argc, char **argv)
{
    long pieces = argc == 4 ? atol(argv[1]) : 0;
    double seconds = argc == 4 ? atof(argv[2]) : -1, level = argc == 4 ? atof(argv[3]) : 0;
    if (pieces < 1 || !(seconds >= 0) || !(level > 0 && level <= 1)) {
        fprintf(stderr, "usage: load_levels PIECES SECONDS LEVEL\n");
        return 2;
    }
    double each = seconds / (double)pieces;
    long burst = each > 0 && each < BURST_SECONDS ? (long)(BURST_SECONDS / each) : 1;
    unsigned long state = 88172645463325252UL % 0xffffffffUL;
    double start = now();
    for (long done = 0; done < pieces; done++) {
        /* Without a known length there is nothing to wait for, and a sleep that ends at once takes long against a piece in an emulated guest. */
        if (level < 1 && each > 0 && done % burst == 0)
            sleep_until(start + (double)done * each / level);
        state = piece(state);
    }
    /* The last pause belongs to the time: else a low level would seem to be more than it is. */
    if (level < 1 && each > 0)
        sleep_until(start + seconds / level);
    double taken = now() - start;
    printf("{\"seconds\": %.6f, \"pieces_per_second\": %.6f, \"check\": %lu}\n", taken, (double)pieces / taken, state % 1000);
    return 0;
}
