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
    "frequency": "cpu_frequency",
    "levels": "submodels",
    "transport": "uplink",
}
"""Old name of a package -> its new one. Modules that are in neither table kept theirs."""

MODULES = {
    "algorithms.arrivals": "algorithms.deliveries",
    "algorithms.cp_blocks": "algorithms.cp_params",
    "algorithms.level_training": "algorithms.submodel_training",
    "analysis.tabulating": "analysis.tables",
    "channels.places": "channels.positions",
    "cli.progress": "core.progress",
    "core.blame": "user_code.error_origin",
    "core.contracts.blocks": "core.contracts.tensors",
    "core.custom": "user_code.loading",
    "core.lasting": "core.stateful",
    "core.own_class": "user_code.custom_part",
    "core.sources": "user_code.sources",
    "core.words": "core.suggestions",
    "data.dealt": "data.sample_assignment",
    "data.hf": "data.hugging_face",
    "data.made_up": "data.synthetic",
    "data.own": "data.client_samples",
    "data.shares": "data.device_splits",
    "data.work": "data.training_data",
    "engine.batch_statistics": "evaluation.batch_statistics",
    "engine.by_trial": "evaluation.server_merging",
    "engine.checkpoints": "running.checkpoints",
    "engine.chunking": "running.chunking",
    "engine.dry_run": "preflight.small_round",
    "engine.evaluation": "evaluation.evaluation",
    "engine.fine_tuning": "evaluation.fine_tuning",
    "engine.following": "running.run_tracking",
    "engine.foresight": "preflight.first_round",
    "engine.memory": "running.memory",
    "engine.metrics": "evaluation.scoring",
    "engine.pending": "engine.update",
    "engine.recorder": "evaluation.recorder",
    "engine.running": "running.stack_run",
    "engine.settling": "engine.acknowledgement",
    "engine.sizes": "engine.submodel_workload",
    "engine.stacking": "engine.payload_collector",
    "engine.trained": "evaluation.trained_models",
    "evaluation.by_trial": "evaluation.server_merging",
    "evaluation.trained": "evaluation.trained_models",
    "exporting.deployed": "exporting.deployment",
    "factorised.rlc": "factorised.random_linear_coding",
    "models.held": "models.forms",
    "models.normed": "models.normalised_networks",
    "models.steps": "models.layer_steps",
    "plots.directions": "results.variables",
    "plots.of_scenarios": "plots.scenario_panels",
    "power.none": "power.genie",
    "preflight.dry_run": "preflight.small_round",
    "preflight.rehearsal": "preflight.first_round",
    "report.about": "report.run_description",
    "report.comparison": "analysis.comparison_printing",
    "results.ending": "results.end_values",
    "results.plain": "results.plain_data",
    "running.following": "running.run_tracking",
    "running.running": "running.stack_run",
    "scenario.wording": "scenario.key_descriptions",
    "sweeping.working": "sweeping.stack_job",
    "transport.accounting": "privacy.accounting",
    "transport.alpha_stable": "uplink.impairments.alpha_stable",
    "transport.amplifier": "uplink.impairments.amplifier",
    "transport.analog": "uplink.coherent.analog",
    "transport.arrivals": "uplink.coherent.arrivals",
    "transport.bent": "uplink.impairments.distorted",
    "transport.capacity": "uplink.digital.capacity",
    "transport.coded_bits": "uplink.digital.coded_bits",
    "transport.digital": "uplink.digital.digital",
    "transport.energies": "uplink.noncoherent.energies",
    "transport.few_antennas": "uplink.noncoherent.energy_kernel",
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
    "uplink.impairments.bent": "uplink.impairments.distorted",
    "uplink.limit": "uplink.transmit",
    "uplink.neighbours": "uplink.intercell",
    "uplink.noncoherent.few_antennas": "uplink.noncoherent.energy_kernel",
    "uplink.reports": "own_loop.reports",
    "uplink.update_kinds": "own_loop.update_kinds",
    "uplink.wireless": "own_loop.wireless",
    "user_code.blame": "user_code.error_origin",
    "user_code.own": "user_code.custom_part",
}
"""Old name of a module -> its new one."""

ROOT = "otafl."


def get_new_name(name: str) -> str | None:
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
        new = get_new_name(fullname)
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
