# SPDX-License-Identifier: Apache-2.0
"""
The files of the project as the rules see them: C with comments and strings apart, its functions, macros and includes.

C is read by regular expressions on text that clang-format has laid out: a function's braces stand in the first column.
"""
import fnmatch
import functools
import os
import pathlib
import re

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">\n]+)[">]', re.M)
DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.M)
DEFINE = re.compile(r'^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)\n]*\))?((?:[^\n\\]|\\.|\\\n)*)', re.M)
WORD = re.compile(r'[A-Za-z_]\w*')
ATTRIBUTE = re.compile(r"__attribute__\s*\(\([^()]*(?:\([^()]*\))?[^()]*\)\)")
EXTERN_C = re.compile(r'^extern "[ ]*" \{', re.M)
NOT_A_NAME = {"__attribute__", "_Alignas", "_Static_assert", "static_assert", "WEIR_API", "sizeof", "if", "for", "while",
              "switch", "return"}


class Comment:
    """One comment, or several // lines that follow one another."""

    def __init__(self, line, text):
        self.line = line
        self.raw = text
        body = text[2:-2] if text.startswith("/*") else text[2:]
        self.lines = [re.sub(r"^\s*\*(?!\*)", "", part) if number else part
                      for number, part in enumerate(body.split("\n"))]
        self.end = line + len(self.lines) - 1


class Function:
    def __init__(self, name, head, line, end, body):
        self.name, self.head, self.line, self.end, self.body = name, head, line, end, body
        self.static = re.search(r"\bstatic\b", head) is not None
        self.public = re.search(r"\bWEIR_API\b", head) is not None

    @property
    def length(self):
        """Lines between the braces, and the braces."""
        return self.body.count("\n") + 1

    @property
    def parameters(self):
        depth, count, any_word = 0, 1, False
        for char in self.head[self.head.index("(", self.head.index(self.name)):]:
            if char in "([{":
                depth += 1
            elif char in ")]}":
                depth -= 1
                if depth == 0:
                    break
            elif char == "," and depth == 1:
                count += 1
            elif not char.isspace():
                any_word = True
        inside = re.sub(r"\s", "", self.head[self.head.index(self.name) + len(self.name):])
        return 0 if not any_word or inside.startswith("(void)") else count


class Macro:
    def __init__(self, name, arguments, value, line):
        self.name, self.arguments, self.value, self.line = name, arguments, value, line


def blanked(match):
    """As many columns and lines as there were, with nothing in them."""
    return re.sub(r"[^\n]", " ", match if isinstance(match, str) else match.group())


def declared_name(statement):
    """What a function's declaration or head names, or None."""
    statement = ATTRIBUTE.sub("", statement)
    in_brackets = re.match(r"[\w\s*]+\((\w+)\)\s*\(", statement)
    if in_brackets:
        return in_brackets.group(1)
    for match in re.finditer(r"([A-Za-z_]\w*)\s*\(", statement):
        if match.group(1) not in NOT_A_NAME:
            return match.group(1)
    return None


class Source:
    """A C file."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.name = os.path.basename(path)
        self.stem, self.extension = os.path.splitext(self.name)
        self.folder = os.path.dirname(path)
        self.is_header = self.extension in (".h", ".hpp")

    @functools.cached_property
    def _stripped(self):
        comments, line, last = [], 1, 0
        out, no_comments = [], []
        for match in TOKEN.finditer(self.text):
            before = self.text[last:match.start()]
            line += before.count("\n")
            out.append(before)
            no_comments.append(before)
            token = match.group()
            if token[0] == "/":
                comments.append(Comment(line, token))
                out.append(blanked(token))
                no_comments.append(blanked(token))
            else:
                out.append(token[0] + " " * (len(token) - 2) + token[-1])
                no_comments.append(token)
            line += token.count("\n")
            last = match.end()
        out.append(self.text[last:])
        no_comments.append(self.text[last:])
        return "".join(out), "".join(no_comments), comments

    @property
    def code(self):
        """Without comments and what is in strings; lines and columns as in the file."""
        return self._stripped[0]

    @property
    def comments(self):
        return self._stripped[2]

    @functools.cached_property
    def includes(self):
        """(line, name, in angle brackets) of each include."""
        text = self._stripped[1]
        return [(text.count("\n", 0, match.start()) + 1, match.group(2), match.group(1) == "<")
                for match in INCLUDE.finditer(text)]

    @functools.cached_property
    def macros(self):
        return [Macro(match.group(1), match.group(2), match.group(3).strip(), self.code.count("\n", 0, match.start()) + 1)
                for match in DEFINE.finditer(self.code)]

    @functools.cached_property
    def plain(self):
        """Code without preprocessor lines."""
        return EXTERN_C.sub(blanked, DIRECTIVE.sub(blanked, self.code))

    @functools.cached_property
    def functions(self):
        """Functions that are defined here, inline ones among them."""
        found, lines = [], self.plain.split("\n")
        at = 0
        while at < len(lines):
            if lines[at].rstrip() != "{":
                at += 1
                continue
            first = at - 1
            while first > 0 and lines[first - 1].strip() and not re.search(r"[;}]\s*$", lines[first - 1]):
                first -= 1
            end = at
            while end < len(lines) - 1 and lines[end].rstrip() != "}":
                end += 1
            head = "\n".join(lines[max(first, 0):at])
            name = declared_name(head)
            if name:
                found.append(Function(name, head, first + 1, end + 1, "\n".join(lines[at:end + 1])))
            at = end + 1
        return found

    @functools.cached_property
    def statements(self):
        """(line, text) of what stands outside of all braces, without the functions' bodies."""
        found, depth, start, text = [], 0, None, []
        line = 1
        for char in self.plain:
            if char == "{":
                depth += 1
                text.append("{")
            elif char == "}":
                depth -= 1
                text.append("}")
                if depth == 0 and re.search(r"\)\s*\{\}$", "".join(text)):
                    text, start = [], None
            elif depth == 0:
                if start is None and not char.isspace():
                    start = line
                if char == ";":
                    found.append((start, "".join(text).strip()))
                    text, start = [], None
                else:
                    text.append(char)
            if char == "\n":
                line += 1
        return found

    @functools.cached_property
    def declarations(self):
        """(line, name, text) of functions that are declared here and have no body here."""
        found = []
        for line, text in self.statements:
            if "{" in text or "=" in text.split("(")[0] or text.startswith("typedef"):
                text = ""
            name = declared_name(text) if text else None
            if name and re.search(r"\w[\s*]+" + name + r"\s*\(", text) and not re.search(r"\(\s*\*", text.split(name)[0]):
                found.append((line, name, text))
        return found

    @functools.cached_property
    def words(self):
        """Every identifier of the code, preprocessor lines among it."""
        return frozenset(WORD.findall(self.code))

    @functools.cached_property
    def opening(self):
        """The comment that the file opens with after its licence, or None."""
        for comment in self.comments:
            if "SPDX" in comment.raw:
                continue
            before = self.text.split("\n")[:comment.line - 1]
            code = self.code.split("\n")[:comment.line - 1]
            return None if any(part.strip() for part in code) else comment if before is not None else None
        return None

    def function_at(self, line):
        """The function that a line is in, or stands directly above; else None."""
        for function in self.functions:
            if line <= function.end:
                return function if line >= function.line - 1 else self.above(function, line)
        return None

    def above(self, function, line):
        """Whether nothing but comments stands between a line and a function."""
        between = self.code.split("\n")[line - 1:function.line - 1]
        return function if not any(part.strip() for part in between) else None


class Tree:
    """The project under a root, or as much of one as there is."""
    FOLDERS = ("src", "include", "cmake", "apps", "bench", "tests", "docs", "scripts", "debian", ".ci")

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = []
        for name in sorted(os.listdir(root)):
            if os.path.isfile(self.root / name):
                self.files.append(name)
        for folder in self.FOLDERS:
            for place, folders, names in os.walk(self.root / folder):
                folders[:] = sorted(n for n in folders if n != "__pycache__" and not n.startswith("build"))
                self.files += [os.path.relpath(os.path.join(place, name), root) for name in sorted(names)]
        self.known = set(self.files)
        self._sources = {}
        self._texts = {}

    def exists(self, path):
        return path in self.known

    def text(self, path):
        if path not in self._texts:
            self._texts[path] = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return self._texts[path]

    def matching(self, *patterns):
        return [path for path in self.files if any(fnmatch.fnmatch(path, pattern) for pattern in patterns)]

    def source(self, path):
        if path not in self._sources:
            self._sources[path] = Source(path, self.text(path))
        return self._sources[path]

    @functools.lru_cache(maxsize=None)
    def sources(self, *folders):
        """C files under folders: of the library where none are named."""
        folders = folders or ("src", "include")
        return [self.source(path) for path in self.files
                if path.endswith((".c", ".h", ".cpp", ".hpp")) and path.split("/")[0] in folders]

    @functools.cached_property
    def definitions(self):
        """The .c file of src that defines a function that is not static."""
        return {function.name: source.path for source in self.sources("src") if not source.is_header
                for function in source.functions if not function.static}

    def resolve(self, path, name):
        """The file of the project that `path` includes as `name`, or None."""
        for folder in (os.path.dirname(path), "src", "include", "tests", path.split("/")[0]):
            found = os.path.normpath(os.path.join(folder, name))
            if found in self.known:
                return found
        return None


class Finding:
    """What is wrong at a place, and what to do. It counts for `weight` against the rule's ceiling."""

    def __init__(self, path, line, text, weight=1):
        self.path, self.line, self.text, self.weight = path, line, text, weight

    def __str__(self):
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.text}"


RULES = {}


def rule(name, sentence):
    """Registers a function (tree, table) -> findings, or None where it cannot be judged here."""
    def register(function):
        RULES[name] = (sentence, function)
        return function
    return register
