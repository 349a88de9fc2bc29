/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libyaml 0.2.5 takes quadratic time for what its loader nests and anchors, and for %TAG directives. Its scanner and
 * parser alone look at most 1,024 characters ahead of the event that they give. So a bound on the depth of events
 * bounds their work, too. Each directive is compared with all directives before it, before any event comes.
 */
#include "policy/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

/* A limit of a tier stands at 7, its values at 8. */
#define DEPTH_MAX 16

/* A limit has seven fields. */
#define LINES_BACK 8

#define STANDARD_TAG "tag:yaml.org,2002:"

struct builder {
    const struct text_file *file;
    struct tree *tree;
    size_t depth, document_count;
    struct {
        uint32_t node, last; /* its last child so far */
    } open[DEPTH_MAX];       /* lists and mappings, outermost first */
};

static struct place place_of(yaml_mark_t mark)
{
    return (struct place){(uint32_t) mark.line + 1, (uint32_t) mark.column + 1};
}

static int out_of_memory(const struct text_file *file)
{
    return text_file_fail(file, (struct place){0}, -ENOMEM, "out of memory");
}

size_t tree_child_count(const struct tree *tree, const struct tree_node *node)
{
    size_t count = 0;
    for (const struct tree_node *child = tree_child(tree, node); child != NULL; child = tree_next(tree, child)) {
        count++;
    }
    return count;
}

const struct tree_node *tree_find(const struct tree *tree, const struct tree_node *mapping, const char *field)
{
    if (mapping == NULL || mapping->kind != TREE_MAPPING) {
        return NULL;
    }
    for (const struct tree_node *key = tree_child(tree, mapping); key != NULL;) {
        const struct tree_node *value = tree_next(tree, key);
        if (strcmp(tree_text(tree, key), field) == 0) {
            return value;
        }
        key = tree_next(tree, value);
    }
    return NULL;
}

/* Room for one more of `size` bytes each, of which there are `count`. */
static void *grown(void *array, size_t count, size_t more, size_t *room, size_t size)
{
    if (count + more <= *room) {
        return array;
    }
    const size_t wanted = 2 * (count + more) + 64;
    void *larger = realloc(array, wanted * size);
    if (larger != NULL) {
        *room = wanted;
    }
    return larger;
}

static bool keep_text(struct tree *tree, const char *text, size_t size)
{
    char *larger = grown(tree->text, tree->text_size, size + 1, &tree->text_room, 1);
    if (larger == NULL) {
        return false;
    }
    tree->text = larger;
    memcpy(tree->text + tree->text_size, text, size);
    tree->text[tree->text_size + size] = '\0';
    tree->text_size += size + 1;
    return true;
}

/* Adds a node after the last child of what is open, and opens it where it can have children. */
static int add_node(struct builder *b, enum tree_kind kind, struct place place, const char *text, size_t size)
{
    struct tree *tree = b->tree;
    if (kind != TREE_VALUE && b->depth == DEPTH_MAX) {
        return text_file_fail(b->file, place, -EINVAL,
                              "lists and mappings are nested more than %d deep; a policy file needs 7", DEPTH_MAX);
    }
    struct tree_node *nodes = grown(tree->nodes, tree->node_count, 2, &tree->node_room, sizeof(*tree->nodes));
    if (nodes == NULL) {
        return out_of_memory(b->file);
    }
    tree->nodes = nodes;
    tree->node_count += tree->node_count == 0 ? 1 : 0; /* the one that stands for none */
    const uint32_t number = (uint32_t) tree->node_count;
    tree->nodes[number] = (struct tree_node){.kind = kind, .place = place, .text = tree->text_size};
    tree->node_count++;
    if (kind == TREE_VALUE && !keep_text(tree, text, size)) {
        return out_of_memory(b->file);
    }
    if (b->depth != 0) {
        const uint32_t last = b->open[b->depth - 1].last;
        *(last != 0 ? &tree->nodes[last].next : &tree->nodes[b->open[b->depth - 1].node].child) = number;
        b->open[b->depth - 1].last = number;
    }
    if (kind != TREE_VALUE) {
        b->open[b->depth].node = number;
        b->open[b->depth++].last = 0;
    }
    return 0;
}

/* Tags of YAML itself say nothing that the fields do not; those of an application ask for what nobody does here. */
static int check_tag(const struct builder *b, const yaml_char_t *tag, struct place place)
{
    const char *text = (const char *) tag;
    if (tag == NULL || strcmp(text, "!") == 0 || strncmp(text, STANDARD_TAG, strlen(STANDARD_TAG)) == 0) {
        return 0;
    }
    return text_file_fail(b->file, place, -EINVAL, "tag \"%.40s\" is not known; leave it out", text);
}

static int take_value(struct builder *b, const yaml_event_t *event)
{
    const struct place place = place_of(event->start_mark);
    const char *text = (const char *) event->data.scalar.value;
    const size_t size = event->data.scalar.length;
    if (memchr(text, '\0', size) != NULL) {
        return text_file_fail(b->file, place, -EINVAL, "a value has a NUL byte in it; leave that out");
    }
    const int result = check_tag(b, event->data.scalar.tag, place);
    return result != 0 ? result : add_node(b, TREE_VALUE, place, text, size);
}

static int take_event(struct builder *b, const yaml_event_t *event)
{
    const struct place place = place_of(event->start_mark);
    int result = 0;
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (b->document_count++ != 0) {
            return text_file_fail(b->file, place, -EINVAL,
                                  "a second YAML document begins here; a file has one: join the lists of policies");
        }
        return 0;
    case YAML_ALIAS_EVENT:
        return text_file_fail(b->file, place, -EINVAL,
                              "\"*%.40s\" is an alias, and aliases are not taken; write the value again",
                              (const char *) event->data.alias.anchor);
    case YAML_SCALAR_EVENT:
        return take_value(b, event);
    case YAML_SEQUENCE_START_EVENT:
        result = check_tag(b, event->data.sequence_start.tag, place);
        return result != 0 ? result : add_node(b, TREE_LIST, place, NULL, 0);
    case YAML_MAPPING_START_EVENT:
        result = check_tag(b, event->data.mapping_start.tag, place);
        return result != 0 ? result : add_node(b, TREE_MAPPING, place, NULL, 0);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        b->depth--;
        return 0;
    default:
        return 0;
    }
}

/* The place of a byte. */
static struct place place_of_byte(const struct text_file *file, size_t offset)
{
    struct place place = {0, 1};
    size_t start = 0;
    for (size_t at = 0; at <= offset && at < file->size; place.line++) {
        start = at;
        (void) text_file_next_line(file, &at);
    }
    static const char mark[] = "\xef\xbb\xbf"; /* of byte order: no character of the line */
    start += start == 0 && file->size >= 3 && memcmp(file->text, mark, 3) == 0 ? 3 : 0;
    for (size_t i = start; i < offset && i < file->size; i++) {
        place.column += ((unsigned char) file->text[i] & 0xc0) != 0x80; /* no byte in the middle of a character */
    }
    place.line += place.line == 0;
    return place;
}

static int fail_bytes(const struct text_file *file, const yaml_parser_t *parser)
{
    size_t offset = parser->problem_offset < file->size ? parser->problem_offset : file->size;
    if (parser->problem != NULL && strstr(parser->problem, "control") != NULL) {
        return text_file_fail(
            file, place_of_byte(file, offset), -EINVAL,
            "this is not YAML: control character 0x%02x; leave it out, or use an escape in double quotes",
            (unsigned) parser->problem_value);
    }
    if (parser->problem != NULL && strstr(parser->problem, "trailing") != NULL) {
        /* It names the byte that should have continued a character: the one to blame is that which began it. */
        do {
            offset -= offset != 0;
        } while (offset != 0 && ((unsigned char) file->text[offset] & 0xc0) == 0x80);
    }
    const unsigned byte = offset < file->size ? (unsigned char) file->text[offset] : 0;
    return text_file_fail(file, place_of_byte(file, offset), -EINVAL,
                          "this is not YAML: byte 0x%02x begins no character of UTF-8; save the file as UTF-8", byte);
}

/* A line of the file, from 1; empty where there is none. */
static const char *line_of(const struct text_file *file, uint32_t number, size_t *size)
{
    size_t at = 0;
    size_t start = 0;
    *size = 0;
    for (uint32_t line = 0; line < number; line++) {
        start = at;
        *size = text_file_next_line(file, &at);
    }
    return file->text + start;
}

size_t tree_word_before_colon(const char *text, size_t size)
{
    size_t word = 0;
    while (word < size && ((text[word] >= 'a' && text[word] <= 'z') || text[word] == '_')) {
        word++;
    }
    const bool colon = word != 0 && word + 1 < size && text[word] == ':' && text[word + 1] != ' ';
    return colon && text[word + 1] != '\t' ? word : 0;
}

int tree_fail_colon(const struct text_file *file, struct place place, const char *text, size_t word)
{
    const char *value = text + word + 1;
    const bool nested = strchr("[{\"'", *value) != NULL;
    const size_t size = nested ? strlen(value = "...") : strcspn(value, " ,}]#");
    place.column += (uint32_t) word + 1;
    return text_file_fail(file, place, -EINVAL, "a space is lacking after the colon; write \"%.*s: %.*s\"",
                          (int) (word < 40 ? word : 40), text, (int) (size < 40 ? size : 40), value);
}

/* A line that lacks the space after its colon. Such a line goes on in the next: the first of several is the place. */
static bool find_colon(const struct text_file *file, uint32_t line, struct place *place, size_t *word)
{
    *place = (struct place){0};
    /* Each line is looked for from the file's beginning: a bound on their number is one on the work. */
    for (uint32_t tries = 0; line != 0 && tries < LINES_BACK; line--, tries++) {
        size_t size;
        const char *text = line_of(file, line, &size);
        size_t indent = 0;
        while (indent < size && (text[indent] == ' ' || text[indent] == '-')) {
            indent++;
        }
        const size_t length = tree_word_before_colon(text + indent, size - indent);
        if (length == 0) {
            break;
        }
        *word = length;
        *place = (struct place){line, (uint32_t) indent + 1};
    }
    return place->line != 0;
}

static int fail_colon_at(const struct text_file *file, struct place place, size_t word)
{
    size_t size;
    const char *text = line_of(file, place.line, &size) + place.column - 1;
    char line[120];
    size = size - (place.column - 1);
    size = size < sizeof(line) ? size : sizeof(line) - 1;
    memcpy(line, text, size);
    line[size] = '\0';
    return tree_fail_colon(file, place, line, word + 1 < size ? word : size - 2);
}

/* A value with a colon in it: it is indented too far, or wants quotes, or an earlier line lacks a space. */
static int fail_nested_colon(const struct text_file *file, struct place place)
{
    struct place at;
    size_t word = 0;
    if (find_colon(file, place.line - 1, &at, &word)) {
        return fail_colon_at(file, at, word);
    }
    size_t size;
    const char *text = line_of(file, place.line, &size);
    size_t indent = 0;
    while (indent < size && text[indent] == ' ') {
        indent++;
    }
    const size_t colon = indent < size ? (size_t) ((const char *) memchr(text, ':', size) - text) : 0;
    if (colon + 1 == place.column && place.line > 1) {
        place.column = (uint32_t) indent + 1;
        return text_file_fail(file, place, -EINVAL,
                              "this is not YAML: the line is indented further than the field above it");
    }
    return text_file_fail(file, place, -EINVAL,
                          "this is not YAML: a second colon in one line; put what has a colon in quotes");
}

/* What libyaml says, in words that tell what to do where that is known. */
static int fail_syntax(const struct text_file *file, const yaml_parser_t *parser)
{
    if (parser->error == YAML_READER_ERROR) {
        return fail_bytes(file, parser);
    }
    if (parser->error != YAML_SCANNER_ERROR && parser->error != YAML_PARSER_ERROR) {
        return out_of_memory(file); /* also where it says nothing */
    }
    struct place place = place_of(parser->problem_mark);
    const char *problem = parser->problem != NULL ? parser->problem : "unreadable";
    size_t size;
    const char *text = line_of(file, place.line, &size);
    const size_t blank = size != 0 ? strspn(text, " -") : 0;
    if (strstr(problem, "tab character") != NULL ||
        (strstr(problem, "cannot start any token") != NULL && blank < size && text[blank] == '\t')) {
        return text_file_fail(file, place, -EINVAL, "this is not YAML: a tab; indent with spaces");
    }
    const char first = place.column <= size ? text[place.column - 1] : ' ';
    if (strstr(problem, "cannot start any token") != NULL && strchr("@`%", first) != NULL) {
        return text_file_fail(file, place, -EINVAL, "this is not YAML: no value begins with %c; put it in quotes",
                              first);
    }
    if (strstr(problem, "<document start>") != NULL) {
        return text_file_fail(file, place, -EINVAL, "this stands behind the end of the YAML document; a file has one");
    }
    if (strstr(problem, "mapping values are not allowed") != NULL) {
        return fail_nested_colon(file, place);
    }
    if (strstr(problem, "expected ':'") != NULL) {
        struct place at;
        size_t word = 0;
        place = place_of(parser->context_mark);
        return find_colon(file, place.line, &at, &word)
                   ? fail_colon_at(file, at, word)
                   : text_file_fail(file, place, -EINVAL,
                                    "this is not YAML: there is no colon after this word; write \"FIELD: VALUE\"");
    }
    const struct place from = place_of(parser->context_mark);
    if (parser->context == NULL || from.line == place.line) {
        return text_file_fail(file, place, -EINVAL, "this is not YAML: %s%s%s", problem,
                              parser->context != NULL ? " " : "", parser->context != NULL ? parser->context : "");
    }
    return text_file_fail(file, place, -EINVAL, "this is not YAML: %s %s that begins at line %u", problem,
                          parser->context, from.line);
}

/* What libyaml would take too long for, or read as something else than bytes of UTF-8. */
static int check_beginnings(const struct text_file *file)
{
    static const char directive[] = "%TAG";
    if (file->size >= 2 && (memcmp(file->text, "\xff\xfe", 2) == 0 || memcmp(file->text, "\xfe\xff", 2) == 0)) {
        return text_file_fail(file, (struct place){1, 1}, -EINVAL, "this is UTF-16; save the file as UTF-8");
    }
    uint32_t line = 1;
    for (size_t at = 0; at < file->size; line++) {
        const char *text = file->text + at;
        if (text_file_next_line(file, &at) >= strlen(directive) && memcmp(text, directive, strlen(directive)) == 0) {
            return text_file_fail(file, (struct place){line, 1}, -EINVAL, "%%TAG is not taken; leave it out");
        }
    }
    return 0;
}

int tree_read(const struct text_file *file, struct tree *tree)
{
    *tree = (struct tree){0};
    int result = check_beginnings(file);
    if (result != 0) {
        return result;
    }
    yaml_parser_t parser;
    if (yaml_parser_initialize(&parser) == 0) {
        return out_of_memory(file);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *) file->text, file->size);
    struct builder b = {.file = file, .tree = tree};
    bool ended = false;
    while (result == 0 && !ended) {
        yaml_event_t event;
        if (yaml_parser_parse(&parser, &event) == 0) {
            result = fail_syntax(file, &parser);
            break;
        }
        result = take_event(&b, &event);
        ended = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return result;
}

void tree_free(struct tree *tree)
{
    free(tree->nodes);
    free(tree->text);
    *tree = (struct tree){0};
}
