/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies from a YAML file: libcyaml fills in a schema, libyaml tells on which line a thing stands, and what is wrong
 * with the policies themselves is found by policy_validate, as for policies from a program.
 */
#include "policy/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cyaml/cyaml.h>
#include <yaml.h>

#include "base/error.h"
#include "base/numbers.h"
#include "policy/validate.h"

/* A thousand policies of four limits take a tenth of it. */
#define FILE_SIZE_MAX ((size_t) 1 << 20)

/* As the file has it. */
struct file_limit {
    weir_algorithm algorithm;
    uint64_t limit;
    char *period;
    uint64_t burst;
    weir_calendar calendar;
    uint64_t delay;
    char *name;
};

/* A tier: a policy's name goes before its own, and what it does not say is the policy's. */
struct file_tier {
    char *name;
    struct file_limit *limits;
    unsigned limits_count;
};

struct file_policy {
    char *name;
    weir_mode mode;
    weir_scope scope;
    bool hash_keys;
    weir_outage on_outage, on_long_outage;
    char *outage_grace, *long_outage;
    struct file_limit *limits;
    unsigned limits_count;
    struct file_tier *tiers;
    unsigned tiers_count;
};

struct file_root {
    struct file_policy *policies;
    unsigned policies_count;
};

struct policy_file {
    struct file_root *root;
    weir_policy *policies;
    size_t policy_count;
    weir_limit *limits;                   /* of all policies, one after another */
    char (*names)[2 * WEIR_MAX_NAME + 2]; /* of tiers, whole */
    struct place *places;                 /* by policy: where it stands in the file */
};

/* Where something stands in the file; `tier` SIZE_MAX: the policy itself. */
struct place {
    size_t policy, tier;
};

/* clang-format off */
static const cyaml_strval_t algorithms[] = {{"fixed_window", WEIR_FIXED_WINDOW}, {"sliding_window", WEIR_SLIDING_WINDOW},
                                            {"sliding_log", WEIR_SLIDING_LOG}, {"token_bucket", WEIR_TOKEN_BUCKET},
                                            {"leaky_bucket", WEIR_LEAKY_BUCKET}};
static const cyaml_strval_t calendars[] = {{"day", WEIR_CALENDAR_DAY}, {"month", WEIR_CALENDAR_MONTH}};
static const cyaml_strval_t modes[] = {{"enforce", WEIR_ENFORCE}, {"shadow", WEIR_SHADOW}};
static const cyaml_strval_t scopes[] = {{"fleet", WEIR_SCOPE_FLEET}, {"process", WEIR_SCOPE_PROCESS}};
static const cyaml_strval_t outages[] = {{"share", WEIR_OUTAGE_SHARE}, {"local", WEIR_OUTAGE_LOCAL},
                                         {"open", WEIR_OUTAGE_OPEN}, {"closed", WEIR_OUTAGE_CLOSED}};

static const cyaml_schema_field_t limit_fields[] = {
    CYAML_FIELD_ENUM("algorithm", CYAML_FLAG_STRICT, struct file_limit, algorithm, algorithms, CYAML_ARRAY_LEN(algorithms)),
    CYAML_FIELD_UINT("limit", CYAML_FLAG_DEFAULT, struct file_limit, limit),
    CYAML_FIELD_STRING_PTR("period", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct file_limit, period, 0, CYAML_UNLIMITED),
    CYAML_FIELD_UINT("burst", CYAML_FLAG_OPTIONAL, struct file_limit, burst),
    CYAML_FIELD_ENUM("calendar", CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT, struct file_limit, calendar, calendars, CYAML_ARRAY_LEN(calendars)),
    CYAML_FIELD_UINT("delay", CYAML_FLAG_OPTIONAL, struct file_limit, delay),
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct file_limit, name, 0, CYAML_UNLIMITED),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t limit_schema = {CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct file_limit, limit_fields)};

static const cyaml_schema_field_t tier_fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct file_tier, name, 0, CYAML_UNLIMITED),
    CYAML_FIELD_SEQUENCE("limits", CYAML_FLAG_POINTER, struct file_tier, limits, &limit_schema, 0, CYAML_UNLIMITED),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t tier_schema = {CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct file_tier, tier_fields)};

#define POLICY_ENUM(key, member, values)                                                                               \
    CYAML_FIELD_ENUM(key, CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT, struct file_policy, member, values, CYAML_ARRAY_LEN(values))
#define POLICY_STRING(key, flags, member)                                                                              \
    CYAML_FIELD_STRING_PTR(key, (flags) | CYAML_FLAG_POINTER, struct file_policy, member, 0, CYAML_UNLIMITED)

static const cyaml_schema_field_t policy_fields[] = {
    POLICY_STRING("name", CYAML_FLAG_DEFAULT, name),
    POLICY_ENUM("mode", mode, modes),
    POLICY_ENUM("scope", scope, scopes),
    CYAML_FIELD_BOOL("hash_keys", CYAML_FLAG_OPTIONAL, struct file_policy, hash_keys),
    POLICY_ENUM("on_outage", on_outage, outages),
    POLICY_ENUM("on_long_outage", on_long_outage, outages),
    POLICY_STRING("outage_grace", CYAML_FLAG_OPTIONAL, outage_grace),
    POLICY_STRING("long_outage", CYAML_FLAG_OPTIONAL, long_outage),
    CYAML_FIELD_SEQUENCE("limits", CYAML_FLAG_POINTER, struct file_policy, limits, &limit_schema, 0, CYAML_UNLIMITED),
    CYAML_FIELD_SEQUENCE("tiers", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct file_policy, tiers, &tier_schema, 0, CYAML_UNLIMITED),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t policy_schema = {CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct file_policy, policy_fields)};

static const cyaml_schema_field_t root_fields[] = {
    CYAML_FIELD_SEQUENCE("policies", CYAML_FLAG_POINTER, struct file_root, policies, &policy_schema, 0, CYAML_UNLIMITED),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t root_schema = {CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct file_root, root_fields)};
/* clang-format on */

/* What libcyaml says of an error: what, and the innermost place it stands. */
struct complaint {
    char what[100];
    char field[48];
    unsigned line;
};

static void hear(cyaml_log_t level, void *context, const char *format, va_list arguments)
{
    struct complaint *complaint = context;
    char text[160];
    (void) level;
    (void) vsnprintf(text, sizeof(text), format, arguments);
    text[strcspn(text, "\r\n")] = '\0';
    const char *line = strstr(text, "(line: ");
    if (line != NULL) {
        const char *in = strstr(text, "in mapping field '");
        if (in != NULL && complaint->field[0] == '\0') {
            in += strlen("in mapping field '");
            (void) snprintf(complaint->field, sizeof(complaint->field), "%.*s", (int) strcspn(in, "'"), in);
        }
        if (complaint->line == 0) {
            complaint->line = (unsigned) strtoul(line + strlen("(line: "), NULL, 10);
        }
    } else if (complaint->what[0] == '\0' && strstr(text, "Backtrace") == NULL) {
        const char *what = strncmp(text, "Load: ", 6) == 0 ? text + 6 : text;
        (void) snprintf(complaint->what, sizeof(complaint->what), "%.99s", what);
    }
    for (char *c = complaint->what; *c != '\0'; c++) {
        *c = (unsigned char) *c < ' ' || (unsigned char) *c >= 0x7f ? '?' : *c;
    }
}

static const cyaml_config_t base_config = {
    .log_fn = hear, .mem_fn = cyaml_mem, .log_level = CYAML_LOG_ERROR, .flags = CYAML_CFG_NO_ALIAS};

/* The value of a field of a mapping; NULL: none. *line: where its key stands. */
static yaml_node_t *field_of(yaml_document_t *document, const yaml_node_t *mapping, const char *field, unsigned *line)
{
    if (mapping == NULL || mapping->type != YAML_MAPPING_NODE) {
        return NULL;
    }
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start; pair < mapping->data.mapping.pairs.top;
         pair++) {
        const yaml_node_t *key = yaml_document_get_node(document, pair->key);
        if (key != NULL && key->type == YAML_SCALAR_NODE && strcmp((const char *) key->data.scalar.value, field) == 0) {
            *line = (unsigned) key->start_mark.line + 1;
            return yaml_document_get_node(document, pair->value);
        }
    }
    return NULL;
}

static yaml_node_t *entry_of(yaml_document_t *document, const yaml_node_t *sequence, size_t index, unsigned *line)
{
    if (sequence == NULL || sequence->type != YAML_SEQUENCE_NODE) {
        return NULL;
    }
    const yaml_node_item_t *item = sequence->data.sequence.items.start + index;
    yaml_node_t *node = item < sequence->data.sequence.items.top ? yaml_document_get_node(document, *item) : NULL;
    if (node != NULL) {
        *line = (unsigned) node->start_mark.line + 1;
    }
    return node;
}

/* A policy's or a tier's mapping; *line: where it stands. */
static yaml_node_t *node_of(yaml_document_t *document, struct place place, unsigned *line)
{
    yaml_node_t *node = field_of(document, yaml_document_get_root_node(document), "policies", line);
    node = entry_of(document, node, place.policy, line);
    if (place.tier != SIZE_MAX) {
        node = entry_of(document, field_of(document, node, "tiers", line), place.tier, line);
    }
    return node;
}

/* The line of a policy (`limit_index` SIZE_MAX) or a limit, or of a field of it where that is there. */
static unsigned line_of(yaml_document_t *document, struct place place, size_t limit_index, const char *field)
{
    unsigned line = 1;
    const yaml_node_t *node = node_of(document, place, &line);
    if (limit_index != SIZE_MAX) {
        node = entry_of(document, field_of(document, node, "limits", &line), limit_index, &line);
    }
    if (field != NULL) {
        (void) field_of(document, node, field, &line);
    }
    return line;
}

/* The line of the first mapping key of this name, wherever it stands; 0: there is none. */
static unsigned line_of_key(yaml_document_t *document, const char *key)
{
    for (const yaml_node_t *node = document->nodes.start; node < document->nodes.top; node++) {
        unsigned line = 0;
        if (field_of(document, node, key, &line) != NULL) {
            return line;
        }
    }
    return 0;
}

/* Whether a field that is there is a whole number and nothing else; libcyaml would take "10x" for 10, and "-1" too. */
static bool is_whole_number(yaml_document_t *document, struct place place, size_t limit_index, const char *field)
{
    unsigned line;
    const yaml_node_t *node = field_of(document, node_of(document, place, &line), "limits", &line);
    node = field_of(document, entry_of(document, node, limit_index, &line), field, &line);
    if (node == NULL) {
        return true;
    }
    const char *text = (const char *) node->data.scalar.value; /* a scalar: libcyaml has seen to that */
    return *text != '\0' && text[strspn(text, "0123456789")] == '\0' && strlen(text) <= 19;
}

/* The file's own name for a field of weir.h. */
static const char *field_in_file(const char *field)
{
    return strcmp(field, "period_ns") == 0         ? "period"
           : strcmp(field, "outage_grace_ms") == 0 ? "outage_grace"
           : strcmp(field, "long_outage_ms") == 0  ? "long_outage"
                                                   : field;
}

/* "90s", "1m30s": whole numbers, each with its unit. */
static bool duration_parse(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ns", 1},
                 {"us", NS_PER_US},
                 {"ms", NS_PER_MS},
                 {"s", NS_PER_S},
                 {"m", 60 * NS_PER_S},
                 {"h", 3600 * NS_PER_S},
                 {"d", 86400 * NS_PER_S}};
    *out = 0;
    if (*text == '\0') {
        return false;
    }
    while (*text != '\0') {
        uint64_t number = 0;
        const char *digits = text;
        for (; *text >= '0' && *text <= '9'; text++) {
            number = saturating_add(saturating_mul(number, 10), (uint64_t) (*text - '0'));
        }
        const size_t length = strspn(text, "nusmhd");
        uint64_t unit = 0;
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
            if (strlen(units[i].name) == length && strncmp(units[i].name, text, length) == 0) {
                unit = units[i].ns;
            }
        }
        if (digits == text || unit == 0) {
            return false;
        }
        text += length;
        *out = saturating_add(*out, saturating_mul(number, unit));
    }
    return *out != UINT64_MAX;
}

/* Everything one load works with. */
struct load {
    const char *path;
    yaml_document_t *document;
    struct policy_file *file;
    weir_error *error;
};

static int bad_duration(const struct load *load, struct place place, size_t limit, const char *field, const char *value)
{
    return error_set(load->error, -EINVAL,
                     "%s:%u: %s \"%.40s\" is no duration; give whole numbers with a unit, such as \"10s\" or \"1m30s\"",
                     load->path, line_of(load->document, place, limit, field), field, value);
}

static int duration_ms(const struct load *load, struct place place, const char *field, const char *value, uint32_t *out)
{
    uint64_t ns = 0;
    if (value != NULL && !duration_parse(value, &ns)) {
        return bad_duration(load, place, SIZE_MAX, field, value);
    }
    *out = (uint32_t) min_u64((ns + NS_PER_MS - 1) / NS_PER_MS, UINT32_MAX);
    return 0;
}

static int convert_limits(const struct load *load, struct place place, const char *name, const struct file_limit *from,
                          size_t count, weir_limit *to)
{
    static const char *const numbers[] = {"limit", "burst", "delay"};
    for (size_t j = 0; j < count; j++) {
        to[j] = (weir_limit){.algorithm = from[j].algorithm,
                             .limit = from[j].limit,
                             .burst = from[j].burst,
                             .calendar = from[j].calendar,
                             .delay = from[j].delay,
                             .name = from[j].name};
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
            if (!is_whole_number(load->document, place, j, numbers[i])) {
                return error_set(
                    load->error, -EINVAL,
                    "%s:%u: policy \"%s\": limit %zu has a %s that is no whole number; give units such as 1000",
                    load->path, line_of(load->document, place, j, numbers[i]), name, j + 1, numbers[i]);
            }
        }
        if (from[j].period != NULL && from[j].calendar != WEIR_CALENDAR_NONE) {
            return error_set(load->error, -EINVAL,
                             "%s:%u: policy \"%s\": limit %zu has a calendar and a period; give one of them",
                             load->path, line_of(load->document, place, j, "calendar"), name, j + 1);
        }
        if (from[j].period != NULL && !duration_parse(from[j].period, &to[j].period_ns)) {
            return bad_duration(load, place, j, "period", from[j].period);
        }
    }
    return 0;
}

/* Reserves what the policies of the file, tiers among them, take in weir.h's form. */
static bool convert_reserve(struct policy_file *file)
{
    size_t limit_count = 0;
    size_t tier_count = 0;
    for (size_t i = 0; i < file->root->policies_count; i++) {
        const struct file_policy *policy = &file->root->policies[i];
        limit_count += policy->limits_count;
        tier_count += policy->tiers_count;
        for (size_t j = 0; j < policy->tiers_count; j++) {
            limit_count += policy->tiers[j].limits_count;
        }
    }
    const size_t count = file->root->policies_count + tier_count;
    file->policies = calloc(count + 1, sizeof(*file->policies));
    file->limits = calloc(limit_count + 1, sizeof(*file->limits));
    file->names = calloc(count + 1, sizeof(*file->names));
    file->places = calloc(count + 1, sizeof(*file->places));
    return file->policies != NULL && file->limits != NULL && file->names != NULL && file->places != NULL;
}

/* From the file's form to weir.h's. */
static int convert(const struct load *load)
{
    struct policy_file *file = load->file;
    if (!convert_reserve(file)) {
        return error_set(load->error, -ENOMEM, "%s: out of memory for its policies", load->path);
    }
    weir_limit *limit = file->limits;
    for (size_t i = 0; i < file->root->policies_count; i++) {
        const struct file_policy *from = &file->root->policies[i];
        const struct place place = {i, SIZE_MAX};
        weir_policy policy = {.name = from->name,
                              .limits = limit,
                              .limit_count = from->limits_count,
                              .mode = from->mode,
                              .scope = from->scope,
                              .hash_keys = from->hash_keys,
                              .on_outage = from->on_outage,
                              .on_long_outage = from->on_long_outage};
        int result = duration_ms(load, place, "outage_grace", from->outage_grace, &policy.outage_grace_ms);
        result =
            result != 0 ? result : duration_ms(load, place, "long_outage", from->long_outage, &policy.long_outage_ms);
        result =
            result != 0 ? result : convert_limits(load, place, from->name, from->limits, from->limits_count, limit);
        limit += from->limits_count;
        file->places[file->policy_count] = place;
        file->policies[file->policy_count++] = policy;
        for (size_t j = 0; j < from->tiers_count && result == 0; j++) {
            const struct file_tier *tier = &from->tiers[j];
            char *name = file->names[file->policy_count];
            (void) snprintf(name, sizeof(file->names[0]), "%.*s/%.*s", WEIR_MAX_NAME, from->name, WEIR_MAX_NAME,
                            tier->name);
            policy.name = name;
            policy.limits = limit;
            policy.limit_count = tier->limits_count;
            result = convert_limits(load, (struct place){i, j}, name, tier->limits, tier->limits_count, limit);
            limit += tier->limits_count;
            file->places[file->policy_count] = (struct place){i, j};
            file->policies[file->policy_count++] = policy;
        }
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

/* Asks libcyaml for the file's policies. */
static int load_schema(const struct load *load, const unsigned char *text, size_t size)
{
    struct complaint complaint = {.line = 0};
    cyaml_config_t config = base_config;
    config.log_ctx = &complaint;
    const cyaml_err_t result =
        cyaml_load_data(text, size, &config, &root_schema, (cyaml_data_t **) &load->file->root, NULL);
    if (result == CYAML_OK && load->file->root != NULL && load->file->root->policies_count != 0) {
        return 0;
    }
    if (result == CYAML_OK) {
        return error_set(load->error, -EINVAL,
                         "%s:1: there are no policies; give a list named \"policies\" with at least one", load->path);
    }
    static const char unexpected[] = "Unexpected key: ";
    if (strncmp(complaint.what, unexpected, sizeof(unexpected) - 1) == 0) {
        const char *key = complaint.what + sizeof(unexpected) - 1;
        const unsigned line = line_of_key(load->document, key);
        return error_set(load->error, -EINVAL,
                         "%s:%u: there is no field \"%.40s\" here; see docs/policies.md for the fields there are",
                         load->path, line != 0 ? line : complaint.line, key);
    }
    const bool enumerated = strstr(complaint.what, "enumeration") != NULL || strstr(complaint.what, "ENUM") != NULL;
    return error_set(load->error, result == CYAML_ERR_OOM ? -ENOMEM : -EINVAL,
                     "%s:%u: %s%s%s%s%s; see docs/policies.md%s", load->path, complaint.line != 0 ? complaint.line : 1,
                     complaint.field[0] != '\0' ? "field \"" : "", complaint.field,
                     complaint.field[0] != '\0' ? "\": " : "",
                     complaint.what[0] != '\0' ? complaint.what : cyaml_strerror(result),
                     result == CYAML_ERR_ALIAS ? " (aliases are not allowed)" : "",
                     enumerated ? " for the values there are" : " for the fields there are");
}

static int load_document(const struct load *load, const unsigned char *text, size_t size)
{
    yaml_parser_t parser;
    if (yaml_parser_initialize(&parser) == 0) {
        return error_set(load->error, -ENOMEM, "%s: out of memory", load->path);
    }
    yaml_parser_set_input_string(&parser, text, size);
    if (yaml_parser_load(&parser, load->document) == 0) {
        const int result =
            error_set(load->error, -EINVAL, "%s:%zu: this is not YAML: %s", load->path, parser.problem_mark.line + 1,
                      parser.problem != NULL ? parser.problem : "unreadable");
        yaml_parser_delete(&parser);
        return result;
    }
    int result = load_schema(load, text, size);
    result = result != 0 ? result : convert(load);
    if (result == 0) {
        struct policy_fault fault = {0, SIZE_MAX, NULL};
        weir_error error;
        result = policy_validate(load->file->policies, load->file->policy_count, &fault, &error);
        if (result != 0) {
            (void) error_set(load->error, result, "%s:%u: %s", load->path,
                             line_of(load->document, load->file->places[fault.policy_index], fault.limit_index,
                                     fault.field != NULL ? field_in_file(fault.field) : NULL),
                             error.message);
        }
    }
    yaml_document_delete(load->document);
    yaml_parser_delete(&parser);
    return result;
}

/* Reads the whole file. *text is malloc'ed. */
static int read_file(const char *path, unsigned char **text, size_t *size, weir_error *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) {
        const int result = -errno;
        if (fd >= 0) {
            (void) close(fd);
        }
        return error_set(error, result, "%s: cannot be read: %s", path, strerror(-result));
    }
    int result = 0;
    *size = 0;
    *text = NULL;
    if (!S_ISREG(status.st_mode)) {
        result = error_set(error, S_ISDIR(status.st_mode) ? -EISDIR : -EINVAL,
                           "%s: is no regular file; give a YAML file", path);
    } else if ((uint64_t) status.st_size > FILE_SIZE_MAX) {
        result = error_set(error, -EFBIG, "%s: is larger than 1 MiB; a policy takes some 100 bytes", path);
    } else if ((*text = malloc((size_t) status.st_size + 1)) == NULL) {
        result = error_set(error, -ENOMEM, "%s: out of memory", path);
    }
    while (result == 0 && *size < (size_t) status.st_size) {
        const ssize_t got = read(fd, *text + *size, (size_t) status.st_size - *size);
        if (got < 0 && errno != EINTR) {
            result = error_set(error, -errno, "%s: cannot be read: %s", path, strerror(errno));
        }
        if (got == 0) {
            break; /* it has become shorter */
        }
        *size += got > 0 ? (size_t) got : 0;
    }
    (void) close(fd);
    return result;
}

int policy_file_load(const char *path, struct policy_file **out, weir_error *error)
{
    unsigned char *text = NULL;
    size_t size = 0;
    int result = read_file(path, &text, &size, error);
    if (result != 0) {
        free(text);
        return result;
    }
    struct policy_file *file = calloc(1, sizeof(*file));
    if (file == NULL) {
        free(text);
        return error_set(error, -ENOMEM, "%s: out of memory", path);
    }
    yaml_document_t document;
    const struct load load = {.path = path, .document = &document, .file = file, .error = error};
    result = load_document(&load, text, size);
    free(text);
    if (result != 0) {
        policy_file_free(file);
        return result;
    }
    *out = file;
    return error_clear(error);
}

const weir_policy *policy_file_policies(const struct policy_file *file, size_t *count)
{
    *count = file->policy_count;
    return file->policies;
}

void policy_file_free(struct policy_file *file)
{
    if (file != NULL) {
        if (file->root != NULL) {
            (void) cyaml_free(&base_config, &root_schema, file->root, 0);
        }
        free(file->policies);
        free(file->limits);
        free(file->names);
        free(file->places);
        free(file);
    }
}
