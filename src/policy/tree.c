/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See tree.h. libyaml 0.2.5 takes quadratic time for what its loader nests and anchors, and for %TAG directives. Nodes
 * are made of the parser's events, without the loader. The parser looks at most 1,024 characters ahead of an event, so
 * DEPTH_MAX bounds its work on nested lists. It reads directives before the first event, so the file is searched for
 * %TAG before it is parsed.
 */
#include "policy/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "policy/colon.h"

/* Twice what a policy file needs: the mapping of a tier's limit has depth 7, and its values have depth 8. */
#define DEPTH_MAX 16

/* Tags of YAML itself begin with this. */
#define STANDARD_TAG "tag:yaml.org,2002:"

/* A list or mapping whose end is not read yet. */
struct open_node {
    uint32_t node, last; /* its number, and that of its last child so far; 0: it has none */
};

/* A tree while the parser's events are added to it. */
struct builder {
    const struct text_file *file;
    struct tree *tree;
    size_t document_count;
    size_t depth; /* of open[], outermost first */
    struct open_node open[DEPTH_MAX];
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

/* The array with room for `more` elements of `size` bytes behind its `count`. NULL: out of memory. */
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

/* Adds a node as the last child of the innermost open list or mapping. A list or mapping is then open itself. */
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
    tree->node_count = tree->node_count != 0 ? tree->node_count : 1; /* [0] stands for none */
    const uint32_t number = (uint32_t) tree->node_count;
    tree->nodes[number] = (struct tree_node){.kind = kind, .place = place, .text = tree->text_size};
    tree->node_count++;
    if (kind == TREE_VALUE && !keep_text(tree, text, size)) {
        return out_of_memory(b->file);
    }
    if (b->depth != 0) {
        struct open_node *parent = &b->open[b->depth - 1];
        if (parent->last != 0) {
            tree->nodes[parent->last].next = number;
        } else {
            tree->nodes[parent->node].child = number;
        }
        parent->last = number;
    }
    if (kind != TREE_VALUE) {
        b->open[b->depth++] = (struct open_node){.node = number};
    }
    return 0;
}

/* Allows the tags of YAML itself, which change nothing here. The tags of applications are refused. */
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

static int fail_bytes(const struct text_file *file, const yaml_parser_t *parser)
{
    size_t offset = parser->problem_offset < file->size ? parser->problem_offset : file->size;
    if (parser->problem != NULL && strstr(parser->problem, "control") != NULL) {
        return text_file_fail(
            file, text_file_place(file, offset), -EINVAL,
            "this is not YAML: control character 0x%02x; leave it out, or use an escape in double quotes",
            (unsigned) parser->problem_value);
    }
    if (parser->problem != NULL && strstr(parser->problem, "trailing") != NULL) {
        /* libyaml names the byte that should have continued a character. The error names the byte that began it. */
        do {
            offset -= offset != 0;
        } while (offset != 0 && ((unsigned char) file->text[offset] & 0xc0) == 0x80);
    }
    const unsigned byte = offset < file->size ? (unsigned char) file->text[offset] : 0;
    return text_file_fail(file, text_file_place(file, offset), -EINVAL,
                          "this is not YAML: byte 0x%02x begins no character of UTF-8; save the file as UTF-8", byte);
}

/* A colon where none may be: the line is indented too far, or a value needs quotes, or a line above lacks a space. */
static int fail_unexpected_colon(const struct text_file *file, struct place place)
{
    if (colon_fail_in_lines(file, place.line - 1)) {
        return -EINVAL;
    }
    size_t size;
    const char *text = text_file_line(file, place.line, &size);
    size_t indent = 0;
    while (indent < size && text[indent] == ' ') {
        indent++;
    }
    const char *colon = memchr(text, ':', size);
    if (colon != NULL && (size_t) (colon - text) + 1 == place.column && place.line > 1) {
        place.column = (uint32_t) indent + 1;
        return text_file_fail(file, place, -EINVAL,
                              "this is not YAML: the line is indented further than the field above it");
    }
    return text_file_fail(file, place, -EINVAL,
                          "this is not YAML: a second colon in one line; put what has a colon in quotes");
}

/* Sets the error for a problem that libyaml found. The sentence says what to do, if the problem is a known one. */
static int fail_syntax(const struct text_file *file, const yaml_parser_t *parser)
{
    if (parser->error == YAML_READER_ERROR) {
        return fail_bytes(file, parser);
    }
    if (parser->error != YAML_SCANNER_ERROR && parser->error != YAML_PARSER_ERROR) {
        return out_of_memory(file); /* libyaml names no error for some failed allocations */
    }
    struct place place = place_of(parser->problem_mark);
    const char *problem = parser->problem != NULL ? parser->problem : "unreadable";
    size_t size;
    const char *text = text_file_line(file, place.line, &size);
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
        return fail_unexpected_colon(file, place);
    }
    if (strstr(problem, "expected ':'") != NULL) {
        place = place_of(parser->context_mark);
        return colon_fail_in_lines(file, place.line)
                   ? -EINVAL
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

/* Refuses UTF-16, which libyaml would read, and %TAG directives, which take libyaml quadratic time. */
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
