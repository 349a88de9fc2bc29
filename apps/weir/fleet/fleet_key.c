/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See fleet_key.h. The key is read as an override's name is, and its record is named by what the library has for that.
 */
#include "fleet_key.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../policy_probe.h"
#include "base/error.h"
#include "limiter/weir_private.h"
#include "policy/policy_set.h"
#include "policy/words.h"

/* The least keys that a weir can hold. Nothing is checked here. */
#define KEYS_LEAST 1000

/* Bytes of a secret, which is at most 1,024, with its line end and terminator. */
#define SECRET_SIZE 1040

/* An address as it is typed, and the form of keys that it is one of. */
#define ADDRESS_TEXT_SIZE 80

static int read_secret(const char *path, char secret[SECRET_SIZE], weir_error *error)
{
    FILE *file = fopen(path, "re");
    const bool read = file != NULL && fgets(secret, SECRET_SIZE, file) != NULL;
    const int code = file == NULL ? errno : 0;
    if (file != NULL) {
        (void) fclose(file);
    }
    if (!read) {
        return error_set(error, -EIO, "%s: %s", path, code != 0 ? strerror(code) : "the first line is no secret");
    }
    secret[strcspn(secret, "\r\n")] = '\0';
    return 0;
}

static enum fleet_key_opened open_weir(struct fleet_key *out, const struct fleet_key_options *from, weir_error *error)
{
    char secret[SECRET_SIZE];
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.max_keys = KEYS_LEAST;
    options.max_threads = 1;
    options.prefix = from->prefix;
    if (from->secret_file != NULL) {
        if (read_secret(from->secret_file, secret, error) != 0) {
            return FLEET_KEY_UNREAD;
        }
        options.fleet_secret = secret;
    }
    const int opened = weir_open(&options, &out->weir, error);
    explicit_bzero(secret, sizeof(secret));
    if (opened != 0) {
        return opened == -EINVAL ? FLEET_KEY_USAGE : FLEET_KEY_UNREAD;
    }
    (void) snprintf(out->prefix, sizeof(out->prefix), "%s", from->prefix != NULL ? from->prefix : "weir");
    const int loaded = policy_probe_load_keys(out->weir, from->file, PROBE_KEYS_GUESSED, &out->of_gateway, error);
    if (loaded != 0) {
        return policy_probe_is_bad(loaded) ? FLEET_KEY_FILE : FLEET_KEY_UNREAD;
    }
    return FLEET_KEY_OPENED;
}

/* The policy of the file that has this name. */
static enum fleet_key_opened find_policy(struct fleet_key *out, const char *name, weir_error *error)
{
    const struct policy_set *set = process_policies(&out->weir->limiter.process); /* no thread changes it */
    const char *names[WEIR_MAX_POLICIES];
    out->policy = policy_set_by_id(set, policy_names_find(&out->weir->names, name));
    if (out->policy != NULL) {
        return FLEET_KEY_OPENED;
    }
    for (size_t i = 0; i < set->count; i++) {
        names[i] = set->policies[i].name;
    }
    const struct words words = {.names = names, .count = set->count};
    const char *meant = words_meant(&words, name);
    if (meant != NULL) {
        (void) error_set(error, -ENOENT, "the file has no policy \"%.60s\"; did you mean \"%s\"?", name, meant);
    } else {
        (void) error_set(error, -ENOENT, "the file has no policy \"%.60s\"; weir check lists those that it has", name);
    }
    return FLEET_KEY_USAGE;
}

/* The bits of the IPv6 addresses that are keys, by how the key looks: 2001:db8::/64 is one key of 64 bits. 0: bytes. */
static unsigned guess_bits(const char *key)
{
    unsigned char bytes[16];
    char text[ADDRESS_TEXT_SIZE];
    const char *slash = strchr(key, '/');
    const size_t length = slash != NULL ? (size_t) (slash - key) : strlen(key);
    if (length >= sizeof(text)) {
        return 0;
    }
    memcpy(text, key, length);
    text[length] = '\0';
    if (inet_pton(AF_INET, text, bytes) == 1) {
        return 128;
    }
    if (inet_pton(AF_INET6, text, bytes) != 1) {
        return 0;
    }
    const unsigned bits = slash != NULL ? (unsigned) strtoul(slash + 1, NULL, 10) : 128;
    return bits == 64 || bits == 56 || bits == 48 ? bits : 128;
}

/* False: there is no form of that name. *bits 0: keys are bytes. */
static bool read_form(const char *form, const char *key, unsigned *bits)
{
    static const struct {
        const char *name;
        unsigned bits;
    } forms[] = {{"bytes", 0},         {"addresses", 128},   {"addresses/128", 128},
                 {"addresses/64", 64}, {"addresses/56", 56}, {"addresses/48", 48}};
    if (form == NULL) {
        *bits = guess_bits(key);
        return true;
    }
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (strcmp(forms[i].name, form) == 0) {
            *bits = forms[i].bits;
            return true;
        }
    }
    return false;
}

/* Writes the text of the key that an address is counted in. False: the key is no whole address, or a form's own. */
static bool write_counted(const weir_key_form *form, const char *address, char *out, size_t size)
{
    struct key_layout layout;
    unsigned char bytes[KEY_FORM_ADDRESS_SIZE] = {0};
    const bool is_plain = strchr(address, ':') == NULL;
    if (form == NULL || !key_form_layout(form, &layout) ||
        inet_pton(is_plain ? AF_INET : AF_INET6, address, bytes) != 1) {
        return false;
    }
    const size_t mapped = is_plain ? 0 : key_form_mapped(bytes, 16);
    const bool v4 = is_plain || mapped != 0;
    memmove(bytes, bytes + mapped, sizeof(bytes) - mapped);
    const size_t length = v4 ? layout.v4.length : layout.v6.length;
    const unsigned bits = v4 ? layout.v4.bits : layout.v6.bits;
    for (unsigned bit = bits; bit < 128; bit++) {
        bytes[bit / 8] &= (unsigned char) ~(0x80U >> bit % 8);
    }
    if (layout.is_network && length != 0) {
        bytes[length - 1] = (unsigned char) bits;
    }
    const size_t written = length != 0 ? form->write(out, size, bytes, length) : 0;
    return written != 0;
}

/* Reads the key of the command line, in its form, into out->name. */
static enum fleet_key_opened read_key(struct fleet_key *out, const struct fleet_key_options *from, weir_error *error)
{
    unsigned bits = 0;
    char network[ADDRESS_TEXT_SIZE];
    char typed[ENTRY_NAME_SIZE];
    const char *key = from->key;
    if (!read_form(from->form, key, &bits)) {
        (void) error_set(error, -EINVAL, "--keys is \"%.60s\"; give bytes, addresses, or addresses/64, /56 or /48",
                         from->form);
        return FLEET_KEY_USAGE;
    }
    const bool is_known = out->of_gateway && from->form == NULL;
    out->guessed = from->form == NULL && !is_known;
    const weir_key_form *form = is_known    ? policy_names_form(&out->weir->names, out->policy->base)
                                : bits != 0 ? weir_address_form(bits)
                                            : NULL;
    if (write_counted(form, key, network, sizeof(network))) {
        key = network;
    }
    const size_t length = strlen(out->policy->name);
    if (length + 1 + strlen(key) >= sizeof(typed)) {
        (void) error_set(error, -E2BIG, "the key is too long; a name has at most %d bytes", KEY_FORM_SIZE);
        return FLEET_KEY_USAGE;
    }
    memcpy(typed, out->policy->name, length);
    typed[length] = ':';
    memcpy(typed + length + 1, key, strlen(key) + 1);
    /* Another form makes another set of policies, and the policy is found in it anew. */
    if ((policy_names_form(&out->weir->names, out->policy->base) != form &&
         weir_set_key_form(out->weir, out->policy->base, form, error) != 0) ||
        entry_name_read(&out->weir->names, typed, &out->name, error) != 0) {
        return FLEET_KEY_USAGE;
    }
    out->is_network = out->name.kind == ENTRY_NETWORK;
    out->name.form = form; /* of the policy's tiers, too */
    return FLEET_KEY_OPENED;
}

/* Sets what the key is called: in records, and by overrides. */
static void name_key(struct fleet_key *out, const char *typed)
{
    struct key_name kept;
    if (out->name.kind == ENTRY_KEY) {
        const weir_key key = {.data = out->name.bytes, .length = (uint32_t) out->name.length};
        key_name_make(&kept, &out->weir->record_hash, out->policy, &key);
        (void) key_name_write(out->text, &kept, out->name.form);
    } else {
        (void) snprintf(out->text, sizeof(out->text), "%s", typed); /* a hash has been read from it */
    }
    entry_name_write(&out->name, out->full_name);
}

enum fleet_key_opened fleet_key_open(struct fleet_key *out, const struct fleet_key_options *options, weir_error *error)
{
    memset(out, 0, sizeof(*out));
    enum fleet_key_opened opened = open_weir(out, options, error);
    opened = opened == FLEET_KEY_OPENED ? find_policy(out, options->policy, error) : opened;
    opened = opened == FLEET_KEY_OPENED ? read_key(out, options, error) : opened;
    opened =
        opened == FLEET_KEY_OPENED ? find_policy(out, options->policy, error) : opened; /* in the set as it is now */
    if (opened == FLEET_KEY_OPENED) {
        name_key(out, options->key);
    }
    return opened;
}

void fleet_key_name(const struct fleet_key *key, const char *policy, char out[ENTRY_NAME_SIZE])
{
    /* The name of a hashed key has the hash alone; that of its record may have the key's first bytes, too. */
    const char *text = key->name.kind == ENTRY_HASHED ? key->text : strchr(key->full_name, ':') + 1;
    (void) snprintf(out, ENTRY_NAME_SIZE, "%s:%s", policy, text);
}

void fleet_key_close(struct fleet_key *key)
{
    weir_close(key->weir);
    key->weir = NULL;
}

/* A limit as the program's interface has it. Its name belongs to `limit`. */
static weir_limit limit_of(const struct policy_limit *limit)
{
    const struct rule *rule = &limit->rule;
    return (weir_limit){.algorithm = rule->algorithm,
                        .limit = limit->per_period,
                        .period_ns = rule->period_ns,
                        .burst = rule->limit,
                        .calendar = rule->calendar,
                        .delay = rule->ahead,
                        .name = limit->name};
}

weir_policy fleet_key_policy(const struct fleet_key *key, weir_limit limits[WEIR_MAX_LIMITS])
{
    for (size_t i = 0; i < key->policy->limit_count; i++) {
        limits[i] = limit_of(&key->policy->limits[i]);
    }
    return (weir_policy){.name = key->policy->name,
                         .limits = limits,
                         .limit_count = key->policy->limit_count,
                         .mode = key->policy->mode,
                         .scope = key->policy->scope};
}
