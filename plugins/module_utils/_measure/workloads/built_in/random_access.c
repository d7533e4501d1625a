/* Copyright: threadwise.smt contributors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Reads a working set at random, each address from what the read before returned: what the pages of memory cost.
 *
 *   random_access transparent|reserved|small MEBIBYTES READS
 *
 * The kernel may make transparent pages huge, where it does so for memory that asks for it (MADV_HUGEPAGE). Reserved ones are huge pages that
 * somebody has reserved (MAP_HUGETLB), as far as enough are free, and otherwise pages of the smallest size, as programs do it that use them where they can.
 *
 * Prints JSON: seconds, millions of reads per second, nanoseconds of CPU time of a read, and how many MiB are in huge pages.
 * The working set is filled before, which is not timed. stress-ng has no method that reads only, at random, from memory with pages of a wanted size.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MEBIBYTE ((size_t)1 << 20)
/* Transparent huge pages begin at multiples of their size. */
#define HUGE_PAGE (2 * MEBIBYTE)

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *mapped(size_t bytes, int flags)
{
    void *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return area == MAP_FAILED ? NULL : area;
}

static char *working_set(const char *pages, size_t bytes)
{
    char *area = strcmp(pages, "reserved") ? NULL : mapped(bytes, MAP_HUGETLB);
    if (area)
        return area;
    area = mapped(bytes + HUGE_PAGE, 0);
    if (!area)
        return NULL;
    area += (HUGE_PAGE - (uintptr_t)area % HUGE_PAGE) % HUGE_PAGE;
    /* Fails on a kernel without huge pages, where it is not needed. */
    (void)madvise(area, bytes, strcmp(pages, "transparent") ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    return area;
}

/* Since Linux 4.14; 0 where it is not known. */
static long huge_mebibytes(void)
{
    char line[256];
    long kibibytes, found = 0;
    FILE *map = fopen("/proc/self/smaps_rollup", "r");
    while (map && fgets(line, sizeof line, map))
        if (sscanf(line, "AnonHugePages: %ld", &kibibytes) == 1 || sscanf(line, "Private_Hugetlb: %ld", &kibibytes) == 1)
            found += kibibytes;
    if (map)
        fclose(map);
    return found / 1024;
}

int main(int argc, char **argv)
{
    const char *pages = argc == 4 ? argv[1] : "";
    size_t mebibytes = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
    long reads = argc == 4 ? atol(argv[3]) : 0;
    int known = !strcmp(pages, "transparent") || !strcmp(pages, "reserved") || !strcmp(pages, "small");
    if (!known || mebibytes < 1 || mebibytes > 1 << 20 || reads < 1) {
        fprintf(stderr, "usage: random_access transparent|reserved|small MEBIBYTES READS\n");
        return 2;
    }
    size_t bytes = mebibytes * MEBIBYTE, words = bytes / sizeof(uint64_t);
    uint64_t *area = (uint64_t *)(void *)working_set(pages, bytes);
    if (!area) {
        perror("random_access: mmap");
        return 1;
    }
    memset(area, 1, bytes);
    uint64_t state = 88172645463325252ULL, sum = 0;
    double begun = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    for (long done = 0; done < reads; done++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        /* The upper half of a random number times their number is one below it, without a division. The next address waits for this read. */
        state += area[(size_t)(((state >> 32) * words) >> 32)];
        sum += state;
    }
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    double seconds = now(CLOCK_MONOTONIC) - begun;
    printf("{\"seconds\": %.9f, \"million_per_second\": %.6f, \"cpu_ns\": %.6f, \"huge_mebibytes\": %ld, \"check\": %lu}\n", seconds,
           (double)reads / seconds / 1e6, cpu / (double)reads * 1e9, huge_mebibytes(), (unsigned long)(sum % 1000));
    return 0;
}
