/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_charge: units that are known when a request or a session is over, such as the bytes that were sent. They count
 * against the keys of the checks that passed, whether they fit or not.
 */
#ifndef WEIR_NGINX_CHARGE_H
#define WEIR_NGINX_CHARGE_H

#include "check.h"
#include "nginx_weir.h"
#include "protocol.h"

/*
 * policy_name  of the check whose key is charged; empty: of the only one beside it
 * bad_units    the line about units that are no number
 */
struct charge {
    struct expression units;
    ngx_str_t policy_name;
    struct rare_line bad_units;
};

/* The handler of weir_charge; the offset of the command is that of the list. */
char *charge_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf);

/* Whether there are the checks that the charges of a place need; the log says which it lacks. */
bool charge_fits(const struct check_list *list, ngx_conf_t *cf);

/* Charges what the request or the session came to. False: no memory. */
bool charge_all(const struct asker *asker, const struct checked *checked, weir_thread *thread);

#endif
