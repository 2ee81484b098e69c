"""A method of the user's own, `module:callable`: whose settings it has, which keys it takes, and
what it needs of the uplink. The method itself is made in `otafl.algorithms.custom`.

    callable(config, model, devices, **own)

config: the section's keys that are fields of the settings class which the parameter `config` is
annotated with. A class that annotates nothing has the settings of the class that it derives from.
own: every other key of the section.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from otafl.algorithms.config import Needs
from otafl.core import custom
from otafl.core.errors import UserError
from otafl.core.settings import CustomSettings, Settings, stackable_fields

PARTS = ("init", "broadcast", "local", "combine", "views", "flops")
"""What every method has (`otafl.core.contracts.Algorithm`)."""

_GIVEN = ("config", "model", "devices")


class NoSettings(Settings):
    """Of a method that annotates `config` with no settings class."""


@dataclass(frozen=True)
class OwnMethod:
    """What a callable says of itself. keys: those of its own. needs, averages: as of the settings
    of built-in methods."""

    make: Callable[..., Any]
    settings: type[Settings]
    keys: custom.Keys
    needs: Needs
    averages: bool


class CustomAlgorithmConfig(CustomSettings):
    """A method of the user's own: `module:callable`, called with the settings of the method that it
    derives from, the model, the number of devices, and the section's other keys."""

    @property
    def method(self) -> OwnMethod:
        """Raises UserError if it cannot be had."""
        return own_method(self.name)

    @property
    def settings(self) -> Settings:
        """The section as the method's settings. Raises pydantic's ValidationError."""
        return self.method.settings.model_validate(self.of_settings)

    @property
    def of_settings(self) -> dict[str, Any]:
        """The keys of the section that are the settings'."""
        known = set(self.method.settings.model_fields) - {"name"}
        return {key: value for key, value in self.options.items() if key in known}

    @property
    def of_method(self) -> dict[str, Any]:
        """The keys of the section that are the callable's own."""
        known = self.of_settings
        return {key: value for key, value in self.options.items() if key not in known}

    @property
    def stackable(self) -> tuple[str, ...]:
        return stackable_fields(self.method.settings)

    @property
    def needs(self) -> Needs:
        return self.method.needs

    @property
    def averages(self) -> bool:
        return self.method.averages


def settings_of(config: Settings) -> Settings:
    """A section as settings: of a method of the user's own, those of the one it derives from."""
    return config.settings if isinstance(config, CustomAlgorithmConfig) else config


def own_method(path: str) -> OwnMethod:
    """What the user's `module:callable` is. UserError if it is no method."""
    make = custom.load(path, "algorithm.name")
    if inspect.isclass(make):
        refuse_unfinished(make, path)
    settings = _settings(make)
    keys = custom.keys_of(make, len(_GIVEN))
    both = [name for name in keys.names if name in settings.model_fields]
    if both:
        raise UserError(
            f"algorithm.name: {path!r} takes the key '{both[0]}' itself, which is a key of "
            f"{settings.__name__} too; give it another name"
        )
    return OwnMethod(
        make=make,
        settings=settings,
        keys=keys,
        needs=_needs(make, settings, path),
        averages=_averages(make, settings),
    )


def refuse_unfinished(method: Any, path: str) -> None:
    """UserError if a method lacks a part that every method has."""
    lacking = [name for name in PARTS if not callable(getattr(method, name, None))]
    if lacking:
        raise UserError(
            f"algorithm.name: {path!r} has no {', '.join(lacking)}; derive it from a method, like "
            "otafl.algorithms.fedavg.FedAvg, or write all of otafl.core.contracts.Algorithm"
        )


def _settings(make: Any) -> type[Settings]:
    """The settings class that `config` is annotated with: at the callable, or at the nearest class
    that it derives from."""
    for one in make.__mro__ if inspect.isclass(make) else (make,):
        function = one.__dict__.get("__init__") if inspect.isclass(one) else one
        try:
            kind = get_type_hints(function).get("config")
        except (TypeError, NameError):  # no function of Python's, or names of type checkers alone
            continue
        if inspect.isclass(kind) and issubclass(kind, Settings):
            return kind
    return NoSettings


def _needs(make: Any, settings: type[Settings], path: str) -> Needs:
    said = getattr(make, "needs", getattr(settings, "needs", None))
    known: tuple[Needs, ...] = get_args(Needs)
    for needs in known:
        if said == needs:
            return needs
    got = "does not say what it needs" if said is None else f"has needs = {said!r}"
    raise UserError(
        f"algorithm.name: {path!r} {got}; the attribute needs = 'mean' would do, or 'each' for a "
        "server that must tell devices apart"
    )


def _averages(make: Any, settings: type[Settings]) -> bool:
    """Whether the server's block "model" moves by averaged increments: as the callable says; else
    as the built-in method that it derives from, whose server step it must have kept."""
    said = getattr(make, "averages", None)
    if said is not None or not inspect.isclass(make):
        return bool(said)
    owner = next(one for one in make.__mro__ if "combine" in one.__dict__)
    built_in = owner.__module__.startswith("otafl.algorithms.")
    return built_in and bool(getattr(settings, "averages", False))
