/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private redis-server for one test, on a socket and a port of its own. The server ends with the test, even where the
 * test crashes.
 */
#ifndef WEIR_TESTS_SERVER_H
#define WEIR_TESTS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <hiredis/hiredis.h>

struct server {
    pid_t pid; /* 0: not running */
    char directory[64];
    char socket[96];
    int port;
    const char *password; /* NULL: none */
    /* Before server_launch: */
    const char *const *arguments; /* more of them; NULL: none */
    bool sentinel;                /* as `directory`/sentinel.conf says */
};

/* Whether there is a redis-server to start. Where there is none the tests are skipped, but fail with CI=true. */
bool server_available(void);

/* What is started: $WEIR_TEST_REDIS_SERVER, or redis-server. */
const char *server_program(void);

/* A TCP port of 127.0.0.1 that no socket has now, and that the kernel gives to no socket that names none. */
int server_free_port(void);

/* Starts an empty server and waits until it answers, or fails the test. */
void server_start(struct server *server);
void server_start_with(struct server *server, const char *password, bool stopped_when_full);

/*
 * server_start in two steps, for a server with more arguments: server_init picks the directory and the port,
 * server_launch starts it.
 */
void server_init(struct server *server);
void server_launch(struct server *server);

/* Kills the server (SIGKILL); and starts it empty on the same socket and port. */
void server_kill(struct server *server);
void server_restart(struct server *server);

void server_pause(struct server *server);  /* SIGSTOP */
void server_resume(struct server *server); /* SIGCONT */

/* Kills it and removes its directory. */
void server_stop(struct server *server);

/* "unix:///..." or "redis://127.0.0.1:port". */
void server_url(const struct server *server, bool tcp, char *out, size_t size);

/* Whether the server behind a connection answers; closes the connection. NULL: false. */
bool server_answers(redisContext *c);

/* Runs a command on a connection of its own; the caller frees the reply. */
redisReply *server_command(const struct server *server, const char *format, ...);

/* What a command with one argument answers, as a number. */
long long server_number(const struct server *server, const char *format, const char *argument);

/* The sum of the field "sum" over all records whose name matches the pattern. */
unsigned long long server_sum(const struct server *server, const char *pattern);

/* Live units of all logs whose name matches: their members but the mark of a reset. */
unsigned long long server_log_units(const struct server *server, const char *pattern);

/* A thread that listens and answers every piece it reads with the same bytes (NULL: with nothing). */
struct fake_server {
    int fd, port;
    const char *answer;
    size_t answer_size;
    bool closes;
    void *thread;
};

void fake_server_start(struct fake_server *fake, const char *answer, size_t answer_size, bool closes);
void fake_server_stop(struct fake_server *fake);

#endif
