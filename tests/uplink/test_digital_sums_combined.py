"""Digital sums and counts with what else a scenario can have: a stack computes what its trials do
alone, and what does not go together is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from contract.small import close, engine, run, scores, small

from otafl.core.errors import UserError

TRANSPORTS = ("sumcomp", "bit_slices", "unsourced", "blind_unsourced")

CASES: dict[str, dict[str, Any]] = {
    "a cloud": {"topology": {"name": "hierarchical", "servers": 3, "cloud_every": 1}},
    "access points": {"topology": {"name": "cell_free", "points": 2}},
    "batteries": {"devices.compute": {"name": "mcu", "battery_j": 0.5}},
    "faults": {
        "faults": {
            "byzantine": 1,
            "attack": "nan",
            "crash_probability": 0.3,
            "jammer_db": 5.0,
        },
        "impairments": {"interference_db": 0.0},
    },
    "late devices": {
        "devices.compute": {"name": "mcu", "jitter": "exponential", "jitter_scale": 0.5},
        "devices.deadline_s": 0.002,
        "devices.late": "next",
    },
    "groups of a robust rule": {
        "robust": {"rule": "coordinate_median", "groups": 3},
        "devices.count": 6,
    },
    "a digital downlink": {"downlink": {"name": "digital"}},
    "paths and blocks": {"channel": {"name": "tdl-c", "subcarrier_groups": 8}},
    "a chosen subset": {
        "codec": {"name": "shared_subset", "keep": 0.2, "rule": "fair_k"},
        "output": {"save_link": True},
    },
}


def make_keys(transport: str, case: dict[str, Any]) -> dict[str, Any]:
    keys = {"engine.dtype": "float64", "transport": small("transport", transport), **case}
    channel = {"name": "rayleigh", **keys.get("channel", {})}
    if transport == "blind_unsourced":
        return keys | {"channel": channel | {"antennas": 4}}
    return keys | {"channel": channel, "power": "tci" if "topology" not in case else "ci"}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_stack_computes_what_its_trials_do_alone(transport: str, case: str) -> None:
    keys = make_keys(transport, CASES[case])
    both = scores(run(engine(keys, [0, 1]), 2))
    alone = scores(run(engine(keys, [1]), 2))
    last = {name: value[len(value) // 2 :] for name, value in both.items()}
    close(last, alone, 1e-9)
    assert all(torch.isfinite(value).all() for value in alone.values())


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            {"topology": {"name": "cells", "servers": 3, "cross_gain_db": -6}},
            "does not support inter-cell interference",
        ),
        ({"privacy": {"clip": 1.0}}, "does not account for what it reveals"),
    ],
)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_does_not_go_together(transport: str, case: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        engine(make_keys(transport, case), [0])
