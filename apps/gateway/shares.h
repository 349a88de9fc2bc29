/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which session makes way where the table of sessions is full.
 *
 * First the use that a client makes of its session decides. A query that was answered needs its session no more; one
 * that waits needs it until the answer comes; a client that came back has a conversation that would break. So sessions
 * make way in this order:
 *
 *   answered   the client sent once, and has its answer
 *   waiting    the client sent once, and has no answer yet
 *   used       the client came back, in this session or after an earlier one. These may have three quarters of the
 *              table, so that there is room for the others
 *
 * Then, within one use, the shares decide. The client makes way that holds most: a source (an IPv4 address, the /64 of
 * an IPv6 address) or a network (the /24, the /48), which may hold eight times as much as a source. So whoever takes
 * ever more sessions takes them from itself, and no number of sessions of one source or one network costs another
 * client its own. Holders are told apart by powers of two: it takes a few steps to find the largest one, and it is off
 * by less than a factor of two. Where nobody holds more than others, the session makes way that was silent longest.
 *
 * Invariants: each session is in three lists of its use, from the newest to the oldest by its last packet: of all, of
 * its source, and of its network. A holder is there while it has sessions. With sessions of a use it is in the list of
 * its level of that use.
 *
 * Sessions and holders are numbers here. One thread.
 */
#ifndef WEIR_GATEWAY_SHARES_H
#define WEIR_GATEWAY_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#define SHARES_NONE UINT32_MAX

enum session_use {
    USE_ANSWERED,
    USE_WAITING,
    USE_USED,
    USE_COUNT,
};

/* Whom a session is counted for: hashes under a secret, so that nobody can aim at one chain. */
struct session_holders {
    uint64_t source, network;
};

struct shares;

/* For sessions with the numbers up to `capacity`. NULL: there is no memory for it. */
struct shares *shares_open(uint32_t capacity);
void shares_close(struct shares *shares); /* NULL is allowed */

/* A session begins. It is the newest then. */
void shares_add(struct shares *shares, uint32_t session, const struct session_holders *holders, enum session_use use);
void shares_remove(struct shares *shares, uint32_t session);

/* A packet of a client that has a session, or for it: the session is the newest then. */
void shares_sent(struct shares *shares, uint32_t session);
void shares_answered(struct shares *shares, uint32_t session);

enum session_use shares_use(const struct shares *shares, uint32_t session);

/* The session of a use that was silent longest. SHARES_NONE: there is none. */
uint32_t shares_oldest(const struct shares *shares, enum session_use use);

/* The session that makes way. SHARES_NONE: there is none. */
uint32_t shares_victim(const struct shares *shares);

#endif
