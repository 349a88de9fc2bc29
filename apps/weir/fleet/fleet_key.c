/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See fleet_key.h. The key is read as an override's name is, and its record is named by what the library has for that.
 * Overrides are looked for in the order of policy/override_set.c: of the key, of its hash, of the smallest network; of
 * two for one of these, that in Redis.
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

enum fleet_key_opened fleet_key_open_file(struct fleet_key *out, const struct fleet_key_options *options,
                                          weir_error *error)
{
    memset(out, 0, sizeof(*out));
    return open_weir(out, options, error);
}

/* Frees what is known of the key before. */
static void forget_override(struct fleet_key *key)
{
    free(key->override_name);
    free(key->override_value);
    key->override_name = key->override_value = NULL;
    key->source = OVERRIDE_NOWHERE;
}

enum fleet_key_opened fleet_key_choose(struct fleet_key *out, const struct fleet_key_options *options,
                                       weir_error *error)
{
    forget_override(out);
    memset(&out->in_force, 0, sizeof(out->in_force));
    enum fleet_key_opened opened = find_policy(out, options->policy, error);
    opened = opened == FLEET_KEY_OPENED ? read_key(out, options, error) : opened;
    opened =
        opened == FLEET_KEY_OPENED ? find_policy(out, options->policy, error) : opened; /* in the set as it is now */
    if (opened != FLEET_KEY_OPENED) {
        return opened;
    }
    name_key(out, options->key);
    policy_override(&out->in_force, out->policy, NULL, NULL, &out->weir->names, out->weir->limiter.tick_ns);
    return FLEET_KEY_OPENED;
}

enum fleet_key_opened fleet_key_open(struct fleet_key *out, const struct fleet_key_options *options, weir_error *error)
{
    const enum fleet_key_opened opened = fleet_key_open_file(out, options, error);
    return opened == FLEET_KEY_OPENED ? fleet_key_choose(out, options, error) : opened;
}

void fleet_key_close(struct fleet_key *key)
{
    weir_close(key->weir);
    key->weir = NULL;
    forget_override(key);
}

/* Whether the first `bits` bits agree. */
static bool has_prefix(const unsigned char *bytes, const unsigned char *prefix, unsigned bits)
{
    const unsigned rest = bits % 8;
    return memcmp(bytes, prefix, bits / 8) == 0 &&
           (rest == 0 || (bytes[bits / 8] ^ prefix[bits / 8]) >> (8 - rest) == 0);
}

/* Whether an override of this name is one of the key, for its policy; and before which others. 0: it is none. */
static unsigned rank_own(const struct fleet_key *key, const struct entry_name *name)
{
    unsigned char hash[RECORD_HASH_SIZE];
    const struct entry_name *own = &key->name;
    if (strcmp(name->policy, key->policy->name) != 0) {
        return 0;
    }
    switch (name->kind) {
    case ENTRY_KEY:
        return own->kind == ENTRY_KEY && own->length == name->length &&
                       memcmp(own->bytes, name->bytes, name->length) == 0
                   ? 300
                   : 0;
    case ENTRY_HASHED:
        if (own->kind == ENTRY_NETWORK) {
            return 0;
        }
        memcpy(hash, own->bytes, sizeof(hash));
        if (own->kind == ENTRY_KEY) {
            record_hash_of(&key->weir->record_hash, own->bytes, own->length, hash);
        }
        return memcmp(hash, name->bytes, sizeof(hash)) == 0 ? 299 : 0;
    case ENTRY_NETWORK:
        if (own->kind == ENTRY_NETWORK) {
            return own->network.length == name->network.length && own->network.bits >= name->network.bits &&
                           has_prefix(own->network.bytes, name->network.bytes, name->network.bits)
                       ? name->network.bits + 1
                       : 0;
        }
        return own->kind == ENTRY_KEY && own->length == name->network.length &&
                       has_prefix(own->bytes, name->network.bytes, name->network.bits)
                   ? name->network.bits + 1
                   : 0;
    }
    return 0;
}

/* The same of all overrides. One of all policies is as if it were there for the key's, behind one of its own. */
static unsigned rank(const struct fleet_key *key, const struct entry_name *name)
{
    struct entry_name in;
    if (!entry_name_is_of_all(name)) {
        return 2 * rank_own(key, name);
    }
    const bool is_there = entry_name_in(&key->weir->names, key->policy->name, name, &in);
    const unsigned own = is_there ? rank_own(key, &in) : 0;
    return own != 0 ? 2 * own - 1 : 0;
}

/* What has been found so far. */
struct found {
    uint64_t now_ns; /* fleet time */
    unsigned best;   /* the rank of the override in force; 0: none */
};

/* Puts an override in force if it is the key's, well-formed, and before the one that is. 0 or -ENOMEM. */
static int consider(struct fleet_key *key, const char *typed, const char *text, enum override_source source,
                    struct found *found)
{
    struct entry_name name;
    struct entry_value value;
    if (entry_name_read(&key->weir->names, typed, &name, NULL) != 0) {
        return 0;
    }
    const unsigned its_rank = rank(key, &name);
    const bool good = entry_name_is_of_all(&name) ? entry_value_read_all(text, &value, NULL) == 0
                                                  : entry_value_compile(key->policy, text, &value, NULL) == 0;
    if (its_rank <= found->best || !good) {
        return 0;
    }
    if (value.until_ns != 0 && value.until_ns <= found->now_ns) {
        return 0; /* it has ended */
    }
    free(key->override_name);
    free(key->override_value);
    key->override_name = strdup(typed);
    key->override_value = strdup(text);
    if (key->override_name == NULL || key->override_value == NULL) {
        return -ENOMEM;
    }
    found->best = its_rank;
    key->source = source;
    policy_override(&key->in_force, key->policy, value.override == OVERRIDE_NONE ? value.limits : NULL, value.bursts,
                    &key->weir->names, key->weir->limiter.tick_ns);
    key->in_force.override = value.override;
    return 0;
}

int fleet_key_find_override(struct fleet_key *key, const struct hash_entries *entries, uint64_t now_ns)
{
    const struct override_list *of_file = &key->weir->overrides[OVERRIDES_FILE];
    struct found found = {.now_ns = now_ns};
    int result = 0;
    for (size_t i = 0; i < entries->count && i < OVERRIDES_MAX && result == 0; i++) {
        const struct hash_entry *entry = &entries->all[i];
        if (strlen(entry->name) + strlen(entry->value) <= OVERRIDE_SIZE_MAX) {
            result = consider(key, entry->name, entry->value, OVERRIDE_IN_REDIS, &found);
        }
    }
    for (size_t i = 0; i < of_file->count && result == 0; i++) {
        result = consider(key, of_file->texts[i].field, of_file->texts[i].value, OVERRIDE_IN_FILE, &found);
    }
    return result;
}

weir_limit fleet_key_limit(const struct policy_limit *limit)
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
        limits[i] = fleet_key_limit(&key->policy->limits[i]);
    }
    return (weir_policy){.name = key->policy->name,
                         .limits = limits,
                         .limit_count = key->policy->limit_count,
                         .mode = key->policy->mode,
                         .scope = key->policy->scope};
}
