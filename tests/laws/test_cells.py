"""Mistakes about the cells of 3GPP, each of which makes the laws fail that are named, and no other
of that cell."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.mutations import Patch, constant, failing, made, replaced, turned

CELL = "otafl.channels.cell:Cell"
DROP = "otafl.channels.cell_drop:SionnaCell.batch"


def drawn(name: str, change: Callable[[Any], Any]) -> Patch:
    """A part of the drop that is changed as it is drawn."""
    return turned(
        DROP, lambda drop: dataclasses.replace(drop, **{name: change(getattr(drop, name))})
    )


def rays_of(change: Callable[[Any], Any]) -> Patch:
    """Rays that are made of another K-factor than the drop's."""
    return replaced(
        "otafl.channels.cell.cell_rays",
        lambda real: lambda drop: real(dataclasses.replace(drop, k_factor=change(drop.k_factor))),
    )


def no_cars(real: Any) -> Any:
    def place(self: Any, *args: Any) -> None:
        settings = self._settings.model_copy(update={"in_car": False})
        real(SimpleNamespace(scenario=self.scenario, _settings=settings), *args)

    return place


def kmh_for_mps(real: Any) -> Any:
    return lambda speed_kmh, pairs: real(speed_kmh and 3.6 * speed_kmh, pairs)


def over_the_radius(real: Any) -> Any:
    def placed(pairs: Any, inner: float, outer: float, *args: Any) -> Any:
        position, indoor = real(pairs, inner, outer, *args)
        far = position[..., :2].norm(dim=-1, keepdim=True)
        share = (far**2 - inner**2) / (outer**2 - inner**2)
        position[..., :2] *= (inner + share * (outer - inner)) / far
        return position, indoor

    return placed


def other_trials(real: Any) -> Any:
    def scaled(self: Any, gain: Any) -> Any:
        self._unit = self._unit.mean(0, keepdim=True).expand_as(self._unit)
        return real(self, gain)

    return scaled


def forget_the_start(field: Any) -> None:
    field._missing = 0.0 * field._missing


def far_apart(field: Any) -> None:
    field._distance = 10.0 * field._distance


MUTATIONS: dict[str, tuple[str, set[str], Patch]] = {
    "shadowing by 20 log10": (
        "umi",
        {"shadowing", "shadowing of moving devices"},
        drawn("shadowing_db", lambda db: 2.0 * db),
    ),
    "no shadowing": ("uma", {"shadowing"}, drawn("shadowing_db", lambda db: 0.0 * db)),
    "half the penetration loss": (
        "umi",
        {"penetration loss"},
        drawn("penetration_db", lambda db: db / 2.0),
    ),
    "no cars": (
        "rma",
        {"penetration loss"},
        replaced("otafl.channels.cell_drop:SionnaCell._place", no_cars),
    ),
    "K-factor by 20 log10": ("umi", {"K-factor"}, drawn("k_factor", lambda k: k.sqrt())),
    "K-factor without a line of sight": (
        "uma",
        {"K-factor"},
        drawn("k_factor", lambda k: k.clamp_min(1.0)),
    ),
    "K for the line of sight's amplitude": (
        "umi",
        {"power of the line of sight"},
        rays_of(lambda k: k.square()),
    ),
    "K / (K + 2)": ("umi", {"power of the line of sight"}, rays_of(lambda k: k / 2.0)),
    "km/h for m/s": (
        "umi",
        {"path loss of moving devices", "shadowing of moving devices"},
        replaced("otafl.channels.cell.velocities", kmh_for_mps),
    ),
    "evenly over the radius": (
        "rma",
        {"even over the ground"},
        replaced("otafl.channels.cell.placed", over_the_radius),
    ),
    "mean gain of all trials": ("umi", {"mean gain"}, replaced(f"{CELL}._scaled", other_trials)),
    "sub-clusters twice as far": (
        "umi",
        {"frequency covariance"},
        constant("otafl.channels.cell_drop.SUBCLUSTER_DELAYS", (0.0, 2.56, 5.12)),
    ),
    "path loss that stays": (
        "rma",
        {"path loss of moving devices"},
        replaced(
            "otafl.channels.cell_drop:SionnaCell.path_loss_db",
            lambda real: (
                lambda self, position, indoor, clear: real(
                    self, position[:1].expand_as(position), indoor, clear
                )
            ),
        ),
    ),
    "shadowing that forgets its start": (
        "rma",
        {"shadowing of moving devices"},
        made("otafl.channels.cell:ShadowingField", forget_the_start),
    ),
    "shadowing of another distance": (
        "umi",
        {"shadowing of moving devices"},
        made("otafl.channels.cell:ShadowingField", far_apart),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_is_seen(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, laws, patch = MUTATIONS[mutation]
    failed = failing(f"channel {cell}:", patch, monkeypatch)
    assert failed == {f"channel {cell}: {law}" for law in laws}
