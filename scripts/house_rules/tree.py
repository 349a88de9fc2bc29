# SPDX-License-Identifier: Apache-2.0
"""
The files of the project as the rules see them, and the list of rules.

C is read by regular expressions. They rely on the layout of clang-format: what stands outside of all braces begins in
the first column, and so do the braces of a function.
"""
import collections
import fnmatch
import functools
import os
import pathlib
import re

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">\n]+)[">]', re.M)
DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n\\]|\\.|\\\n)*|^extern "[ ]*" \{', re.M)
# A head has no blank line, and its braces stand alone in the first column.
FUNCTION = re.compile(r"^([A-Za-z_](?:(?!\n[ \t]*\n)[^;{}=])*)\n\{(.*?)^\}", re.M | re.S)
DECLARATION = re.compile(r"^(?!typedef)[A-Za-z_][^;{}=:]*;", re.M)
ATTRIBUTE = re.compile(r"__attribute__\s*\(\([^()]*(?:\([^()]*\))?[^()]*\)\)")
WORD = re.compile(r"[A-Za-z_]\w*")

Finding = collections.namedtuple("Finding", "path line text")
Comment = collections.namedtuple("Comment", "line lines")
Function = collections.namedtuple("Function", "line end name static body")
RULES = {}


def rule(name, sentence):
    """Registers a function that takes the tree and the table of scripts/house.ini, and returns findings."""
    def register(function):
        RULES[name] = (sentence, function)
        return function
    return register


def blanked(match):
    """As many lines and columns as there were, with nothing in them."""
    return re.sub(r"[^\n]", " ", match.group())


def line_at(text, offset):
    return text.count("\n", 0, offset) + 1


def defined_name(head):
    """The name of the function that a head begins, or None. It may stand in brackets, which keep a macro away."""
    named = re.match(r"(?:[\w\s*]+\((\w+)\)|[\w\s*]*?(\w+))\s*\(", ATTRIBUTE.sub("", head))
    return named and (named.group(1) or named.group(2))


class Source:
    """A C file."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.stem, self.is_header = os.path.splitext(os.path.basename(path))[0], path.endswith((".h", ".hpp"))
        self.module = os.path.splitext(path)[0]  # a header and its .c file have this in common

    @functools.cached_property
    def code(self):
        """The text with comments and the insides of strings blanked."""
        return TOKEN.sub(lambda match: blanked(match) if match.group()[0] == "/" else
                         match.group()[0] + " " * (len(match.group()) - 2) + match.group()[-1], self.text)

    @functools.cached_property
    def plain(self):
        """The code without preprocessor lines."""
        return DIRECTIVE.sub(blanked, self.code)

    @functools.cached_property
    def comments(self):
        found = []
        for match in TOKEN.finditer(self.text):
            if match.group()[0] == "/":
                first, *more = match.group()[2:].removesuffix("*/").split("\n")
                found.append(Comment(line_at(self.text, match.start()),
                                     [first] + [re.sub(r"^\s*\*(?!\*)", "", line) for line in more]))
        return found

    @functools.cached_property
    def opening(self):
        """The comment that the file opens with after its licence, or None."""
        comment = next((comment for comment in self.comments if "SPDX" not in comment.lines[0]), None)
        return comment if comment and not "".join(self.code.split("\n")[:comment.line - 1]).strip() else None

    @functools.cached_property
    def includes(self):
        """(line, name, whether it stands in angle brackets) of each include."""
        return [(line_at(self.text, match.start()), match.group(2), match.group(1) == "<")
                for match in INCLUDE.finditer(self.text) if self.code[match.start(1)] == match.group(1)]

    @functools.cached_property
    def functions(self):
        """The functions that are defined here, inline ones among them."""
        return [Function(line_at(self.plain, match.start()), line_at(self.plain, match.end()), name,
                         "static" in WORD.findall(match.group(1)), match.group(2))
                for match in FUNCTION.finditer(self.plain) if (name := defined_name(match.group(1)))]

    @functools.cached_property
    def declarations(self):
        """(line, name, text) of the functions that are declared here and have no body here."""
        # A type stands in front of the name: so neither uses of macros nor pointers to functions are meant.
        return [(line_at(self.plain, match.start()), named.group(1), match.group())
                for match in DECLARATION.finditer(FUNCTION.sub(blanked, self.plain))
                if (named := re.match(r"[\w\s*]+[\s*](\w+)\s*\(", ATTRIBUTE.sub("", match.group())))]

    @functools.cached_property
    def words(self):
        return collections.Counter(WORD.findall(self.code))


class Tree:
    """The project under a root, or as much of one as there is."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = []
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if not name.startswith((".git", "build", "__pycache__")))
            self.files += [os.path.relpath(os.path.join(folder, name), root) for name in sorted(names)]
        self.known = set(self.files)

    @functools.lru_cache(maxsize=None)
    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    @functools.lru_cache(maxsize=None)
    def source(self, path):
        return Source(path, self.text(path))

    def matching(self, *patterns):
        return [path for path in self.files if any(fnmatch.fnmatch(path, pattern) for pattern in patterns)]

    @functools.lru_cache(maxsize=None)
    def sources(self, *folders):
        """The C files under folders."""
        return [self.source(path) for path in self.files
                if path.endswith((".c", ".h", ".cpp", ".hpp")) and path.split("/")[0] in folders]

    @functools.cached_property
    def definitions(self):
        """The .c file of src that defines a function which is not static."""
        return {function.name: source for source in self.sources("src") if not source.is_header
                for function in source.functions if not function.static}

    def resolve(self, path, name):
        """The file of the project that `path` includes as `name`, or None."""
        for folder in (os.path.dirname(path), "src", "include", "tests", path.split("/")[0]):
            found = os.path.normpath(os.path.join(folder, name))
            if found in self.known:
                return found
        return None
