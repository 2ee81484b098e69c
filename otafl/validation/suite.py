"""Collection of all laws, and its run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from otafl.core.errors import UserError
from otafl.validation.bench import Bench
from otafl.validation.checks import Check, Law

NAMES = (
    "channels cells receivers policies single_policies impairments transports digital_sums packets "
    "downlinks codecs streams privacy regressions"
)
MODULES = [importlib.import_module(f"otafl.validation.{name}") for name in NAMES.split()]
"""Modules that state laws."""


@dataclass(frozen=True)
class LawOutcome:
    """Outcome of a law: at least one check, or the reason why it could not be checked.

    Parameters
    ----------
    law : Law
        The law.
    checks : tuple of Check
        Its checks.
    fault : str
        Reason without checks, otherwise empty.
    """

    law: Law
    checks: tuple[Check, ...]
    fault: str = ""

    @property
    def is_passed(self) -> bool:
        """Whether all checks passed."""
        return bool(self.checks) and all(check.is_passed for check in self.checks)

    @property
    def hardest(self) -> Check | None:
        """Check nearest to the end of its interval, or farthest beyond it."""
        return max(self.checks, key=lambda check: (not check.is_passed, check.strain), default=None)


def list_laws(only: str | None = None) -> list[Law]:
    """List the laws of the installed uplink.

    Parameters
    ----------
    only : str, optional
        Text that a law's name must contain; all laws if not given.

    Returns
    -------
    list of Law
        Laws in the order of their modules.

    Raises
    ------
    UserError
        If no name contains the text.
    """
    values = (value for module in MODULES for value in vars(module).values())
    every = [value for value in values if isinstance(value, Law)]
    if only is None:
        return every
    chosen = [law for law in every if only.lower() in law.name.lower()]
    if not chosen:
        families = ", ".join(dict.fromkeys(law.name.split(" ")[0].rstrip(":") for law in every))
        raise UserError(f"--only {only}: no name of a law contains it; names begin with {families}")
    return chosen


def run(
    bench: Bench, chosen: Sequence[Law], progress: Callable[[int, int, str], None] | None = None
) -> list[LawOutcome]:
    """Check laws one after the other.

    Parameters
    ----------
    bench : Bench
        Amount and place of the computation.
    chosen : Sequence of Law
        The laws.
    progress : callable, optional
        Function that is called with the index of a law, their number and its name.

    Returns
    -------
    list of LawOutcome
        LawOutcome of each law. An error in a law is its fault, and fails it.
    """
    outcomes = []
    for index, law in enumerate(chosen):
        if progress is not None:
            progress(index, len(chosen), law.name)
        try:
            outcomes.append(LawOutcome(law, tuple(law.run(bench))))
        except Exception as error:
            outcomes.append(LawOutcome(law, (), f"{type(error).__name__}: {error}"))
    return outcomes
