# SPDX-License-Identifier: Apache-2.0
"""Plain technical English: subject, verb, object; the noun repeated; one thought a sentence."""
import re

from .tree import Finding, rule

WORDS_OF_SENTENCE = 30
COLUMNS = 100
GENERATED = "docs/internals/orderings.md"
WHO = re.compile(r"\b(who|whoever|whom)\b", re.I)
LEANING = re.compile(r"\blikewise\b|(?:^|[.;:]\s+)(?:The same\b|As (?:it|above|before)\b|And (?:so|by)\b)|\bas (?:above|before)\b(?=[.;,]|$)",
                     re.I)
FENCE = re.compile(r"^\s*(```|~~~)")
LINK = re.compile(r"^\s*(?:[-*] |\d+\. )?(?:<?https?://\S+>?|\[[^\]]*\](?:\([^)]*\)|: \S+))[.,;]?\s*$")


def comment_lines(tree, *folders):
    for source in tree.sources(*folders):
        for comment in source.comments:
            for number, line in enumerate(comment.lines, comment.line):
                yield source.path, number, line.strip()


def prose_lines(tree):
    """Lines of the pages of documentation, but for code, and for what is generated from it."""
    for path in tree.matching("*.md"):
        if path == GENERATED:
            continue
        fenced = False
        for number, line in enumerate(tree.text(path).split("\n"), 1):
            if FENCE.match(line):
                fenced = not fenced
            elif not fenced:
                yield path, number, line


@rule("who", "no who, whoever or whom for threads, keys and nodes: comments of src and include, pages")
def who(tree, table):
    found = []
    for lines in (comment_lines(tree), prose_lines(tree)):
        for path, number, line in lines:
            match = WHO.search(line)
            if match and not path.startswith("CHANGELOG"):
                found.append(Finding(path, number, f"\"{match.group()}\": name the thread, key, node or caller"))
    return found


@rule("leaning", "no comment of src and include leans on the line before: \"likewise\", \"The same\", \"As before\"")
def leaning(tree, table):
    return [Finding(path, number, f"\"{match.group().strip()}\": say it in full")
            for path, number, line in comment_lines(tree) if (match := LEANING.search(line))]


def sentences(comment):
    """(line, sentence) of a comment; a list, a table, a blank line and a deeper indent end what was before them."""
    parts, last_indent = [], 0
    for number, line in enumerate(comment.lines, comment.line):
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if not text or re.match(r"[-*] |\d+\. |\[[A-Z]\d+\]|[A-Z]\d+  |[A-Z]\w+$", text) or re.search(r"\S {2,}\S", text) \
                or abs(indent - last_indent) > 1 or not parts:
            parts.append([])
        parts[-1] += [(number, word) for word in text.split()]
        last_indent = indent
    for words in parts:
        start = 0
        for at, (_, word) in enumerate(words):
            ends = re.search(r"[.?!][\"')]*$", word) and not re.search(r"\b(e\.g|i\.e|etc|cf|vs)\.$", word)
            if ends and (at + 1 == len(words) or re.match(r"[\"'(\[]*[A-Z0-9`]", words[at + 1][1])):
                yield words[start][0], [text for _, text in words[start:at + 1]]
                start = at + 1
        if start < len(words):
            yield words[start][0], [text for _, text in words[start:]]


@rule("sentences", f"a sentence of a comment of src and include has at most {WORDS_OF_SENTENCE} words")
def long_sentences(tree, table):
    return [Finding(source.path, line, f"a sentence of {len(words)} words, \"{' '.join(words[:6])} ...\": make two of it")
            for source in tree.sources() for comment in source.comments for line, words in sentences(comment)
            if len(words) > WORDS_OF_SENTENCE]


@rule("md-columns", f"a line of a page has at most {COLUMNS} columns; tables, code and bare links apart")
def md_columns(tree, table):
    return [Finding(path, number, f"{len(line)} columns, {COLUMNS} are the most: wrap the paragraph")
            for path, number, line in prose_lines(tree)
            if len(line) > COLUMNS and not line.lstrip().startswith("|") and not LINK.match(line)]
