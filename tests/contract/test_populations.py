"""A device has the same numbers whoever else there is and takes part: state, codec memory, fading
and records that are kept for those who take part alone are those that are kept for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from contract.small import ALGORITHMS, engine, over_fading, section, small
from support.rounding import assert_agree
from torch import Tensor

from otafl.core import registry
from otafl.core.contracts import ChannelState
from otafl.engine.device_store import DeviceStore
from otafl.engine.engine import Engine
from otafl.evaluation.recorder import Recorder

pytestmark = pytest.mark.exact

FEW: dict[str, Any] = {"devices.count": 40, "devices.participants": 3, "trials": 2}
"""Of 40 devices nine take part in three rounds, at most."""
Values = dict[str, np.ndarray]


def taken(one: Engine, rounds: int = 3) -> Values:
    """What a run records, and what it leaves with server, devices and codecs."""
    recorder = Recorder(one, 1, one.num_trials)
    recorder.take_record(0, 0.0)
    for t in range(rounds):
        if not one.running.any():  # all have diverged
            break
        one.run_round(t)
        recorder.take_record(t + 1, 0.0)
    blocks = {**one.server, **one.devices.get_all(), **one.memory.get_all()}
    left = {f"left {name}": block.numpy() for name, block in blocks.items()}
    return recorder.record().variables | left


def same(one: Values, other: Values) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def keys_of(algorithm: str) -> dict[str, Any]:
    example = registry.load_settings_class("algorithm", algorithm).example
    return {"algorithm": algorithm, **example, "transport": over_fading(algorithm), **FEW}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_state_of_who_takes_part_is_state_of_all(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_of(algorithm)
    sparse = engine(keys)
    ours = taken(sparse)
    assert sparse.devices.num_allocated <= 18
    monkeypatch.setattr(DeviceStore, "_allocate_rows", _rows_of_all)
    dense = engine(keys)
    same(ours, taken(dense))
    assert dense.devices.num_allocated in (0, 80)


@pytest.mark.parametrize("codec", registry.list_names("codec"))
def test_memory_of_who_takes_part_is_memory_of_all(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = small("codec", codec)
    if "error_feedback" in registry.load_settings_class("codec", codec).model_fields:
        own["error_feedback"] = True
    keys = {**registry.load_settings_class("codec", codec).example, "codec": own, **FEW}
    sparse = engine(keys)
    ours = taken(sparse)
    assert sparse.memory.num_allocated <= 18
    monkeypatch.setattr(DeviceStore, "_allocate_rows", _rows_of_all)
    same(ours, taken(engine(keys)))


def _rows_of_all(store: DeviceStore, cohort: Any) -> Tensor:
    """A dense table: the old way."""
    store._write_all()
    return cohort.flat_index


@pytest.mark.parametrize("channel", ["awgn", "rayleigh", "rician", "tdl-a", "umi", "trace"])
def test_every_channel_knows_some_of_its_devices(channel: str) -> None:
    more = {} if channel in ("awgn", "trace", "umi") else {"block_symbols": 7}
    one = engine({"channel": section(channel) | more, "power": "ci"}).parts.link.channel
    some = torch.tensor([1, 3])
    for t in (0, 1, 70):
        theirs: ChannelState = one.get_state_of_devices(t, some)
        for symbols in (1, 40):
            h, whole = theirs.extend_to(symbols), one.get_state(t).extend_to(symbols)
            assert_agree(h[:, some], whole[:, some])
    outline = one.get_large_scale_state(1)
    assert outline.h.shape == one.get_state(1).h.shape
    assert_agree(outline.gain, one.get_state(1).gain)
