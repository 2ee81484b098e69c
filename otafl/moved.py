"""Find modules under the names that they had before, and warn.

Parts that users have written import otafl's modules by path. A path from before a move gives the
same module as its new path, with a `DeprecationWarning` that names the new one. Nothing in otafl
imports by an old path.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

PACKAGES = {
    "conformance": "laws",
    "transport": "uplink",
}
"""Old name of a package -> its new one. Modules that are in neither table kept theirs."""

MODULES = {
    "core.blame": "user_code.blame",
    "core.custom": "user_code.loading",
    "core.lasting": "core.stateful",
    "core.own_class": "user_code.own",
    "core.sources": "user_code.sources",
    "engine.batch_statistics": "evaluation.batch_statistics",
    "engine.by_trial": "evaluation.by_trial",
    "engine.checkpoints": "running.checkpoints",
    "engine.chunking": "running.chunking",
    "engine.dry_run": "preflight.dry_run",
    "engine.evaluation": "evaluation.evaluation",
    "engine.fine_tuning": "evaluation.fine_tuning",
    "engine.following": "running.following",
    "engine.foresight": "preflight.rehearsal",
    "engine.memory": "running.memory",
    "engine.metrics": "evaluation.scoring",
    "engine.recorder": "evaluation.recorder",
    "engine.running": "running.running",
    "engine.trained": "evaluation.trained",
    "transport.accounting": "privacy.accounting",
    "transport.alpha_stable": "uplink.impairments.alpha_stable",
    "transport.amplifier": "uplink.impairments.amplifier",
    "transport.analog": "uplink.coherent.analog",
    "transport.arrivals": "uplink.coherent.arrivals",
    "transport.bent": "uplink.impairments.bent",
    "transport.capacity": "uplink.digital.capacity",
    "transport.coded_bits": "uplink.digital.coded_bits",
    "transport.digital": "uplink.digital.digital",
    "transport.energies": "uplink.noncoherent.energies",
    "transport.few_antennas": "uplink.noncoherent.few_antennas",
    "transport.fitted_bits": "uplink.digital.fitted_bits",
    "transport.fsk_majority_vote": "uplink.noncoherent.fsk_majority_vote",
    "transport.impairments": "uplink.impairments.impairments",
    "transport.limits": "uplink.bounds",
    "transport.mcs": "uplink.digital.mcs",
    "transport.misaligned": "uplink.impairments.misaligned",
    "transport.ofdm": "uplink.coherent.ofdm",
    "transport.ofdm_grid": "uplink.coherent.ofdm_grid",
    "transport.ofdm_samples": "uplink.coherent.ofdm_samples",
    "transport.over_the_air": "uplink.coherent.over_the_air",
    "transport.packets": "uplink.digital.packets",
    "transport.pairs": "uplink.noncoherent.pairs",
    "transport.privacy": "privacy.mechanism",
    "transport.privacy_checks": "privacy.checks",
    "transport.reed": "uplink.noncoherent.reed",
    "transport.superpose": "uplink.signal",
    "transport.type_based": "uplink.type_based.type_based",
    "uplink.differentiable": "own_loop.differentiable",
    "uplink.limit": "uplink.transmit",
    "uplink.reports": "own_loop.reports",
    "uplink.update_kinds": "own_loop.update_kinds",
    "uplink.wireless": "own_loop.wireless",
}
"""Old name of a module -> its new one."""

ROOT = "otafl."


def new_name(name: str) -> str | None:
    """Return the full new name of a module with this full name; None if it has not moved."""
    if not name.startswith(ROOT):
        return None
    old = name.removeprefix(ROOT)
    package, dot, rest = old.partition(".")
    # `from otafl.transport import x` looks for x in the package's new name
    for before in (package, *(one for one, now in PACKAGES.items() if now == package)):
        if before + dot + rest in MODULES:
            return ROOT + MODULES[before + dot + rest]
    return ROOT + PACKAGES[package] + dot + rest if package in PACKAGES else None


class _Alias(Loader):
    """Load a module under an old name as the very object that its new name gives."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._name)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own  # the import system has put the alias's there


class Finder(MetaPathFinder):
    """Find what has moved, before a package's new folder is searched for its old name."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of a module that has moved; None for any other."""
        new = new_name(fullname)
        if new is None:
            return None
        old = fullname.removeprefix(ROOT)
        is_current = old not in MODULES and old.partition(".")[0] not in PACKAGES
        if is_current and PathFinder.find_spec(fullname, path) is not None:
            return None  # a new module of the name that an old one had in another package
        warnings.warn(f"{fullname} has moved to {new}", DeprecationWarning, stacklevel=2)
        return ModuleSpec(fullname, _Alias(new))


def install() -> None:
    """Install the finder of old names, once."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
