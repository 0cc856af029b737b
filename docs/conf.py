"""Settings of the documentation site: `make docs` builds it in build/docs, without network access."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pages
from sphinx.application import Sphinx

import subtext

project = "Subtext"
author = "The Subtext authors"
copyright = "The Subtext authors"
release = version = subtext.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["Thumbs.db", ".DS_Store"]
default_role = "code"
highlight_language = "none"

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]

autodoc_typehints = "none"
autodoc_member_order = "bysource"

napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Complexity", "returns_style")]

html_theme = "furo"
html_title = "Subtext"
html_show_sourcelink = False


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the generated pages first, and convert docstrings and links on the way."""
    pages.write()
    app.connect("source-read", pages.rewrite_links)
    # Before napoleon, whose priority is 500.
    app.connect("autodoc-process-docstring", pages.process_docstring, priority=400)
    app.connect("autodoc-process-signature", pages.process_signature)
    return {"parallel_read_safe": True}
