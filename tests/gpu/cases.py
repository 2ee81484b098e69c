"""What is run on a GPU and beside it: every component that computes with tensors, kept small."""

from __future__ import annotations

from typing import Any

import numpy as np
from contract.small import ALGORITHMS, over_fading, small

from otafl.core import registry
from otafl.data import DataSet


def sequences() -> DataSet:
    """Six steps of four numbers, of ten classes."""
    x = np.random.default_rng(0).standard_normal((400, 6, 4), dtype=np.float32)
    y = np.arange(400) % 10
    return DataSet(x[100:], y[100:], x[:100], y[:100], classes=10)


def tokens() -> DataSet:
    """Six tokens of five, and those that follow."""
    x = np.random.default_rng(0).integers(0, 5, (400, 7))
    return DataSet(x[100:, :-1], x[100:, 1:], x[:100, :-1], x[:100, 1:], classes=5)


TABLES = (
    *("channel", "csi", "receiver", "power", "codec", "transport", "downlink", "server"),
    *("rule", "attack", "selection", "capacity_levels", "cpu_frequency", "protocol", "model"),
)

MORE: dict[str, dict[str, Any]] = {
    "late updates": {
        "devices.compute": {"name": "mcu", "jitter": "exponential", "jitter_scale": 0.5},
        "devices.deadline_s": 0.002,
        "devices.late": "next",
    },
    "faults": {
        "faults": {
            "byzantine": 1,
            "attack": "nan",
            "crash_probability": 0.3,
            "straggler_probability": 0.3,
        }
    },
    "a model of sequences": {
        "data": {"name": "gpu.cases:sequences"},
        "model": {"name": "lstm", "hidden": 3, "classifier": [4]},
    },
    "a model of tokens": {
        "data": {"name": "gpu.cases:tokens"},
        "model": {"name": "token_lstm", "embedding": 3, "hidden": 4},
        "loss": "next_token",
    },
    "some take part": {"devices.participants": 2},
    "some send": {"devices.senders": 2},
    "cut into blocks": {
        "channel": {"name": "rayleigh", "block_symbols": 40},
        "transport": {"name": "over_the_air", "normalise": "block", "centre": True},
    },
    "samples over paths": {
        "channel": {"name": "tdl-c", "subcarrier_groups": 8},
        "transport": {"name": "ofdm", "subcarriers": 8, "prefix": 0, "amplifier": "rapp"},
        "impairments": {"timing_offset": 0.2, "carrier_offset": 0.1, "clip_db": 3, "adc_bits": 8},
    },
    "cells that hear each other": {
        "topology": {"name": "cells", "servers": 3, "cross_gain_db": -6},
    },
    "cells at several places": {
        "channel": {"name": "umi", "subcarrier_groups": 1},
        "power": "ci",  # which needs no long-term state of the channel
        "topology": {"name": "cells", "servers": 3},
    },
    "a moving cell": {
        "channel": {"name": "umi", "subcarrier_groups": 1, "speed_kmh": 30, "mobility": "linear"},
        "power": "ci",
    },
    "a cloud": {"topology": {"name": "hierarchical", "servers": 3, "cloud_every": 1}},
    "access points": {"topology": {"name": "cell_free", "points": 2}, "power": "ci"},
    "a graph": {"topology": "graph", "power": "ci"},
    "matrices over the air": {
        "codec": {"name": "matrix_sensing", "rows": 2},
        "algorithm": {"name": "fedavg", "sends": "model"},
    },
}


def _keys(table: str, name: str) -> dict[str, Any]:
    """A scenario with the component and what its settings' example says that it needs."""
    path = registry.TABLES[table].section
    example = registry.load_settings_class(table, name).example
    others = {key: value for key, value in example.items() if not key.startswith(f"{path}.")}
    return {**others, path: small(table, name)}


def _made() -> dict[str, dict[str, Any]]:
    """Every case by its name, in single tables and, for methods, with each transport."""
    cases = {
        f"{algorithm} over {transport}": {"algorithm": algorithm, "transport": transport}
        for algorithm in ALGORITHMS
        for transport in ("ideal", over_fading(algorithm))
    }
    for table in TABLES:
        for name in registry.list_names(table):
            if "data.name" in registry.load_settings_class(table, name).example:
                continue  # the data set would be downloaded; `MORE` has others
            cases[f"{table} {name}"] = _keys(table, name)
    # seed 7 gives two coordinates equal size, of which one is kept: other ones on other processors
    cases["codec compressed_sensing"]["seed"] = 9
    return cases | MORE


CASES = _made()
"""Name of a case -> the keys that it changes of `contract.small.BASE`."""

TRIED = (
    *("channel", "csi", "receiver", "power", "codec", "transport", "downlink", "server"),
    "selection",
)

LONG = {"csi delay", "csi phase_feedback", "receiver eigen"}
"""Their examples' channels are simulated symbol by symbol."""

QUICK = [
    *(f"{algorithm} over ideal" for algorithm in ALGORITHMS),
    *(
        case
        for table in TRIED
        for case in (f"{table} {name}" for name in registry.list_names(table))
        if case not in LONG
    ),
    *MORE,
]
"""The cases that run on a pretended GPU."""
