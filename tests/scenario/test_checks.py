"""What no section of a scenario can tell alone."""

from __future__ import annotations

from typing import Any

import pytest
from support.faults_of import list_faults

from otafl.algorithms.base import PayloadKind
from otafl.algorithms.baselines.fedavg import FedAvg
from otafl.scenario import Scenario, ScenarioError, load_scenario

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"devices": {"count": 10, "participants": 12}},
            "devices.participants: got 12, more than devices.count (10); leave it out for all "
            "devices",
        ),
        (
            {"training": {"stop_at": {"validation_accuracy": 0.9}}},
            "training.stop_at.validation_accuracy: there are no validation samples; set "
            "data.validation, e.g. to 0.1",
        ),
        (
            {
                "data": "mnist",
                "model": {"hidden": [256]},
                "algorithm": {"name": "fedrlr", "rank": 300},
            },
            "algorithm.rank: got 300, which is above the smaller side of every layer "
            "(784x256: 256, 256x10: 10); use at most 256",
        ),
        (
            {"algorithm": {"name": "fedrlr", "rank": [3]}},
            "algorithm.rank: got [3] for 2 layers (64x100: 64, 100x10: 10); give one rank for "
            "each layer, or one number for all",
        ),
        (
            {"algorithm": {"name": "fedrlr", "rank": [3, 20]}},
            "algorithm.rank: got [3, 20], which is above the smaller side of a layer "
            "(64x100: 64, 100x10: 10); use at most [64, 10]",
        ),
    ],
)
def test_sections_that_do_not_fit(tree: dict[str, Any], said: str) -> None:
    assert list_faults(tree) == [said]


@pytest.mark.parametrize(
    "tree",
    [
        {"algorithm": {"name": "fedrlr", "rank": [64, 10]}},
        {"devices": {"late": "next", "deadline_s": 1}},
    ],
)
def test_sections_that_just_fit(tree: dict[str, Any]) -> None:
    assert isinstance(load_scenario({"name": "x", **tree}), Scenario)


def test_a_method_that_needs_each_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedAvg, "payload", PayloadKind("each"))
    assert list_faults({}) == [
        "transport: 'over_the_air' gives the server only the mean of the updates, but algorithm "
        "'fedavg' needs each of them; use one of the transports ideal, digital"
    ]
    assert load_scenario({"name": "x", "transport": "digital"}).transport.name == "digital"


def said(tree: dict[str, Any]) -> str:
    with pytest.raises(ScenarioError) as error:
        load_scenario({"name": "x", **tree})
    return str(error.value)


@pytest.mark.parametrize("receiver", ["scalar", "eigen", "uniform_forcing"])
def test_blind_devices_need_the_sum_of_channels(receiver: str) -> None:
    assert said({"power": "blind", "receiver": receiver}) == (
        f"receiver: '{receiver}' does not go with power: 'blind', whose devices do not know their "
        "phases; use auto or mrc"
    )


WHOLE = {"name": "fedavg", "sends": "model"}


@pytest.mark.parametrize(
    ("method", "part"),
    [
        ("fedasync", {"codec": {"name": "compressed_sensing", "keep": 0.1}}),
        ("prox_sgd", {"devices": {"count": 4, "participants": 2, "selection": "update_norm"}}),
        ("fedamp", {"transport": "digital", "codec": "topk"}),
    ],
)
def test_models_are_no_increments(method: str, part: dict[str, Any]) -> None:
    text = said({"algorithm": method} | part)
    assert f"so it needs increments, and algorithm '{method}' with these" in text


def test_what_would_do_in_the_place_of_models() -> None:
    assert said({"algorithm": WHOLE, "codec": "obda"}) == (
        "codec: 'obda' takes a vote of signs, along which the server steps, so it needs "
        "increments, and algorithm 'fedavg' with these settings sends none; use "
        "algorithm.sends: increment"
    )
    assert said({"algorithm": "prox_sgd", "transport": "fsk_majority_vote"}).endswith(
        "sends none; use an algorithm that does, such as fedavg"
    )
    assert said({"algorithm": "prox_sgd", "codec": "topk"}).endswith(
        "sends none; use codec.error_feedback: false"
    )
    assert said({"algorithm": WHOLE, "codec": "random_subset"}).endswith(
        "; use algorithm.sends: increment or codec.fill: keep"
    )


def test_a_graph_sends_models_and_takes_no_votes() -> None:
    tree = {"topology": "graph", "transport": "fsk_majority_vote", "devices": {"count": 4}}
    assert said(tree) == (
        "transport: 'fsk_majority_vote' takes a vote of signs, along which the server steps, and "
        "neighbours send each other their models; use over_the_air"
    )


class Whole(FedAvg):
    """A method of the user's own that says what it sends."""

    @classmethod
    def describe_payload(cls, settings: Any) -> PayloadKind:
        return PayloadKind(is_increment=False)


def test_methods_and_codecs_of_the_users_own() -> None:
    own = f"{__name__}:Whole"
    assert "so it needs increments" in said({"algorithm": own, "codec": "obda"})
    assert load_scenario({"name": "x", "algorithm": own})
