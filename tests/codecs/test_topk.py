"""The largest magnitudes with error feedback, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.codec_bench import acknowledge, draw_normal, encode, make_codec

from otafl.codecs.subsets import TopK
from otafl.core.contracts import Group

pytestmark = pytest.mark.exact


def test_topk_with_memory_by_hand() -> None:
    """Two of five. Round 0 leaves (0, 1, 0, -2, 0); round 1 sends 3 + 1 and -1 - 2."""
    codec = make_codec(TopK, TopK.Settings(keep=0.4))
    first, second = torch.tensor([[-5.0, 1, 3, -2, 0]]), torch.tensor([[1.0, 3, 1, -1, 0]])
    (sent,), memory = encode(codec, (Group({"a": first}),))
    assert sent.tensors["a"].tolist() == [[-5, 0, 3, 0, 0]]
    memory = acknowledge(codec, (sent,), memory)
    assert memory["rest/0"].tolist() == [[0, 1, 0, -2, 0]]
    (sent,), memory = encode(codec, (Group({"a": second}),), memory)
    assert sent.tensors["a"].tolist() == [[0, 4, 0, -3, 0]]
    memory = acknowledge(codec, (sent,), memory)
    assert memory["rest/0"].tolist() == [[1, 0, 1, 0, 0]]


def test_topk_against_sorting() -> None:
    blocks = {"a": draw_normal(3, 4, 5), "b": 10.0 * draw_normal(3, 10, seed=1)}
    kept = blocks | {}
    codec = make_codec(TopK, TopK.Settings(keep=0.25, error_feedback=False))
    (sent,), memory = encode(codec, (Group(blocks),))
    assert memory == {}
    for k in range(3):
        rows = {name: block[k].flatten().numpy() for name, block in kept.items()}
        least = np.sort(np.abs(np.concatenate(list(rows.values()))))[-8]  # round(30 / 4) = 8
        for name, row in rows.items():
            hand = np.where(np.abs(row) >= least, row, 0)
            np.testing.assert_array_equal(sent.tensors[name][k].flatten().numpy(), hand)


def test_memory_of_explicit_rows_and_of_unknown_coordinates() -> None:
    """Rows 2 and 0 of three devices; the second knows only coordinates 1 and 2. Device 1 keeps its
    memory, as does device 0 for the coordinate that it does not know."""
    codec = make_codec(TopK, TopK.Settings(keep=1 / 3))
    block = torch.tensor([[1.0, 2, -3], [9, 1, 2]])
    mask = torch.tensor([[1.0, 1, 1], [0, 1, 1]])
    group = Group({"a": block}, row_index=torch.tensor([2, 0]), mask={"a": mask})
    before = torch.tensor([[10.0, 0, -4], [7, 7, 7], [0, 0, 0]])
    (sent,), memory = encode(codec, (group,), {"rest/0": before})
    assert sent.tensors["a"].tolist() == [[0, 0, -3], [0, 0, -2]]
    memory = acknowledge(codec, (sent,), memory)
    assert memory["rest/0"].tolist() == [[10, 1, 0], [7, 7, 7], [1, 2, 0]]
    assert before.tolist() == [[10, 0, -4], [7, 7, 7], [0, 0, 0]]


def test_what_is_not_received_stays_whole_in_the_memory() -> None:
    """Three devices send two of five reals: one is heard, one is not, of one the first half is."""
    codec = make_codec(TopK, TopK.Settings(keep=0.4))
    x = torch.tensor([[-5.0, 1, 3, -2, 0]]).repeat(3, 1)
    (sent,), memory = encode(codec, (Group({"a": x}),))
    assert memory["rest/0"].tolist() == x.tolist()
    heard = torch.tensor([[True] * 5, [False] * 5, [True, True, False, False, False]])
    memory = acknowledge(codec, (sent,), memory, heard)
    assert memory["rest/0"].tolist() == [[0, 1, 0, -2, 0], [-5, 1, 3, -2, 0], [0, 1, 3, -2, 0]]
    assert make_codec(TopK, TopK.Settings()).has_memory
    assert not make_codec(TopK, TopK.Settings(error_feedback=False)).has_memory


def test_rounded_values_by_hand() -> None:
    """Three bits: a sign, and the magnitudes 1, 2, 3 and 4 between the smallest and the largest of
    the four kept. The memory keeps what was left out and the rounding error."""
    codec = make_codec(TopK, TopK.Settings(keep=0.8, value_bits=3))
    x = torch.tensor([[-4.0, 1.0, 2.4, -2.6, 0.5]])
    (sent,), memory = encode(codec, (Group({"a": x}),))
    assert sent.tensors["a"].tolist() == [[-4, 1, 2, -3, 0]]
    memory = acknowledge(codec, (sent,), memory)
    torch.testing.assert_close(memory["rest/0"], torch.tensor([[0, 0, 0.4, 0.4, 0.5]]))
    assert codec.count_bits(sent) == 4 * 3 + 64 + 5  # a map of 5 bits


def test_enumerative_positions() -> None:
    """C(30, 6) = 593,775 subsets take 20 bits."""
    group = Group({"a": torch.zeros(1, 10), "b": torch.zeros(1, 20)})
    settings = TopK.Settings(keep=0.2, position_code="enumerative")
    assert make_codec(TopK, settings).count_bits(group) == 6 * 32 + 20
