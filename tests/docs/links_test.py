#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Links of the pages lead somewhere, to a heading where they name one: links_test.py SOURCE_DIRECTORY. Prints TAP. It asks
nothing of the network.

Guards: README.md, CONTRIBUTING.md, CHANGELOG.md, docs/embedding.md
"""
import functools
import pathlib
import re
import sys

SOURCE = pathlib.Path(sys.argv[1]).resolve()
LINK = r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^()\s]+)\)"


def pages():
    named = [SOURCE / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return named + [path for path in sorted((SOURCE / "docs").rglob("*.md")) if "site" not in path.parts]


@functools.cache
def text_of(page):
    """A page without its code."""
    text = re.sub(r"^( *)```.*?^ *```$", "", page.read_text(), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", lambda code: code[0] if "](" not in code[0] else "", text)


@functools.cache
def anchors_of(page):
    """The anchors that GitHub and the site give to the headings of a page."""
    found, seen = set(), {}
    for heading in re.findall(r"^#{1,6} +(.*?) *$", text_of(page), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        found.add(slug if count == 0 else f"{slug}-{count}")
    return found


def wrong_links(page):
    """What is wrong with the links of a page."""
    found = []
    for target in re.findall(LINK, text_of(page)):
        if re.match(r"[a-z]+:", target):
            if not re.match(r"https://", target):
                found.append(f"{target}: links out of the project are https")
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or SOURCE not in file.parents:
            found.append(f"{target}: there is no such file in the project")
        elif anchor and file.suffix == ".md" and anchor not in anchors_of(file):
            found.append(f"{target}: there is no such heading in {file.name}")
        elif anchor and file.suffix != ".md":
            found.append(f"{target}: only pages have headings")
    return found


def main():
    print(f"TAP version 13\n1..{len(pages()) + 1}")
    count = sum(len(re.findall(LINK, text_of(page))) for page in pages())
    good = count > 200
    print(f"{'' if good else 'not '}ok 1 - the pages have links: {count}")
    for number, page in enumerate(pages(), 2):
        wrong = wrong_links(page)
        good = good and not wrong
        print(f"{'not ' if wrong else ''}ok {number} - {page.relative_to(SOURCE)}")
        for line in wrong:
            print(f"# {line}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
