"""Vega, Vega-Lite and Vega-Embed as one script, from the package vl-convert-python.

The package has the libraries compiled in, so nothing is fetched from a network.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

PACKAGE = "vl_convert"
EXTRA = "report"
FORBIDDEN = ("</script", "<script", "<!--", "\0", "\r")
"""Texts that would end a script element, or that a browser would read differently."""


def has_library() -> bool:
    """Return whether the optional package is installed."""
    return importlib.util.find_spec(PACKAGE) is not None


@functools.cache
def load_library() -> str | None:
    """Return the script, or None where the package is missing or cannot be put into a page."""
    if not has_library():
        return None
    import vl_convert

    bundle: Any = vl_convert.javascript_bundle  # its stub lacks the default
    script = str(bundle())
    is_safe = not any(text in script.lower() for text in FORBIDDEN)
    return script if is_safe else None


def describe_missing() -> str:
    """Write what a page without the library lacks, and how to get it; empty if it is there."""
    if load_library() is not None:
        return ""
    return (
        "the page has its figures and tables only; to explore it in the browser, "
        f"run pip install 'otafl[{EXTRA}]'"
    )
