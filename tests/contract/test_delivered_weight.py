"""Readers of the weight that arrived, under every codec, where 30 % of it did.

A server that hears 3 of 10 devices of equal weight must step as if these 3 had been the only ones
to send. So a method that reads too large a weight (a buffer that fills too fast, SCAFFOLD's c), or
divides by one that is too small, differs from the round of the three.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from contract.small import engine, scores

from otafl.core import registry
from otafl.core.errors import UserError
from otafl.engine.engine import Engine
from otafl.uplink.delivery import Delivery

pytestmark = pytest.mark.exact

DEVICES, HEARD = 10, (1, 4, 8)

READERS: dict[str, dict[str, Any]] = {
    "fedbuff": {"buffer": 5},
    "scaffold": {},
    "fedavg": {},
    "fedrlr": {"bias_mode": "ota"},
    "fedrlr_plus": {},
    "tdpfed": {"weights": "uniform", "factor_steps": 2, "solver_steps": 2},
    "heterofl": {},
    "fedrolex": {},
    "fedhm": {"sends": "product", "levels": [0.5]},
    "fedasync": {"sends": "increment"},
    "prox_sgd": {"bias_mode": "ota"},
}
"""Methods that read the weight that arrived or divide by it, and some that must not need it."""

FACTORED = ("fedrlr", "fedrlr_plus")

CODECS: dict[str, dict[str, Any]] = {
    "matrix_sensing": {"rows": 2},
    "random_subset": {"fill": "keep"},
    "compressed_sensing": {"chunk": 64},
}

VOTES = ("obda",)

LINKS: dict[str, dict[str, Any]] = {
    "digital": {"transport": "digital"},
    "over_the_air": {"transport": "over_the_air"},
    "several fades": {"transport": "over_the_air", "channel.block_symbols": 40},
    "fsk_majority_vote": {"transport": "fsk_majority_vote"},
}

NAMES = [*(name for name in registry.list_names("codec") if name != "obda"), *VOTES]


def a_round(method: str, codec: str, link: str, *, absent: bool) -> Engine:
    """An engine after a round in which three devices are heard: the others are absent, or have no
    energy to send what they have."""
    coded: dict[str, Any] = {"name": codec, **CODECS.get(codec, {})}
    keys: dict[str, Any] = {
        "algorithm": {"name": method, **READERS[method]},
        "codec": coded,
        "channel": {"name": "rayleigh", "snr_db": 200.0},
        "data": {"name": "digits", "train_samples": 300, "partition": {"name": "iid"}},
        "devices.count": DEVICES,
        "engine.dtype": "float64",
        "trials": 2,
        **LINKS[link],
    }
    if link in ("over_the_air", "several fades"):
        keys["power"] = "ci"
    one = engine(keys)
    if absent:
        select = one.select_cohort

        def three(*given: Any) -> Any:
            cohort = select(*given)
            who = torch.isin(cohort.device, torch.tensor(HEARD)).nonzero().squeeze(1)
            return cohort.take(who)

        one.select_cohort = three  # type: ignore[method-assign]
    else:
        carry = one.parts.link.transport.transmit
        energy = torch.zeros(2, DEVICES, dtype=torch.float64)
        energy[:, list(HEARD)] = 1e300

        def short(delivery: Delivery) -> None:
            delivery.limits = replace(delivery.limits, energy_budget=energy)
            carry(delivery)

        one.parts.link.transport.transmit = short  # type: ignore[method-assign]
    one.run_round(0)
    return one


CASES = [("fedbuff", codec, "over_the_air") for codec in NAMES]
CASES += [("scaffold", codec, "digital") for codec in VOTES]
CASES += [("scaffold", "shared_subset", "several fades")]
CASES += [("prox_sgd", "matrix_sensing", "several fades")]
CASES += [(method, "obda", "over_the_air") for method in ("scaffold", "heterofl", "fedhm")]
CASES += [(method, "identity", "fsk_majority_vote") for method in ("fedbuff", "scaffold", "fedhm")]


CASES += [(method, "identity", "several fades") for method in READERS]


@pytest.mark.parametrize(("method", "codec", "link"), CASES)
def test_silent_devices_are_as_absent_ones(method: str, codec: str, link: str) -> None:
    """The server's blocks and the scores of its model, where the three go together."""
    try:
        absent = a_round(method, codec, link, absent=True)
    except UserError:
        return
    silent = a_round(method, codec, link, absent=False)
    both = [{"scores": scores(one)["global"]} for one in (silent, absent)]
    if method not in FACTORED:  # factors of the same product may differ
        both = [silent.server | both[0], absent.server | both[1]]
    wrong = {}
    for name, block in both[1].items():
        off, scale = float((both[0][name] - block).abs().max()), float(block.abs().max())
        if off > 1e-7 * scale + 1e-12:
            wrong[name] = f"off by {off:.2g} of {scale:.2g}"
    assert wrong == {}
