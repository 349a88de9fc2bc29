/* SPDX-License-Identifier: Apache-2.0 */
/* See packets.h. */
#include "packets.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t packets_now_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * SECOND_NS + (uint64_t) now.tv_nsec;
}

void packets_sleep_until(uint64_t at_ns)
{
    const struct timespec at = {.tv_sec = (time_t) (at_ns / SECOND_NS), .tv_nsec = (long) (at_ns % SECOND_NS)};
    (void) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

bool packets_read_number(const char *text, uint64_t *out)
{
    char *end;
    const unsigned long long number = strtoull(text, &end, 10);
    *out = number;
    return *text >= '0' && *text <= '9' && *end == '\0' && number <= UINT32_MAX;
}

/* An address, the character behind it, and a number. */
static bool read_both(char *text, char between, struct in_addr *address, uint64_t *number)
{
    char *middle = strrchr(text, between);
    if (middle == NULL) {
        return false;
    }
    *middle = '\0';
    return inet_pton(AF_INET, text, address) == 1 && packets_read_number(middle + 1, number) && *number != 0;
}

bool packets_read_target(char *text, struct in_addr *address, uint16_t *port)
{
    uint64_t number;
    if (!read_both(text, ':', address, &number) || number > UINT16_MAX) {
        return false;
    }
    *port = (uint16_t) number;
    return true;
}

bool packets_read_range(char *text, struct in_addr *first, uint64_t *count)
{
    return read_both(text, ',', first, count);
}
