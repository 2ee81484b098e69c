"""Commands of the interpreter, each as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def start(*command: object, **keywords: Any) -> subprocess.Popen[str]:
    """Start `python` with a command line: `-m MODULE`, `-c CODE` or a file, and arguments."""
    return subprocess.Popen([sys.executable, *map(str, command)], text=True, **keywords)


def run(
    *command: object, timeout: float | None = 600.0, **keywords: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return what it wrote."""
    keywords = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | keywords
    line = [sys.executable, *map(str, command)]
    return subprocess.run(line, text=True, timeout=timeout, check=False, **keywords)
