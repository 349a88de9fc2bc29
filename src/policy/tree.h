/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A YAML file as a tree whose nodes have their places in the file. The one adapter of libyaml.
 *
 * A file is one document of plain values, lists and mappings: no aliases, no tags of an application, no directive %TAG.
 * Work and memory are linear in the file's size. Lists and mappings that are nested deeper than in any policy file are
 * refused.
 */
#ifndef WEIR_POLICY_TREE_H
#define WEIR_POLICY_TREE_H

#include <stdbool.h>

#include "policy/text_file.h"

enum tree_kind { TREE_VALUE, TREE_LIST, TREE_MAPPING };

struct tree_node {
    enum tree_kind kind;
    struct place place;
    uint32_t child, next; /* numbers of nodes; 0: none. The children of a mapping are a key, its value, a key, ... */
    size_t text;          /* of a value: the offset of its text, which has no NUL but its terminator */
};

struct tree {
    struct tree_node *nodes; /* [0] stands for none, [1] is the root */
    size_t node_count, node_room;
    char *text;
    size_t text_size, text_room;
};

/* Reads a file. 0; -EINVAL or -ENOMEM with the file's error set. The caller frees the tree, also after an error. */
int tree_read(const struct text_file *file, struct tree *tree);

void tree_free(struct tree *tree);

/* The outermost node; NULL: the file has nothing but space and comments. */
static inline const struct tree_node *tree_root(const struct tree *tree)
{
    return tree->node_count > 1 ? &tree->nodes[1] : NULL;
}

/* The first child; NULL: there is none. */
static inline const struct tree_node *tree_child(const struct tree *tree, const struct tree_node *node)
{
    return node->child != 0 ? &tree->nodes[node->child] : NULL;
}

static inline const struct tree_node *tree_next(const struct tree *tree, const struct tree_node *node)
{
    return node->next != 0 ? &tree->nodes[node->next] : NULL;
}

/* The number of children: of a mapping, its keys and values. */
size_t tree_child_count(const struct tree *tree, const struct tree_node *node);

/* The text of a value; "" of anything else. */
static inline const char *tree_text(const struct tree *tree, const struct tree_node *node)
{
    return node->kind == TREE_VALUE ? tree->text + node->text : "";
}

/* The value of the first field of this name. NULL: there is none, or `mapping` is NULL or no mapping. */
const struct tree_node *tree_find(const struct tree *tree, const struct tree_node *mapping, const char *field);

#endif
