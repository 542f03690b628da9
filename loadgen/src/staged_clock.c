/* Stands before the C library in a server that is started with it: its wall clock is wrong by as
 * much as the load generator says, at any time, through memory that both have. Other clocks are
 * left alone, as deadlines go by them. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NANOS_PER_SEC 1000000000

/* Nanoseconds that the wall clock is ahead. */
static const _Atomic int64_t *offset_nanos;

static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("MONOLOCK_STAGED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *memory = mmap(NULL, sizeof *offset_nanos, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (memory != MAP_FAILED)
        offset_nanos = memory;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    /* Others may ask for the time before this library has begun. */
    if (!real_clock_gettime)
        real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failure = real_clock_gettime(clock, time);
    if (failure || !offset_nanos || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failure;
    int64_t offset = *offset_nanos;
    int64_t nanos = time->tv_nsec + offset % NANOS_PER_SEC;
    time->tv_sec += offset / NANOS_PER_SEC;
    if (nanos < 0) {
        nanos += NANOS_PER_SEC;
        time->tv_sec -= 1;
    } else if (nanos >= NANOS_PER_SEC) {
        nanos -= NANOS_PER_SEC;
        time->tv_sec += 1;
    }
    time->tv_nsec = nanos;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    int failure = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return failure;
}

time_t time(time_t *seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds)
        *seconds = now.tv_sec;
    return now.tv_sec;
}
