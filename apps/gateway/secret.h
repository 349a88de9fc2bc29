/* SPDX-License-Identifier: Apache-2.0 */
/* Redis's password and the fleet's secret, which are on no command line, in no log and on no page. */
#ifndef WEIR_GATEWAY_SECRET_H
#define WEIR_GATEWAY_SECRET_H

/*
 * `url` with the password that is in the first line of a file. Exits with a sentence where there is none (1), or where
 * the URL has one of its own (2). The caller frees it.
 */
char *secret_url(const char *url, const char *password_file);

/* The first line of the file that an option names. Exits with a sentence where there is none (1). The caller frees it.
 */
char *secret_read(const char *option, const char *path);

/* Copies a URL of the command line, and hides its password from lists of processes. */
char *secret_take(char *url);

#endif
