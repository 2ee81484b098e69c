"""reStructuredText of plain text: docstrings with formulas in ASCII and names in backticks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

ITEM = re.compile(r"(\d+\.|-) +")
TERM = re.compile(r"(\w+) {2,}(?=\S)")
NUMBER = re.compile(r" {5,}(\(\d+\w?\))$")
"""The number of an equation, far to the right of it."""

MATH = ".. math::"
"""The line above a formula in LaTeX."""

UNDERLINE = re.compile(r"-{3,}")
ENTRY = re.compile(r"(\*{0,2}\w[\w.]*(?:, \w+)*) : (.*)|([\w.]+Error)$")
"""How an entry of a numpydoc section begins: `name : text`, `one, two : text`, or an error."""


def escaped(text: str) -> str:
    """The text on one line, nothing in it markup but `code`."""
    parts = re.split(r"`+([^`]+)`+", " ".join(text.split()))
    plain = [re.sub(r"([\\*`_|])", r"\\\1", part).replace("::", ":\\:") for part in parts[::2]]
    code = [f"\\ ``{part}``\\ " for part in parts[1::2]] + [""]
    line = "".join(a + b for a, b in zip(plain, code, strict=True))
    # a bullet, a section's underline, an enumerator such as that of "Q. Wang"
    return f"\\ {line}" if re.match(r"[^\w\\]|\(?\w+[.)]\s", line) else line


def literal(text: str) -> str:
    return f"\\ ``{text}``\\ "


def prose(text: str) -> str:
    """A docstring: paragraphs, lists, and what is indented (formulas, examples) as it stands."""
    return "\n\n".join(_block(block) for block in _blocks(inspect.cleandoc(text)))


def _blocks(text: str) -> list[list[str]]:
    """Lines between empty lines; neighbouring indented blocks are one."""
    blocks: list[list[str]] = []
    for piece in re.split(r"\n\s*\n", text):
        lines = [line.rstrip() for line in piece.splitlines() if line.strip()]
        is_formula = bool(blocks) and blocks[-1] == [MATH]
        if blocks and lines and _indented(lines) and (is_formula or _indented(blocks[-1])):
            blocks[-1] += ["", *lines]
        elif len(lines) > 1 and lines[-1] == MATH:  # directly below a text or a section's title
            blocks += [lines[:-1], [MATH]]
        elif lines:
            blocks.append(lines)
    return blocks


def _indented(lines: Iterable[str]) -> bool:
    return all(line.startswith("    ") for line in lines if line)


def _block(lines: list[str]) -> str:
    if lines[0] == MATH:
        return "\n".join(lines)
    if len(lines) > 1 and UNDERLINE.fullmatch(lines[1]):
        return f".. rubric:: {lines[0]}\n\n{_section(lines[2:])}"
    if _indented(lines):
        body = [NUMBER.sub(r"    \1", line[4:]) for line in lines]
        return code("\n".join(body), "text", "formula")
    if all(TERM.match(line) or line.startswith("  ") for line in lines):
        lines = [TERM.sub(r"- `\1`: ", line) for line in lines]
    if not ITEM.match(lines[0]):
        return escaped(" ".join(lines))
    items: list[list[str]] = []
    for line in lines:
        if ITEM.match(line):
            items.append([line])
        else:
            items[-1].append(line.strip())
    marks = [ITEM.match(item[0]) for item in items]
    texts = [ITEM.sub("", item[0], count=1) + " " + " ".join(item[1:]) for item in items]
    return "\n".join(f"{m[1]} {escaped(t)}" for m, t in zip(marks, texts, strict=True) if m)


def _section(lines: list[str]) -> str:
    """A numpydoc section: entries `name : text`, or a name above its text; else a paragraph."""
    entries: list[tuple[str, list[str]]] = []
    for line in lines:
        entry = ENTRY.match(line)
        if entry:
            entries.append((entry[1] or entry[3], [entry[2]] if entry[2] else []))
        elif entries:
            entries[-1][1].append(line.strip())
        else:
            return escaped(_joined([line.strip() for line in lines]))
    return "\n".join(f"- {literal(name)}: {escaped(_joined(text))}" for name, text in entries)


def _joined(lines: list[str]) -> str:
    """Lines as one; a full stop after a type, which stands on a line of its own."""
    typed = len(lines) > 1 and lines[0][-1].isalnum() and lines[1][0].isupper()
    return " ".join([f"{lines[0]}.", *lines[1:]] if typed else lines)


def code(text: str, language: str, css: str = "") -> str:
    option = f"   :class: {css}\n" if css else ""
    return f".. code-block:: {language}\n{option}\n{indented(text.rstrip(), 3)}"


def heading(text: str, level: int = 0) -> str:
    """Levels 0 (a page's title) to 3."""
    return f"{text}\n{'=-~^'[level] * len(text)}"


def indented(text: str, spaces: int) -> str:
    return "\n".join(" " * spaces + line if line.strip() else "" for line in text.splitlines())


def table(head: Sequence[str], rows: Iterable[Sequence[str]], css: str, widths: str) -> str:
    """A table of cells, which may be several paragraphs each."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        f"   :class: {css}",
        f"   :widths: {widths}",
        "",
    ]
    for row in [head, *rows]:
        for place, cell in enumerate(row):
            first, *rest = cell.splitlines() or [""]
            lines.append(f"   {'* -' if place == 0 else '  -'} {first}".rstrip())
            lines += [" " * 7 + line if line.strip() else "" for line in rest]
    return "\n".join(lines)


def cards(items: Iterable[str]) -> str:
    """Cards beside each other, as many as there is room for."""
    return ".. grid:: 1 2 2 3\n   :gutter: 3\n   :class-container: choices\n\n" + "\n\n".join(
        indented(item, 3) for item in items
    )


def card(title: str, target: str, figure: str, text: str) -> str:
    """A card under a figure (an SVG element) that leads to a label."""
    return page(
        f".. grid-item-card:: {title}\n   :link: {target}\n   :link-type: ref",
        figure and indented(f".. raw:: html\n\n   {figure}", 3),
        indented(text, 3),
    )


def contents(pages: Iterable[str], depth: int = 1, hidden: bool = False) -> str:
    listed = "\n".join(f"   {page}" for page in pages)
    more = "   :hidden:\n" if hidden else ""
    return f".. toctree::\n   :maxdepth: {depth}\n{more}\n{listed}"


def page(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
