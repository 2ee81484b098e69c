"""A method of the user's own, and what is said of a wrong one.

Mutations that make a test here fail: settings not read from the section, stackable settings not
stacked, the callable's own keys in the stack key left out, `needs` or `averages` of the class
ignored, checks of sizes and ranks that do not see the settings, shapes unchecked.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import otafl
from otafl.algorithms.config import FedAvgConfig, FedRLRConfig
from otafl.algorithms.config_own import CustomAlgorithmConfig, NoSettings, own_method
from otafl.core import registry
from otafl.core.errors import UserError
from otafl.engine.assembly import assemble
from otafl.engine.engine import Engine
from otafl.scenario import expand, load_scenario, scenario_hash, stack_key, to_yaml

MODULE = """
import torch
from otafl.algorithms.config import FedAvgConfig
from otafl.algorithms.fedavg import FedAvg
from otafl.algorithms.fedrlr import FedRLR
from otafl.algorithms.heterofl import HeteroFL
from otafl.core.settings import stackable

class Same(FedAvg):
    pass

class Clipped(FedAvg):
    def __init__(self, config, model, devices, clip=1.0):
        super().__init__(config, model, devices)
        self.clip = clip

    def local(self, *given):
        devices, payload, loss = super().local(*given)
        update = payload[0].blocks["model"]
        update *= (self.clip / update.norm(dim=1, keepdim=True)).clamp_max(1.0)
        return devices, payload, loss

class HeavyBall(FedAvg):
    def init(self, streams, hyper):
        server, devices = super().init(streams, hyper)
        return server | {"velocity": torch.zeros_like(server["model"])}, devices

    def broadcast(self, server, cohort):
        return super().broadcast({"model": server["model"]}, cohort)

    def combine(self, server, received, cohort, round, hyper, streams):
        velocity = 0.5 * server["velocity"] + received.mean[0]["model"]
        return {"model": server["model"] + velocity, "velocity": velocity}

class ScaledConfig(FedAvgConfig):
    factor: float = stackable(1.0, gt=0)

class Scaled(FedAvg):
    def __init__(self, config: ScaledConfig, model, devices):
        super().__init__(config, model, devices)

    def local(self, broadcast, devices, cohort, work, hyper, streams):
        state, payload, loss = super().local(broadcast, devices, cohort, work, hyper, streams)
        payload[0].blocks["model"].mul_(hyper["factor"][cohort.trial][:, None])
        return state, payload, loss

class Each(FedAvg):
    needs = "each"

class Averaging(HeavyBall):
    averages = True

class LowRank(FedRLR): pass
class Widths(HeteroFL): pass

def made(config: FedAvgConfig, model, devices, *, clip):
    return Clipped(config, model, devices, clip)

made.needs = "mean"

class Whole:
    needs = "mean"
    def __init__(self, config, model, devices, **anything):
        self._inner, self.anything = FedAvg(FedAvgConfig(), model, devices), anything
    def init(self, streams, hyper): return self._inner.init(streams, hyper)
    def broadcast(self, server, cohort): return self._inner.broadcast(server, cohort)
    def local(self, broadcast, devices, cohort, work, hyper, streams):
        hyper = {"learning_rate": torch.full((cohort.trials,), 0.1), "decay": torch.zeros(1)}
        return self._inner.local(broadcast, devices, cohort, work, hyper, streams)
    def combine(self, server, received, cohort, round, hyper, streams):
        return {"model": server["model"] + received.mean[0]["model"]}
    def views(self, server, devices): return self._inner.views(server, devices)
    def flops(self, samples): return self._inner.flops(samples)

class Empty: pass

class NeedsLittle(FedAvg):
    needs = "little"

class Silent(Whole):
    needs = None

class Twice(FedAvg):
    def __init__(self, config, model, devices, decay=0.1):
        super().__init__(config, model, devices)

def nothing(config: FedAvgConfig, model, devices): return None
nothing.needs = "mean"

class Spoiled(FedAvg):
    def __init__(self, config, model, devices, how):
        super().__init__(config, model, devices)
        self.how = how

    def local(self, *given):
        state, payload, loss = super().local(*given)
        if self.how == "pair": return payload, loss
        if self.how == "list": return state, list(payload), loss
        if self.how == "loss": return state, payload, loss.mean()
        if self.how == "state": return {"more": loss}, payload, loss
        if self.how == "rows":
            payload[0].blocks["model"] = payload[0].blocks["model"][:1]
        return state, payload, loss

    def combine(self, *given):
        server = super().combine(*given)
        if self.how == "server": return server["model"]
        if self.how == "block": return {"model": server["model"][:, :5]}
        return server
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
        engine.round(t)
        rounds.append(engine.server["model"].clone())
    return torch.stack(rounds)


def test_a_class_that_changes_nothing_is_the_method_that_it_derives_from() -> None:
    """The section's keys are the settings of that method."""
    keys = {"learning_rate": 0.3, "decay": 0.1, "server_learning_rate": 0.7}
    own, built_in = models(section("Same", **keys)), models({"name": "fedavg", **keys})
    assert torch.equal(own, built_in)
    assert not torch.equal(own, models(section("Same")))


def test_a_part_of_its_own_is_used_and_gets_its_keys() -> None:
    """Three steps of the mean of increments no longer than 0.01 leave the model within 0.03."""
    start = models(section("Clipped", clip=1e-9))
    moved = models(section("Clipped", clip=0.01), transport="ideal") - start[0]
    steps = torch.cat([moved[:1], moved.diff(dim=0)]).norm(dim=2)
    assert (steps > 0.005).all()
    assert (steps <= 0.01 + 1e-6).all()
    torch.testing.assert_close(
        models(section("Clipped", clip=1e9)), models("fedavg"), rtol=0, atol=1e-6
    )
    assert torch.equal(models(section("made", clip=0.01)), models(section("Clipped", clip=0.01)))


def test_a_server_of_its_own() -> None:
    """v = v / 2 + increment, against increments of the same start: the second step is that of the
    first and what the server received."""
    one = models(section("HeavyBall"), transport="ideal")
    plain = models("fedavg", transport="ideal")
    assert torch.equal(one[0], plain[0])
    start = models(section("Clipped", clip=1e-9), transport="ideal")[0]
    torch.testing.assert_close(one[1] - plain[1], 0.5 * (plain[0] - start), rtol=0, atol=1e-6)


def test_a_method_that_derives_from_none() -> None:
    own = models(section("Whole", whatever=3), transport="ideal")
    torch.testing.assert_close(own, models("fedavg", transport="ideal"), rtol=0, atol=1e-6)
    assert own_method("my_own_methods:Whole").settings is NoSettings


def test_settings_are_stacked_as_those_of_built_in_methods() -> None:
    def keys(**sweep: Any) -> set[str]:
        points = expand(load_scenario(scenario(section("Clipped"), sweep=sweep)))
        return {stack_key(point.scenario) for point in points}

    assert len(keys(**{"algorithm.learning_rate": [0.1, 0.2, 0.3]})) == 1
    assert len(keys(**{"algorithm.clip": [0.1, 0.2]})) == 2
    assert len(keys(**{"algorithm.sends": ["model", "increment"]})) == 2


@pytest.mark.parametrize(
    ("name", "key"), [("Same", "learning_rate"), ("Clipped", "clip"), ("Scaled", "factor")]
)
def test_a_point_of_a_sweep_is_what_it_is_alone(name: str, key: str) -> None:
    """Also of a settings class of the user's, one of whose fields is stacked."""
    swept = otafl.run(scenario(section(name), sweep={f"algorithm.{key}": [0.05, 0.2]}))
    assert swept[key].values.tolist() == [0.05, 0.2]
    losses = []
    for value in (0.05, 0.2):
        alone = otafl.run(scenario(section(name, **{key: value})))
        found = swept.sel({key: value}).test_loss.values
        assert abs(found - alone.test_loss.values).max() < 1e-5
        losses.append(found[..., -1].mean())
    assert losses[1] < losses[0] - 1e-3


def test_own_and_built_in_methods_in_one_sweep() -> None:
    names = ["fedavg", section("Same"), section("Clipped", clip=0.01)]
    result = otafl.run(scenario("fedavg", sweep={"algorithm.name": names}))
    labels = ["fedavg", "my_own_methods:Same", "my_own_methods:Clipped(clip=0.01)"]
    assert result.algorithm.values.tolist() == labels
    loss = result.test_loss.isel(round=-1)
    assert (loss.sel(algorithm=labels[1]) == loss.sel(algorithm="fedavg")).all()
    assert (loss.sel(algorithm=labels[2]) > loss.sel(algorithm="fedavg")).all()


def test_what_is_known_of_it() -> None:
    for name, settings, needs, averages in [
        ("Same", FedAvgConfig, "mean", True),
        ("Clipped", FedAvgConfig, "mean", True),
        ("HeavyBall", FedAvgConfig, "mean", False),
        ("Averaging", FedAvgConfig, "mean", True),
        ("Each", FedAvgConfig, "each", True),
        ("LowRank", FedRLRConfig, "mean", False),
        ("made", FedAvgConfig, "mean", False),
    ]:
        method = own_method(f"my_own_methods:{name}")
        assert method.settings is settings
        assert method.needs == needs
        assert method.averages is averages
    assert own_method("my_own_methods:Scaled").settings.__name__ == "ScaledConfig"
    assert own_method("my_own_methods:Scaled").averages


def test_every_built_in_method_can_be_derived_from() -> None:
    for name in registry.names("algorithm"):
        entry = registry.TABLES["algorithm"][name]
        method = own_method(entry.implementation)
        assert method.settings is registry.settings("algorithm", name)
        assert method.needs == method.settings.needs  # type: ignore[attr-defined]
        assert not method.keys.names


def test_what_goes_with_it_is_checked_by_its_settings() -> None:
    load_scenario(scenario(section("Each"), transport="digital"))
    load_scenario(scenario(section("Same"), server="adam"))
    levels = {"count": 4, "levels": {"name": "fixed", "shares": [0.5, 0.5]}}
    load_scenario(scenario(section("Widths", levels=[1.0, 0.5]), model="mlp", devices=levels))


def test_it_is_written_out_and_hashed_with_its_keys(tmp_path: Path) -> None:
    one = load_scenario(scenario(section("Clipped", clip=0.5)))
    path = tmp_path / "again.yaml"
    path.write_text(to_yaml(one))
    assert load_scenario(path) == one
    assert isinstance(one.algorithm, CustomAlgorithmConfig)
    assert one.algorithm.options == {"clip": 0.5}
    other = load_scenario(scenario(section("Clipped", clip=0.6)))
    assert scenario_hash(one) != scenario_hash(other)


OWN = "algorithm.name: 'my_own_methods:"
WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (section("Absent"), {}, f"{OWN}Absent': 'Absent' does not exist in module"),
    ({"name": "no_such:f"}, {}, "algorithm.name: 'no_such:f': No module named 'no_such'; is it"),
    (section("Empty"), {}, f"{OWN}Empty' has no init, broadcast, local, combine, views, flops; "),
    (section("NeedsLittle"), {}, f"{OWN}NeedsLittle' has needs = 'little'; the attribute needs"),
    (section("Silent"), {}, f"{OWN}Silent' does not say what it needs; the attribute needs = 'me"),
    (section("Twice"), {}, f"{OWN}Twice' takes the key 'decay' itself, which is a key of FedAvgC"),
    (section("Clipped", clipp=1), {}, "algorithm.clipp: unknown key; did you mean 'clip'? (known "
     "keys: clip, learning_rate, decay, server_learning_rate, sends, bias_mode)"),
    (section("made"), {}, "algorithm.clip: must be given"),
    (section("Same", learning_rate=-1), {}, "algorithm.learning_rate: got -1; must be greater th"),
    (section("Same", sends="modl"), {}, "algorithm.sends: got 'modl'; must be 'increment' or 'mo"),
    (section("Same", bias_mode="ideal"), {}, "algorithm: bias_mode: ideal needs the biases apart"),
    (section("Each"), {}, "transport: 'over_the_air' gives the server only the mean of the updat"),
    (section("HeavyBall"), {"server": "adam"}, "server: 'adam' steps along averaged increments, "),
    (section("LowRank", rank=11), {}, "algorithm.rank: 11 is above the smaller side of every la"),
    (section("Same"), {"devices": {"count": 4, "levels": {"name": "fixed", "shares": [1, 1]}}},
     "devices.levels: algorithm 'my_own_methods:Same' has models of one size; leave it out"),
    (section("Widths"), {"model": "mlp", "devices": {"count": 4, "levels": {
        "name": "fixed", "shares": [1] * 9}}}, "devices.levels.shares: got 9 values, and there"),
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
    "pair": "local of 'my_own_methods:Spoiled' returned a tuple; (devices, payload, loss) would do",
    "list": "local of 'my_own_methods:Spoiled' returned the payload as a list; a tuple of",
    "loss": "returned a loss of shape []; [8] would do",
    "state": "returned the devices' blocks ['more']; [], as init made them, would do",
    "rows": "returned the payload's block 'model' of shape [1, 650]; [8, ...], a row a device,",
    "server": "combine of 'my_own_methods:Spoiled' returned a Tensor; the server's blocks ['mod",
    "block": "combine of 'my_own_methods:Spoiled' returned the block 'model' of shape [2, 5]; [2, ",
}


@pytest.mark.parametrize("how", SPOILED)
def test_wrong_shapes_are_said(how: str) -> None:
    with pytest.raises(UserError, match=re.escape(SPOILED[how])) as error:
        models(section("Spoiled", how=how))
    assert str(error.value).startswith("algorithm.name: ")


def test_what_makes_no_method_is_said() -> None:
    with pytest.raises(UserError, match="nothing' has no init, broadcast"):
        models(section("nothing"))
