/* SPDX-License-Identifier: Apache-2.0 */
/* See address.h. */
#include "address.h"

#include <netinet/in.h>

#define V4_SIZE 4
#define V6_SIZE 16

/* Of the text of an address or of a network, with a terminator. */
#define TEXT_SIZE (INET6_ADDRSTRLEN + sizeof("/128"))

const struct address addresses[ADDRESS_COUNT] = {
    {.name = ngx_string("weir_client"), .bits = 64},
    {.name = ngx_string("weir_client_56"), .bits = 56},
    {.name = ngx_string("weir_client_48"), .bits = 48},
    {.name = ngx_string("weir_client_128"), .nginx = ngx_string("remote_addr"), .bits = 128},
    {.name = ngx_string("weir_binary_client"), .nginx = ngx_string("binary_remote_addr"), .bits = 128, .bytes = true},
    {.name = ngx_string("weir_proxy_protocol_addr"),
     .nginx = ngx_string("proxy_protocol_addr"),
     .source = ngx_string("proxy_protocol_addr"),
     .bits = 128},
    {.name = ngx_string("weir_realip_remote_addr"),
     .nginx = ngx_string("realip_remote_addr"),
     .source = ngx_string("realip_remote_addr"),
     .bits = 128},
};

static bool is_of_a_name(u_char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_name(const ngx_str_t *name, const u_char *text, size_t length)
{
    return name->len == length && ngx_strncmp(name->data, text, length) == 0;
}

/* A variable within a text, "$name" or "${name}". */
struct found {
    const u_char *name;
    size_t length;
    const u_char *end; /* behind it */
};

/* The variable that begins at `at`. False: none does. */
static bool find_variable(const u_char *at, const u_char *end, struct found *out)
{
    if (at == end || *at != '$') {
        return false;
    }
    const bool braces = ++at < end && *at == '{';
    at += braces;
    const u_char *const name = at;
    while (at < end && is_of_a_name(*at)) {
        at++;
    }
    *out = (struct found){name, (size_t) (at - name), at + braces};
    return at != name && (!braces || (at < end && *at == '}'));
}

/* The address that a variable is. */
static const struct address *find_address(const struct found *found, bool own)
{
    for (size_t i = 0; i < ADDRESS_COUNT; i++) {
        if (is_name(&addresses[i].nginx, found->name, found->length) ||
            (own && is_name(&addresses[i].name, found->name, found->length))) {
            return &addresses[i];
        }
    }
    return NULL;
}

const struct address *address_of_key(const ngx_str_t *text)
{
    const u_char *const end = text->data + text->len;
    struct found found;
    return find_variable(text->data, end, &found) && found.end == end ? find_address(&found, true) : NULL;
}

/* The text with the module's variables in the place of nginx's. False: no memory. */
static bool replace_names(ngx_conf_t *cf, const ngx_str_t *text, ngx_str_t *out)
{
    static const size_t longest = sizeof("${weir_proxy_protocol_addr}");
    const u_char *const end = text->data + text->len;
    u_char *to = ngx_pnalloc(cf->pool, text->len * longest + 1);
    if (to == NULL) {
        return false;
    }
    out->data = to;
    for (const u_char *at = text->data; at < end;) {
        struct found found;
        const struct address *address = find_variable(at, end, &found) ? find_address(&found, false) : NULL;
        if (address == NULL) {
            *to++ = *at++;
            continue;
        }
        to = ngx_sprintf(to, "${%V}", &address->name);
        at = found.end;
    }
    *to = '\0';
    out->len = (size_t) (to - out->data);
    return true;
}

bool address_compile_key(ngx_conf_t *cf, const ngx_str_t *text, struct expression *out)
{
    ngx_str_t replaced;
    /* As it stands, too: a variable that this nginx does not have is an error. */
    if (!protocol_compile(cf, text, out) || !replace_names(cf, text, &replaced) ||
        !protocol_compile(cf, &replaced, out)) {
        return false;
    }
    out->text = *text;
    return true;
}

/* The bytes of a connection's address: V4_SIZE or V6_SIZE; length 0: it has none. */
static ngx_str_t connection_bytes(const ngx_connection_t *connection)
{
    struct sockaddr *from = connection->sockaddr;
    if (from->sa_family == AF_INET) {
        return (ngx_str_t){V4_SIZE, (u_char *) &((struct sockaddr_in *) (void *) from)->sin_addr};
    }
    if (from->sa_family == AF_INET6) {
        struct in6_addr *address = &((struct sockaddr_in6 *) (void *) from)->sin6_addr;
        return IN6_IS_ADDR_V4MAPPED(address) ? (ngx_str_t){V4_SIZE, address->s6_addr + V6_SIZE - V4_SIZE}
                                             : (ngx_str_t){V6_SIZE, address->s6_addr};
    }
    return (ngx_str_t){0, NULL};
}

/*
 * The bytes of an address, as long as its kind; length 0: it is none. `text` is then what there is. False: no memory.
 */
static bool find_bytes(const struct asker *asker, const struct address *address, ngx_str_t *bytes, ngx_str_t *text)
{
    if (address->source.len == 0) {
        *bytes = connection_bytes(asker->connection);
        *text = asker->connection->addr_text;
        return true;
    }
    u_char terminated[TEXT_SIZE];
    *text = protocol_variable(asker, &address->source);
    bytes->len = 0;
    if (text->len >= sizeof(terminated)) {
        return true;
    }
    (void) ngx_cpystrn(terminated, text->data, text->len + 1);
    bytes->data = ngx_pnalloc(asker->pool, V6_SIZE);
    if (bytes->data == NULL) {
        return false;
    }
    const size_t read = weir_address_form(128)->read(bytes->data, V6_SIZE, (const char *) terminated);
    bytes->len = read <= V6_SIZE ? read : 0;
    return true;
}

bool address_key(const struct asker *asker, const struct address *address, ngx_str_t *out)
{
    ngx_str_t text;
    if (!find_bytes(asker, address, out, &text)) {
        return false;
    }
    if (out->len == 0) {
        *out = text;
    } else if (out->len == V6_SIZE) {
        out->len = address->bits / 8;
    }
    return true;
}

bool address_value(const struct asker *asker, const struct address *address, ngx_str_t *out)
{
    ngx_str_t key;
    ngx_str_t text;
    if (!find_bytes(asker, address, &key, &text)) {
        return false;
    }
    if (key.len == 0 || address->bytes) {
        *out = key.len == 0 ? text : key;
        return true;
    }
    out->data = ngx_pnalloc(asker->pool, TEXT_SIZE);
    if (out->data == NULL) {
        return false;
    }
    const size_t length = key.len == V6_SIZE ? address->bits / 8 : key.len;
    out->len = weir_address_form(address->bits)->write((char *) out->data, TEXT_SIZE, key.data, length);
    return true;
}
