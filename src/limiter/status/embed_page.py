#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the status page into a C source: embed_page.py OUT.c PAGE.html STYLE.css SCRIPT.js

The style and the script go into the page, where STYLE and SCRIPT stand. STYLE_HASH and SCRIPT_HASH stand for their
hashes: the page's content security policy names both, so that a browser runs no other script in the page.
"""
import base64
import hashlib
import pathlib
import sys


def policy_hash(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def main():
    out, page, style, script = sys.argv[1:]
    text = pathlib.Path(page).read_text(encoding="utf-8")
    for name, path in (("STYLE", style), ("SCRIPT", script)):
        part = pathlib.Path(path).read_text(encoding="utf-8")
        for mark, value in ((f"@{name}_HASH@", policy_hash(part)), (f"@{name}@", part)):
            if text.count(mark) != 1:
                sys.exit(f"{page}: {mark} is to be there once")
            text = text.replace(mark, value)
    data = [str(byte) for byte in text.encode()] + ["0"]
    # As numbers, because ISO C allows no string literal of more than 4,095 characters.
    lines = ["/* Made by embed_page.py. */", '#include "weir/weir.h"', "", "static const unsigned char page[] = {"]
    lines += ["    " + ", ".join(data[i:i + 24]) + "," for i in range(0, len(data), 24)]
    lines += ["};", "", "const char *weir_status_page(size_t *length)", "{", "    if (length != NULL) {",
              "        *length = sizeof(page) - 1;", "    }", "    return (const char *) page;", "}", ""]
    pathlib.Path(out).write_text("\n".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
