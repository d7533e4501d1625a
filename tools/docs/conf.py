# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Sphinx makes the documentation site of what tools/docs/build.sh lays out for it."""

from __future__ import annotations

import pathlib
import re

import yaml
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

GALAXY = yaml.safe_load((pathlib.Path(__file__).resolve().parents[2] / "galaxy.yml").read_text(encoding="utf-8"))

project = f"{GALAXY['namespace']}.{GALAXY['name']}"
author = project_copyright = "threadwise.smt contributors"
release = version = GALAXY["version"]
html_title = f"{project} {release}"

extensions = ["myst_parser", "sphinx_antsibull_ext"]
# The rule by which GitHub names headings: a link to one works there and here.
myst_heading_anchors = 4
# A block without a language is no Python. Of what is typed only two hyphens become something else, a dash, which the
# reference's headings need.
highlight_language = "text"
smartquotes_action = "D"

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
antsibull_ext_color_scheme = "default-autodark"
html_copy_source = False
html_use_index = False

# Where the reference leads into Ansible's own documentation; its index of names would have to come from there, and the
# site is built without a network.
ANSIBLE = "https://docs.ansible.com/ansible/latest/"
PAGES = {
    "action_plugins": "plugins/action.html",
    "common_return_values": "reference_appendices/common_return_values.html",
}
# A plugin of another collection that comes with Ansible.
PLUGIN = re.compile(r"ansible_collections\.((?:ansible|community)\.\w+)\.(\w+)")


def into_ansible(
    _app: Sphinx, _env: BuildEnvironment, wanted: pending_xref, text: nodes.TextElement
) -> nodes.reference | None:
    """Return the link for a name that is none of this site's;
    None for one that Ansible's documentation is not known to have.
    """
    page = PAGES.get(wanted["reftarget"])
    if plugin := PLUGIN.fullmatch(wanted["reftarget"]):
        page = f"collections/{plugin[1].replace('.', '/')}/{plugin[2]}.html"
    return nodes.reference("", "", text, internal=False, refuri=ANSIBLE + page) if page else None


def setup(app: Sphinx) -> None:
    """Tell Sphinx of what is above."""
    app.connect("missing-reference", into_ansible)
