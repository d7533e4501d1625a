# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages and pictures as they would be written out: pages leave out what a browser does not need."""

import re
from xml.etree import ElementTree

from ansible_collections.threadwise.smt.plugins.plugin_utils._page import canvas

# What the begin or the end of an element ends of those whose ends may be missing.
ENDED = {
    **dict.fromkeys(("td", "th"), ("td", "th")),
    "tr": ("td", "th", "tr"),
    **dict.fromkeys(("tbody", "/thead"), ("td", "th", "tr", "thead")),
    **dict.fromkeys(("/tbody", "/table"), ("td", "th", "tr", "thead", "tbody")),
    **dict.fromkeys(("li", "/ul"), ("li",)),
}
ENDS = frozenset({"td", "th", "tr", "thead", "tbody", "li"})
TAG = re.compile(
    r"<(/?)([a-z][a-z0-9]*)((?:\s(?:[^<>\"]|\"[^\"]*\")*)?)>|<script.*?</script>|<style.*?</style>", re.DOTALL
)
ATTRIBUTES = {name: pair for pair, name in canvas.CLASSES.items()}
COLOURS = {name: colour for colour, name in canvas.COLOURS.items()}


def whole(page):
    """The same page with the ends of all elements, quotes around all values, and the scope of heads."""
    made, stack, place = [], [], 0
    for tag in TAG.finditer(page):
        text, place = page[place : tag.start()], tag.end()
        end, name, attributes = tag.groups()
        closed = ENDED.get(f"{end}{name}", ())
        if stack and stack[-1] in closed:
            text = text.rstrip()
        made.append(text)
        while stack and stack[-1] in closed:
            made.append(f"</{stack.pop()}>")
        if name is None:
            made.append(tag[0])
            continue
        if name in ENDS:
            if not end:
                stack.append(name)
            elif stack and stack[-1] == name:
                stack.pop()
            else:
                continue
        scope = (
            f' scope="{"col" if "thead" in stack else "row"}"'
            if name == "th" and not end and "scope" not in attributes
            else ""
        )
        quoted = re.sub(r"([\w-]+)=(?:\"([^\"]*)\"|([^\s\"/]+))", r'\1="\2\3"', attributes or "")
        made.append(f"<{end}{name}{scope}{quoted}>")
    return "".join([*made, page[place:]])


def picture(svg):
    """A picture as elements, with the attributes that its classes stand for."""
    tree = ElementTree.fromstring(whole(svg))
    for element in tree.iter():
        for name in element.attrib.pop("class", "").split():
            if name in ATTRIBUTES:
                element.set(*ATTRIBUTES[name])
            elif name in COLOURS:
                element.set("colour", COLOURS[name])
    return tree


def classes(page):
    """The classes of what is in the pictures of a page."""
    svg = "".join(map(whole, re.findall("<svg.*?</svg>", page)))
    return {name for found in re.findall(r'class="([^"]*)"', svg) for name in found.split()}
