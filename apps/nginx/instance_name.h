/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of the memory of an instance, by which a new binary finds the weir of the nginx that it replaces.
 *
 * A name has a hash of the path of nginx's pid file, which an upgrade keeps, the module, the size of the table, and a
 * number. Each master that uses a weir has a lock on the file of its name. So a master knows whether another one uses a
 * weir, and the last one removes the name. The locks of killed processes are gone with them.
 *
 * What a master does with a file of its pid path that is not its own:
 *
 *   another master has the lock   enters the weir where that master is the nginx before or after an upgrade
 *   nobody has it, at a start     all processes were killed: goes on with the weir
 *   nobody has it, later          removes it
 *
 * A weir that does not fit is not entered; where nobody has the lock it is removed.
 */
#ifndef WEIR_NGINX_INSTANCE_NAME_H
#define WEIR_NGINX_INSTANCE_NAME_H

#include <stdbool.h>

#include "nginx_weir.h"
#include "weir/weir.h"

/* More than a name takes. */
#define INSTANCE_NAME_SIZE 96

/* How a weir was had. */
enum instance_entry {
    INSTANCE_NEW,
    INSTANCE_RESUMED,  /* processes that were killed had it */
    INSTANCE_UPGRADED, /* the nginx before or after an upgrade has it */
};

/*
 * next     the names that this process has
 * fd       has the lock; -1: there is no name
 * refused  why the weir of the nginx before an upgrade was not entered; empty: it was, or there is none
 * stays    another start may go on with the weir: of killed processes, and this start has not succeeded yet
 */
struct instance_name {
    struct instance_name *next;
    int fd;
    enum instance_entry entry;
    char text[INSTANCE_NAME_SIZE];
    char refused[sizeof(((weir_error *) NULL)->message)];
    bool stays;
};

/*
 * What the memory has to have at least. A new one is as large as the options say.
 *
 * pid_path   terminated
 * workers    for whose counters there has to be room
 * restarted  no weir is open in this process: an nginx that starts
 */
struct instance_need {
    const ngx_str_t *pid_path;
    size_t keys;
    size_t workers;
    bool restarted;
};

/* Sets all of a name that there is not yet. */
void instance_name_init(struct instance_name *name);

/*
 * Opens a weir with a name. On success the options have the size of the weir. 0, or a negative errno with a sentence:
 * there is no name to be had. Nothing is left then.
 */
int instance_name_open(struct instance_name *name, const struct instance_need *need, weir_options *options, weir **out,
                       weir_error *error);

/* The start has succeeded. */
void instance_name_confirm(struct instance_name *name);

/* The master is done with the weir, which may still be open: removes the name, unless another master uses it. */
void instance_name_release(struct instance_name *name);

/* Leaves the name to the master, where this process is a worker or another child. */
void instance_name_leave(struct instance_name *name);

#endif
