"""Commands that are called in this process, and the scenarios of a few rounds that they get."""

from __future__ import annotations

import pytest

from otafl import cli

SMALL = """\
name: small
data: digits
model: {name: mlp, hidden: [4]}
devices: {count: 3}
training: {rounds: 4, eval_every: 2, batch_size: 4}
trials: 2
"""
SWEEP = SMALL + "sweep: {channel.snr_db: [0, 10, 20], power.name: [gbma, ci]}\n"


def call(*args: object, code: int = 0) -> None:
    """The command in this process; it must end with the exit code."""
    with pytest.raises(SystemExit) as left:
        cli.main([str(arg) for arg in args])
    assert (left.value.code or 0) == code
