# SPDX-License-Identifier: Apache-2.0
"""Sphinx's configuration of the docs site; scripts/docs lays out the sources and calls Sphinx."""
import os
import posixpath
import re

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

project = "weir"
author = "the authors of weir"
extensions = ["myst_parser", "breathe"]
source_suffix = {".md": "markdown"}

suppress_warnings = ["myst.header"]  # a page may begin a part two levels deeper

myst_heading_anchors = 4

breathe_projects = {"weir": os.environ.get("WEIR_DOXYGEN_XML", "")}
breathe_default_project = "weir"
breathe_domain_by_extension = {"h": "c", "hpp": "cpp"}
breathe_default_members = ("members",)
c_id_attributes = ["WEIR_API"]

html_theme = "furo"
html_title = "weir"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {"color-brand-primary": "#6cb8e6", "color-brand-content": "#6cb8e6"},
}
html_static_path = ["static"]
html_css_files = ["weir.css"]
# The code of a page is in the language that its fence names; where there is none it is no code.
highlight_language = "none"
pygments_style = "friendly"
pygments_dark_style = "monokai"

# Links of the repository that have a page of their own here: pattern of the target, and the page.
PAGES = [
    (r"(?:.*/)?include/weir/weir\.h", "reference/c.md"),
    (r"(?:.*/)?include/weir/inspect\.h", "reference/inspect.md"),
    (r"(?:.*/)?include/weir/weir\.hpp", "reference/cpp.md"),
    (r"(?:.*/)?docs/examples(?:/servers)?/?", "docs/examples/index.md"),
    (r"(?:.*/)?docs/examples/servers/(\w+)\.(c|h)", r"docs/examples/index.md#servers\1\2"),
    (r"(?:.*/)?docs/examples/(\w+)\.(c|cpp)", r"docs/examples/index.md#\1\2"),
    (r"README\.md(#.*)?", r"index.md\1"),
    (r"docs/monitoring/?", "docs/monitoring/README.md"),
]

def redirect_links(_app, docname, source):
    """Links to files become links to the pages that show these files."""
    here = posixpath.dirname(docname)

    def redirect(match):
        target = posixpath.normpath(posixpath.join(here, match[1])) if not re.match(r"\w+:|#", match[1]) else match[1]
        for pattern, page in PAGES:
            if (found := re.fullmatch(pattern, target)):
                path, _, anchor = found.expand(page).partition("#")
                return f"]({posixpath.relpath(path, here or '.')}{'#' + anchor if anchor else ''})"
        return match[0]

    source[0] = re.sub(r"\]\(([^()\s]+)\)", redirect, source[0])

class LinkNames(SphinxTransform):
    """A name of weir.h in the text is a link to the reference, on every page."""

    default_priority = 400

    def apply(self, **_):
        for literal in list(self.document.findall(nodes.literal)):
            name = re.fullmatch(r"(weir_[a-z_]+|WEIR_[A-Z0-9_]+)(\(\))?", literal.astext())
            if name is None or isinstance(literal.parent, (addnodes.pending_xref, nodes.reference)):
                continue
            link = addnodes.pending_xref("", refdomain="c", reftype="identifier", reftarget=name[1], refexplicit=True,
                                         refdoc=self.env.docname, refwarn=False)
            literal.replace_self(link)
            link += literal

def setup(app):
    app.connect("source-read", redirect_links)
    app.add_transform(LinkNames)
