/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of clients as keys.
 *
 * A key that is one variable with an address is the bytes of that address, where all keys of its policy are: so keys
 * are written as addresses, and entries may be of networks. In any other key such a variable is text among other text.
 *
 * An IPv6 client has as many addresses as it likes within its network. So there are variables with the network, which
 * is the client.
 *
 * nginx writes the address of an IPv4 client as ::ffff:198.51.100.7 where the socket is one of IPv6. In keys it is
 * 198.51.100.7: `$remote_addr`, and what else nginx has for addresses, stands for a variable of the module there.
 */
#ifndef WEIR_NGINX_ADDRESS_H
#define WEIR_NGINX_ADDRESS_H

#include "nginx_weir.h"
#include "protocol.h"

/*
 * A variable with an address.
 *
 * name    of the variable, without its '$'
 * nginx   the name of nginx's variable that it stands for in keys; empty: none
 * source  the name of nginx's variable that has the address; empty: it is that of the connection
 * bits    of an IPv6 address that make a client: those behind them are 0
 * bytes   its value is the bytes of the address, and not text
 */
struct address {
    ngx_str_t name;
    ngx_str_t nginx;
    ngx_str_t source;
    unsigned bits;
    bool bytes;
};

#define ADDRESS_COUNT 7

extern const struct address addresses[ADDRESS_COUNT];

/* The address that the text of a key is, and nothing else; NULL: it is another text. */
const struct address *address_of_key(const ngx_str_t *text);

/* Compiles the text of a key. False: as protocol_compile(). */
bool address_compile_key(ngx_conf_t *cf, const ngx_str_t *text, struct expression *out);

/*
 * The bytes of an address, as weir_address_form() has them. What is no address, such as the client of a unix socket, is
 * its text. False: no memory.
 */
bool address_key(const struct asker *asker, const struct address *address, ngx_str_t *out);

/* The value of the variable. False: no memory. */
bool address_value(const struct asker *asker, const struct address *address, ngx_str_t *out);

#endif
