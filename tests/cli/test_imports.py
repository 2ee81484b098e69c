"""The quick commands of the command line import no large library."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("args", [["--help"], ["list"], ["new", "--help"]])
def test_quick_commands_import_neither_torch_nor_matplotlib(args: list[str]) -> None:
    code = f"""
import sys
from otafl.cli.commands import call
try:
    call({args!r})
except SystemExit as end:
    assert not end.code
large = {{"torch", "scipy.stats", "sionna", "matplotlib"}} & sys.modules.keys()
assert not large, large
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
