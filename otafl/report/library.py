"""Vega, Vega-Lite and Vega-Embed as one script, from the package vl-convert-python.

The package has the libraries compiled in, so nothing is fetched from a network. Its JavaScript
engine reserves tens of gigabytes of addresses and ends its process where it gets fewer, so it runs
in a process of its own.
"""

from __future__ import annotations

import functools
import subprocess
import sys

PROGRAM = """\
import sys, vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle().encode())
"""
FORBIDDEN = ("</script", "<script", "<!--", "\0", "\r")
"""Texts that would end a script element, or that a browser would read differently."""


@functools.cache
def load_library() -> str | None:
    """Return the script, or None where the package is missing or cannot be put into a page."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=False)
    script = done.stdout.decode(errors="replace")
    is_safe = not any(text in script.lower() for text in FORBIDDEN)
    return script if done.returncode == 0 and is_safe else None


def describe_missing() -> str:
    """Write what a page without the library lacks, and how to get it; empty if it is there."""
    if load_library() is not None:
        return ""
    return (
        "the page has its figures and tables only; to explore it in the browser, run "
        "pip install 'otafl[report]', and leave its memory unlimited (ulimit -v)"
    )
