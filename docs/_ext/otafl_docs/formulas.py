"""Formulas as pictures of outlines, set by matplotlib: no script, no font from elsewhere, and the
text's own colour."""

from __future__ import annotations

import html
import io
import re
from typing import Any

from docutils import nodes
from matplotlib import mathtext, rc_context
from matplotlib.font_manager import FontProperties

SIZE = 13.0


def picture(tex: str) -> str:
    """An SVG element of a formula in one line."""
    line = " ".join(tex.split())
    drawn = io.BytesIO()
    style: Any = {"mathtext.fontset": "cm", "svg.fonttype": "path", "svg.hashsalt": line}
    with rc_context(style):
        font = FontProperties(size=SIZE)
        mathtext.math_to_image(f"${line}$", drawn, prop=font, format="svg")
    text = drawn.getvalue().decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'<g id="patch_1">.*?</g>', "", text, flags=re.DOTALL)
    label = html.escape(line, quote=True)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}" fill="currentColor"', 1)


def inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(f'<span class="math">{picture(node.astext())}</span>')
    raise nodes.SkipNode


def block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{picture(node.astext())}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> None:
    app.add_html_math_renderer("outlines", (inline, None), (block, None))
