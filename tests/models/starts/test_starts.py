"""Starts from files, from central training and from a user's module."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from contract.small import engine, run
from torch import Tensor, nn

from otafl.core import registry, safetensors
from otafl.core.errors import UserError
from otafl.models import build
from otafl.models.base import Model
from otafl.models.starts import pretrained_here
from otafl.scenario import ScenarioError, hash_named_files, load_scenario

pytestmark = pytest.mark.exact

MODEL = {"name": "mlp", "hidden": [4]}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pretrained_here.pooch, "os_cache", lambda name: tmp_path / name)
    return tmp_path / "otafl" / "starts"


def make(section: dict[str, Any]) -> Model:
    settings = registry.load_settings_class("model", section["name"]).model_validate(section)
    return build(settings, (64,), 10)


def draw_weights(section: dict[str, Any], seed: int = 5) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = make(section).shapes
    return {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


def write(weights: dict[str, Tensor], path: Path) -> dict[str, Any]:
    safetensors.write(weights, path)
    return {"name": "file", "path": str(path)}


def test_every_trial_starts_from_a_file(tmp_path: Path) -> None:
    weights, path = draw_weights(MODEL), tmp_path / "start.pt"
    torch.save({n: w.to(torch.float64) for n, w in weights.items()}, path)
    made = engine({"model": MODEL | {"start": {"name": "file", "path": str(path)}}})
    flat = torch.cat([weights[name].flatten() for name in made.parts.model.shapes])
    assert torch.equal(made.server["model"], flat.expand(3, -1))
    done = run(made, 2)
    assert not torch.equal(done.server["model"][0], done.server["model"][1])


def test_a_method_without_a_common_start_refuses(tmp_path: Path) -> None:
    start = write(draw_weights(MODEL), tmp_path / "start.safetensors")
    with pytest.raises(ScenarioError, match=r"algorithm 'fedem' .*; use start: drawn"):
        engine({"model": MODEL | {"start": start}, "algorithm": "fedem"})


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"odd": torch.zeros(1)}, "odd is unknown; use weights of the same model"),
        ({"bias0": None}, "bias0 is missing; use"),
        ({"bias1": torch.zeros(9)}, r"bias1 is \[9\], not \[10\]; use"),
        ({"bias1": torch.zeros(10, dtype=torch.int32)}, "bias1 has dtype int32, not a float"),
        ({"bias1": torch.full((10,), math.nan)}, "bias1 has numbers that are not finite"),
        (
            dict.fromkeys(("weight0", "bias0", "weight1", "bias1")) | {"x": torch.zeros(1)},
            "weight0 is missing; bias0 is missing; weight1 is missing, and 2 more; use",
        ),
    ],
)
def test_other_weights_are_refused(
    changed: dict[str, Tensor | None], text: str, tmp_path: Path
) -> None:
    """None stands for weights that are left out."""
    weights = draw_weights(MODEL) | changed
    kept = {name: one for name, one in weights.items() if one is not None}
    start = write(kept, tmp_path / "start.safetensors")
    with pytest.raises(UserError, match=text):
        engine({"model": MODEL | {"start": start}})


class Evil:
    """What runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("ran"),)


@pytest.mark.parametrize("content", ["evil", "list", "garbage", "missing"])
def test_nothing_in_a_file_is_executed(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "start.pt"
    if content == "garbage":
        path.write_bytes(b"garbage")
    elif content != "missing":
        torch.save({"weight0": Evil()} if content == "evil" else [torch.ones(1)], path)
    text = {"list": "holds a list; expected a mapping", "missing": "cannot be read"}
    with pytest.raises(
        UserError,
        match=text.get(content, "is damaged: it holds more than weights, which alone are loaded"),
    ):
        engine({"model": MODEL | {"start": {"name": "file", "path": str(path)}}})
    assert not (tmp_path / "ran").exists()


def test_an_unknown_kind_of_file_is_refused() -> None:
    start = {"name": "file", "path": "start.npz"}
    with pytest.raises(ScenarioError, match=r"got '.*/start\.npz'; must end in \.safetensors"):
        load_scenario({"name": "x", "model": MODEL | {"start": start}})


def pretrained(**keys: Any) -> dict[str, Any]:
    start = {"name": "pretrained_here", "epochs": 20, "learning_rate": 0.02} | keys
    server = {"classes": [0, 1, 2, 3, 4]} if keys.pop("by_class", False) else {"fraction": 0.5}
    start.pop("by_class", None)
    return {
        "data": {"name": "digits", "server": server, "partition": "iid"},
        "model": MODEL | {"start": start},
    }


def test_pretraining_learns_and_is_kept(cache: Path) -> None:
    """It is the same for every trial, other seeds of the scenario, and from the cache."""
    one = engine(pretrained())
    weights = one.parts.model.start_params
    assert torch.equal(one.server["model"][0], one.server["model"][2])
    (path,) = cache.iterdir()
    other = engine(pretrained() | {"seed": 99, "algorithm": "fedprox"})
    again = other.parts.model.start_params
    assert all(torch.equal(again[name], weights[name]) for name in weights)
    path.write_bytes(b"damaged")
    third = engine(pretrained()).parts.model.start_params
    assert all(torch.equal(third[name], weights[name]) for name in weights)
    assert len(list(cache.iterdir())) == 1
    data = one.parts.samples.data
    x, y = torch.from_numpy(data.x_test)[None], torch.from_numpy(data.y_test)
    found = one.parts.model.logits({name: w[None] for name, w in weights.items()}, x)
    assert float((found[0].argmax(1) == y).float().mean()) > 0.4


@pytest.mark.parametrize("is_drawn", [True, False])
def test_the_head_is_drawn_for_a_new_task(is_drawn: bool) -> None:
    made = engine(pretrained(by_class=is_drawn))
    given = set(made.parts.model.start_params)
    assert given == {"weight0", "bias0", *(() if is_drawn else ("weight1", "bias1"))}
    heads = made.server["model"][:, -50:-10]
    assert torch.equal(heads[0], heads[1]) != is_drawn
    assert made.parts.model.count_start_bits() == 32 * (260 if is_drawn else 310)


def test_a_stack_of_another_file_is_another(tmp_path: Path) -> None:
    start = write(draw_weights(MODEL), tmp_path / "start.safetensors")
    scenario = load_scenario({"name": "x", "model": MODEL | {"start": start}})
    before = hash_named_files(scenario)
    write(draw_weights(MODEL, 6), tmp_path / "start.safetensors")
    assert hash_named_files(scenario) != before


def test_divergence_is_a_sentence() -> None:
    with pytest.raises(UserError, match="the training diverged at 1e"):
        engine(pretrained(learning_rate=1e30))


def test_pretraining_needs_samples() -> None:
    tree = pretrained() | {"data": "digits", "name": "x"}
    with pytest.raises(ScenarioError, match=r"samples that no device holds; set data\.server"):
        load_scenario(tree)


class Scaled(nn.Module):
    """A frozen layer of ones and a scale of shape ()."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.frozen, self.out = nn.Linear(64, 3), nn.Linear(3, 10)
        self.scale = nn.Parameter(torch.tensor(2.0))
        for one in self.frozen.parameters():
            nn.init.ones_(one).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.scale * self.out(self.frozen(x))
        return out


SCALED = {"name": f"{__name__}:Scaled"}


@pytest.mark.parametrize("kind", ["own", "file"])
def test_frozen_parameters_keep_their_values(kind: str, tmp_path: Path) -> None:
    start: Any = kind
    if kind == "file":
        torch.save(Scaled((64,), 10).state_dict(), tmp_path / "start.pt")
        start = {"name": "file", "path": str(tmp_path / "start.pt")}
    made = engine({"model": SCALED | {"start": start}})
    assert list(made.parts.model.shapes) == ["scale", "out.weight", "out.bias"]
    assert made.server["model"].shape == (3, 1 + 3 * 10 + 10)
    assert bool((made.parts.model.constants["frozen.weight"] == 1.0).all())
    assert made.server["model"][:, 0].tolist() == [2.0] * 3


def test_only_a_users_module_has_weights_of_its_own() -> None:
    with pytest.raises(ScenarioError, match="model 'mlp' comes with no weights; use drawn, file"):
        load_scenario({"name": "x", "model": MODEL | {"start": "own"}})
