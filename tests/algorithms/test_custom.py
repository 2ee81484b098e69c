"""A method of the user's own, and what is said of a wrong one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support.rounding import assert_agree

from otafl.algorithms.custom import CustomAlgorithm
from otafl.core.errors import UserError
from otafl.engine.assembly import assemble, make_workload
from otafl.engine.engine import Engine
from otafl.scenario import expand, load_scenario

pytestmark = pytest.mark.exact

MODULE = """
from dataclasses import replace
import torch
from pydantic import Field
from otafl.algorithms.base import Algorithm, AveragedSettings, PayloadKind
from otafl.algorithms.baselines.fedavg import FedAvg
from otafl.algorithms.low_rank.fedrlr import FedRLR
from otafl.algorithms.submodels.narrow_networks import HeteroFL
from otafl.core.contracts import Group
from otafl.models.base import unflatten
from otafl.core.settings import Settings

class Same(FedAvg):
    pass

class Clipped(FedAvg):
    class Settings(FedAvg.Settings):
        clip: float = Field(1.0, gt=0)

    def run_local_update(self, broadcast, devices, context):
        state, payload, loss = super().run_local_update(broadcast, devices, context)
        update = payload[0].tensors["model"]
        update *= (self.settings.clip / update.norm(dim=1, keepdim=True)).clamp_max(1.0)
        return state, payload, loss

class HeavyBall(FedAvg):
    def init(self, streams, hyper):
        server, devices = super().init(streams, hyper)
        return server | {"velocity": torch.zeros_like(server["model"])}, devices

    def broadcast(self, server, cohort):
        return super().broadcast({"model": server["model"]}, cohort)

    def update_server(self, server, received, context):
        velocity = 0.5 * server["velocity"] + received.mean[0]["model"]
        return {"model": server["model"] + velocity, "velocity": velocity}

class Each(FedAvg):
    payload = PayloadKind("each")

class Averaging(HeavyBall):
    averages_increments = True

class LowRank(FedRLR): pass
class Widths(HeteroFL): pass

class Asking(FedAvg):
    class Settings(FedAvg.Settings):
        clip: float

class Whole(Algorithm):
    class Settings(Settings):
        whatever: int = 0

    def run_local_update(self, broadcast, devices, context):
        old, loss = broadcast.tensors["model"], 0.0
        params = {n: b.clone() for n, b in unflatten(old, self.model.shapes).items()}
        for step in range(context.local_data.steps):
            batch = context.local_data.draw_batch(step)
            loss = loss + self.model.take_sgd_step_(params, batch, torch.full((len(old),), 0.1))
        new = torch.cat([block.flatten(1) for block in params.values()], 1)
        return {}, (Group({"model": new - old}),), loss / context.local_data.steps

    def update_server(self, server, received, context):
        return {"model": server["model"] + received.mean[0]["model"]}

class Lean(Whole):
    class Settings(AveragedSettings):
        whatever: int = 0

    update_server = Algorithm.update_server

class Empty: pass

class Unfinished(Algorithm): pass

class NeedsLittle(FedAvg):
    payload = PayloadKind("little")

class Loose(FedAvg):
    class Settings:
        clip = 1.0

class Counting(FedAvg):
    acknowledged_state = ("lost",)

    def init(self, streams, hyper):
        server, _ = super().init(streams, hyper)
        return server, {"lost": torch.zeros(len(server["model"]), self.num_devices, 1)}

    def run_local_update(self, broadcast, devices, context):
        _, payload, loss = super().run_local_update(broadcast, devices, context)
        return devices, payload, loss

    def on_ack(self, devices, sent, delivered_masks, context):
        return {"lost": devices["lost"] + ~delivered_masks[0]}

class Forgetting(Counting):
    def on_ack(self, devices, sent, delivered_masks, context):
        return {}

class Spoiled(FedAvg):
    class Settings(FedAvg.Settings):
        how: str

    def run_local_update(self, *given):
        state, payload, loss = super().run_local_update(*given)
        how = self.settings.how
        if how == "pair": return payload, loss
        if how == "list": return state, list(payload), loss
        if how == "loss": return state, payload, loss.mean()
        if how == "state": return {"more": loss}, payload, loss
        if how == "rows":
            payload[0].tensors["model"] = payload[0].tensors["model"][:1]
        if how == "twice":
            payload = (replace(payload[0], row_index=torch.zeros(len(loss), dtype=int)),)
        if how == "list of rows":
            payload = (replace(payload[0], row_index=list(range(len(loss)))),)
        if how == "beyond":
            payload = (replace(payload[0], row_index=1 + torch.arange(len(loss))),)
        return state, payload, loss

    def update_server(self, *given):
        server = super().update_server(*given)
        if self.settings.how == "server": return server["model"]
        if self.settings.how == "block": return {"model": server["model"][:, :5]}
        return server

    def count_flops(self, workload):
        counts = workload.num_samples
        return {"flops": counts[1:], "number": 7.0}.get(self.settings.how, counts)
"""
SMALL: dict[str, Any] = {
    "name": "own",
    "data": {"name": "digits", "train_samples": 300},
    "model": "softmax_regression",
    "channel": {"name": "rayleigh", "snr_db": 5},
    "devices": {"count": 4},
    "training": {"rounds": 3, "local_steps": 2, "batch_size": 10, "eval_every": 1},
    "trials": 2,
}


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_methods.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def section(name: str, **keys: Any) -> dict[str, Any]:
    return {"name": f"my_own_methods:{name}", **keys}


def scenario(algorithm: Any, **keys: Any) -> dict[str, Any]:
    return {**SMALL, "algorithm": algorithm, **keys}


def models(algorithm: Any, **keys: Any) -> torch.Tensor:
    """[3, S, P] server models after each round."""
    engine = Engine(assemble(expand(load_scenario(scenario(algorithm, **keys))), [0, 1]))
    rounds = []
    for t in range(3):
        engine.run_round(t)
        rounds.append(engine.server["model"].clone())
    return torch.stack(rounds)


def test_a_part_of_its_own_is_used_and_gets_its_keys() -> None:
    """Three steps of the mean of increments no longer than 0.01 leave the model within 0.03."""
    start = models(section("Clipped", clip=1e-9))
    moved = models(section("Clipped", clip=0.01), transport="ideal") - start[0]
    steps = torch.cat([moved[:1], moved.diff(dim=0)]).norm(dim=2)
    assert (steps > 0.005).all()
    assert (steps <= 0.01 + 1e-6).all()
    assert_agree(models(section("Clipped", clip=1e9)), models("fedavg"))
    assert_agree(models(section("Asking", clip=0.01)), models("fedavg"))


def test_a_server_of_its_own() -> None:
    """v = v / 2 + increment, against increments of the same start: the second step is that of the
    first and what the server received."""
    one = models(section("HeavyBall"), transport="ideal")
    plain = models("fedavg", transport="ideal")
    assert_agree(one[0], plain[0])
    start = models(section("Clipped", clip=1e-9), transport="ideal")[0]
    torch.testing.assert_close(one[1] - plain[1], 0.5 * (plain[0] - start), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["Whole", "Lean"])
def test_a_method_that_derives_from_none(name: str) -> None:
    own = models(section(name, whatever=3), transport="ideal")
    assert_agree(own, models("fedavg", transport="ideal"))
    assert list(
        CustomAlgorithm(name="my_own_methods:Whole").component_class.Settings.model_fields
    ) == ["whatever"]


def test_what_goes_with_it_is_checked_by_its_settings() -> None:
    load_scenario(scenario(section("Each"), transport="digital"))
    load_scenario(scenario(section("Same"), server="adam"))
    levels = {"count": 4, "capacity_levels": {"name": "fixed", "shares": [0.5, 0.5]}}
    load_scenario(scenario(section("Widths", levels=[1.0, 0.5]), model="mlp", devices=levels))


OWN = "algorithm.name: 'my_own_methods:"
WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (section("Absent"), {}, f"{OWN}Absent': 'Absent' does not exist in module"),
    ({"name": "no_such:f"}, {}, "algorithm.name: 'no_such:f': No module named 'no_such'; is it"),
    (section("Empty"), {}, f"{OWN}Empty' is no method; derive the class from one, like otafl."),
    (section("Unfinished"), {}, f"{OWN}Unfinished' has no run_local_update; derive it from a "),
    (section("NeedsLittle"), {}, f"{OWN}NeedsLittle' has payload = PayloadKind(needs='little'"),
    (section("Loose"), {}, f"{OWN}Loose' has a Settings that is no class of settings; write "
     "class Settings(FedAvg.Settings)"),
    (section("Clipped", clipp=1), {}, "algorithm.clipp: unknown key; did you mean 'clip'? (known "
     "keys: learning_rate, decay, server_learning_rate, sends, clip)"),
    (section("Asking"), {}, "algorithm.clip: must be given"),
    (section("Clipped", clip=-1), {}, "algorithm.clip: got -1; must be greater than 0"),
    (section("Each"), {}, "transport: 'over_the_air' gives the server only the mean of the updat"),
    (section("HeavyBall"), {"server": "adam"}, "server: 'adam' steps along averaged increments, "),
    (section("LowRank", rank=11), {}, "algorithm.rank: got 11, which is above the smaller side"),
    (section("Same"), {"devices": {"count": 4, "capacity_levels": {"shares": [1, 1]}}},
     "devices.capacity_levels: algorithm 'my_own_methods:Same' has models of one size; leave the"),
    (section("Widths"), {"model": "mlp", "devices": {"count": 4, "capacity_levels": {
        "name": "fixed", "shares": [1] * 9}}}, "devices.capacity_levels.shares: got 9 values; ex"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "keys", "says"), WRONG, ids=[says[:60] for *_, says in WRONG]
)
def test_what_cannot_be_is_said_before_anything_runs(
    algorithm: dict[str, Any], keys: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError, match=re.escape(says)) as error:
        load_scenario(scenario(algorithm, **keys))
    assert len(str(error.value).splitlines()) == 1


SPOILED = {
    "pair": "of 'my_own_methods:Spoiled' returned a tuple; expected (devices, payload, loss)",
    "list": "of 'my_own_methods:Spoiled' returned the payload as a list; expected a tuple of",
    "loss": "returned a loss of shape []; expected [8]",
    "state": "returned the devices' blocks ['more']; expected [], as init made them",
    "rows": "the payload's tensor 'model' of shape [1, 650]; expected [8, ...], one row per device",
    "twice": "returned a group with several rows of a device; expected one row of a device in",
    "list of rows": "returned a row_index as a list; expected int64 [n], from 0 to 7",
    "beyond": "returned a row_index as a Tensor; expected int64 [n], from 0 to 7",
    "server": "update_server of 'my_own_methods:Spoiled' returned a Tensor; expected the ser",
    "block": "server of 'my_own_methods:Spoiled' returned the server's block 'model' of shape [2",
    "flops": "count_flops of 'my_own_methods:Spoiled' returned an array of shape [0]; expected one "
    "number, or [1]",
}


@pytest.mark.parametrize("how", SPOILED)
def test_wrong_shapes_are_said(how: str) -> None:
    with pytest.raises(UserError, match=re.escape(SPOILED[how])) as error:
        models(section("Spoiled", how=how))
    assert str(error.value).startswith("algorithm.name: ")


def test_a_settlement_of_its_own() -> None:
    """Devices count the updates that were not heard; a method without one is not asked."""
    keys = scenario(section("Counting"), power={"name": "tci", "threshold": 0.7})
    engine = Engine(assemble(expand(load_scenario(keys)), [0, 1]))
    lost = torch.zeros(2, 4)
    for t in range(3):
        lost += engine.parts.link.channel.get_state(t).h.abs().square().flatten(1) < 0.7
        engine.run_round(t)
    assert torch.equal(engine.devices.get_all()["lost"][..., 0], lost)
    assert 0 < lost.sum() < 24
    plain = assemble(expand(load_scenario(scenario(section("Same")))), [0])
    assert engine.parts.algorithm.acknowledged_state
    assert not plain.algorithm.acknowledged_state


def test_a_wrong_settlement_is_said() -> None:
    with pytest.raises(UserError, match=re.escape("returned the devices' blocks []; expected ['")):
        models(section("Forgetting"))


def test_one_number_of_operations_is_that_of_all_devices() -> None:
    (point,) = expand(load_scenario(scenario(section("Spoiled", how="number"))))
    parts = assemble([point], [0])
    assert parts.algorithm.count_flops(make_workload(point.scenario, parts.samples)).tolist() == [
        [7.0] * 4
    ]
