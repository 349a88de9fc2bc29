#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Lays out the sources of the docs site: layout.py SOURCE_DIRECTORY INTO DOXYGEN_XML. The pages are those of the
repository. Added are the front page (README with the table of contents), a page with the examples, and the reference.
"""
import pathlib
import re
import shutil
import sys
import xml.etree.ElementTree as tree

REFERENCE = """# {title}

{lead}

"""
KINDS = [("Functions", "function"), ("Structures", "struct"), ("Enumerations", "enum"), ("Types", "typedef"),
         ("Constants", "define")]
GUARDS = {"WEIR_H", "WEIR_INSPECT_H", "WEIR_HPP", "WEIR_API", "WEIRPP_EXCEPTIONS"}


def members(xml, name, wanted):
    """Names of one kind in a header, in its order."""
    found = [(int(member.find("location").get("line")), member.findtext("name"))
             for member in tree.parse(xml / name).iter("memberdef") if member.get("kind") == wanted]
    return [member for _, member in sorted(found)]


def compounds(xml, kind, pattern, header):
    """Structs or classes of a header, in its order."""
    found = []
    for path in xml.glob(f"{kind}*.xml"):
        compound = tree.parse(path).find("compounddef")
        place = compound.find("location")
        if re.fullmatch(pattern, compound.findtext("compoundname")) and place.get("file").endswith(f"/{header}"):
            found.append((int(place.get("line")), compound.findtext("compoundname")))
    return [name for _, name in sorted(found)]


def directive(name, argument, *options):
    return "\n".join([f"```{{{name}}} {argument}", *options, "```", ""])


def c_reference(xml, header):
    structs = compounds(xml, "struct", r"weir_\w+", header)
    names = {kind: members(xml, header.replace(".", "_8") + ".xml", kind) for kind in ("function", "enum", "typedef", "define")}
    names["struct"] = structs
    # A struct and its typedef have one name.
    names["typedef"] = [name for name in names["typedef"] if name not in structs and name not in names["enum"]]
    text = REFERENCE.format(title=header, lead=directive("doxygenfile", header, ":sections: briefdescription detaileddescription"))
    for title, kind in KINDS:
        text += f"## {title}\n\n"
        for name in names[kind]:
            if name not in GUARDS and (kind == "function" or name not in names["function"]):
                text += directive(f"doxygen{kind}", name, *([":members:", ":undoc-members:"] if kind == "struct" else []))
    return text


def cpp_reference(xml):
    text = REFERENCE.format(title="weir.hpp", lead=directive("doxygenfile", "weir.hpp", ":sections: briefdescription detaileddescription"))
    text += "## Classes\n\n"
    for kind in ("class", "struct"):
        for name in compounds(xml, kind, r"weirpp::\w+", "weir.hpp"):
            text += directive(f"doxygen{kind}", name, ":members:", ":undoc-members:")
    for title, kind in (("Enumerations", "enum"), ("Types", "typedef"), ("Constants", "variable"), ("Functions", "function")):
        names = members(xml, "namespaceweirpp.xml", kind)
        text += f"## {title}\n\n" if names else ""
        for name in dict.fromkeys(names):
            text += directive(f"doxygen{kind}", f"weirpp::{name}")
    return text


def contents(source, into):
    """The table of contents. A page that contents.md does not name is in a part of its own."""
    text = (source / "docs/site/contents.md").read_text()
    pages = {str(path.relative_to(into).with_suffix("")) for path in into.rglob("*.md")}
    unnamed = sorted(page for page in pages - set(text.split()) if "/decisions/" not in page and "docs/site" not in page)
    return text + "\n" + toctree(unnamed, ":caption: More")


def toctree(pages, *options):
    return directive("toctree", "", ":hidden:", *options, *pages) if pages else ""


def linked_files(page, source, into):
    """Copies the files of the repository that a page links to, where they are no pages."""
    for target in re.findall(r"\]\(([^()#\s:]+)\)", page.read_text()):
        path = page.parent.relative_to(into) / target
        wanted = (source / path).resolve()
        if wanted.is_file() and not (into / path).resolve().exists():
            (into / path).resolve().parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(wanted, (into / path).resolve())


def examples(folder):
    text = "# Examples\n\nThe tests build and run each of these programs.\n\n"
    sources = [path for pattern in ("*.c", "*.cpp", "servers/*.[ch]") for path in sorted(folder.glob(pattern))]
    for path in sources:
        name = path.relative_to(folder)
        text += f"## {name}\n\n"
        text += directive("literalinclude", str(name), f":language: {'cpp' if path.suffix == '.cpp' else 'c'}")
    return text


def main():
    source, into, xml = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    shutil.copytree(source / "docs", into / "docs", ignore=shutil.ignore_patterns("site"))
    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(source / name, into)
    for page in into.rglob("*.md"):
        linked_files(page, source, into)
    (into / "docs/examples/index.md").write_text(examples(into / "docs/examples"))
    (into / "reference").mkdir()
    (into / "reference/c.md").write_text(c_reference(xml, "weir.h"))
    (into / "reference/inspect.md").write_text(c_reference(xml, "inspect.h"))
    (into / "reference/cpp.md").write_text(cpp_reference(xml))
    decisions = into / "docs/decisions/README.md"
    decisions.write_text(decisions.read_text() + "\n" + toctree(sorted(path.stem for path in decisions.parent.glob("[0-9]*.md"))))
    (into / "index.md").write_text((source / "README.md").read_text() + contents(source, into))


if __name__ == "__main__":
    main()
