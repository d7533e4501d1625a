/* Copyright: threadwise.smt contributors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Reads an array of 100 MB, or reads and writes it, in memory order or across it, a number of times.
 *
 *   array rows|columns read|write PASSES
 *
 * Prints JSON: the rate in MB (10^6 bytes) per second. Filling the array is not timed.
 * The matrix stressor of stress-ng has both orders, but each of its methods writes a result.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIDE 5000

static int (*array)[SIDE];

/* The compiler must neither merge passes nor drop sums that are not printed. */
#define PASS_ENDS() __asm__ volatile("" : : "r"(array) : "memory")

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static unsigned read_rows(void)
{
    unsigned sum = 0;
    for (int row = 0; row < SIDE; row++)
        for (int column = 0; column < SIDE; column++)
            sum += (unsigned)array[row][column];
    return sum;
}

static unsigned read_columns(void)
{
    unsigned sum = 0;
    for (int column = 0; column < SIDE; column++)
        for (int row = 0; row < SIDE; row++)
            sum += (unsigned)array[row][column];
    return sum;
}

static unsigned write_rows(void)
{
    for (int row = 0; row < SIDE; row++)
        for (int column = 0; column < SIDE; column++)
            array[row][column] ^= 1;
    return 0;
}

static unsigned write_columns(void)
{
    for (int column = 0; column < SIDE; column++)
        for (int row = 0; row < SIDE; row++)
            array[row][column] ^= 1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4 || atol(argv[3]) < 1) {
        fprintf(stderr, "usage: array rows|columns read|write PASSES\n");
        return 2;
    }
    int rows = !strcmp(argv[1], "rows"), writing = !strcmp(argv[2], "write");
    unsigned (*walk)(void) = rows ? (writing ? write_rows : read_rows) : (writing ? write_columns : read_columns);
    long passes = atol(argv[3]);
    unsigned sum = 0;

    array = malloc(sizeof(int[SIDE][SIDE]));
    if (!array) {
        perror("array");
        return 1;
    }
    for (int row = 0; row < SIDE; row++)
        for (int column = 0; column < SIDE; column++)
            array[row][column] = row ^ column;

    double begun = now();
    for (long pass = 0; pass < passes; pass++) {
        sum += walk();
        PASS_ENDS();
    }
    double seconds = now() - begun;
    printf("{\"seconds\": %.9f, \"mb_per_second\": %.6f, \"sum\": %u}\n", seconds, (double)passes * sizeof(int[SIDE][SIDE]) / 1e6 / seconds, sum);
    return 0;
}
