"""Collect all laws, and run them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from otafl.core.errors import UserError
from otafl.laws.bench import Bench
from otafl.laws.checks import Check, Law
from otafl.laws.mutations import Mutation

NAMES = (
    "channels flat_fading cells moving_cells antennas surfaces csi policies single_policies "
    "average_budgets pre_scalers impairments receivers transports types waveforms topologies "
    "co_channel noncoherent packets downlinks codecs message_passing streams generator "
    "minibatches privacy clocks faults linear_coding regressions language"
)
MODULES = [importlib.import_module(f"otafl.laws.{name}") for name in NAMES.split()]
"""The modules that state laws: each as a value, those of several components by `each()`."""


@dataclass(frozen=True)
class Outcome:
    """Hold a law's checks, at least one; none where it could not be checked, and then why
    (`fault`).
    """

    law: Law
    checks: tuple[Check, ...]
    fault: str = ""

    @property
    def is_passed(self) -> bool:
        return bool(self.checks) and all(check.is_passed for check in self.checks)

    @property
    def hardest(self) -> Check | None:
        """Return the check nearest to the end of its interval, or farthest beyond it."""
        return max(self.checks, key=lambda check: (not check.is_passed, check.strain), default=None)


def list_laws(only: str | None = None) -> list[Law]:
    """List every law of the installed uplink, or those whose name contains a text.

    Raises UserError if none does.
    """
    every: list[Law] = []
    for module in MODULES:
        every += module.list_laws() if hasattr(module, "list_laws") else ()
        every += [value for value in vars(module).values() if isinstance(value, Law)]
    if only is None:
        return every
    chosen = [law for law in every if only.lower() in law.name.lower()]
    if not chosen:
        families = ", ".join(dict.fromkeys(law.name.split(" ")[0].rstrip(":") for law in every))
        raise UserError(f"--only {only}: no law's name contains this; names begin with {families}")
    return chosen


def list_mutations() -> list[Mutation]:
    """List every mutation that a law is there to notice."""
    return [one for module in MODULES for one in getattr(module, "MUTATIONS", ())]


def clear_caches() -> None:
    """Forget what laws have measured and keep for each other, as the code is another one now."""
    for module in MODULES:
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def run(
    bench: Bench, chosen: Sequence[Law], progress: Callable[[int, int, str], None] | None = None
) -> list[Outcome]:
    """Check the laws one after the other. What goes wrong in one is its fault, and fails it."""
    outcomes = []
    for index, law in enumerate(chosen):
        if progress is not None:
            progress(index, len(chosen), law.name)
        try:
            outcomes.append(Outcome(law, tuple(law.run(bench))))
        except Exception as error:
            outcomes.append(Outcome(law, (), f"{type(error).__name__}: {error}"))
    return outcomes
