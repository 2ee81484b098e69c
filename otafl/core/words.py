"""Suggest the word that was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from otafl.core.errors import UserError


def counted(count: int, word: str) -> str:
    """Write how many there are of something: "1 point", "2,000 points"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


SYNONYMS = {
    "lr": "algorithm.learning_rate",
    "step_size": "algorithm.learning_rate",
    "epochs": "training.local_steps",
    "local_epochs": "training.local_steps",
    "steps": "training.local_steps",
    "batch": "training.batch_size",
    "communication_rounds": "training.rounds",
    "clients": "devices.count",
    "num_clients": "devices.count",
    "users": "devices.count",
    "workers": "devices.count",
    "clients_per_round": "devices.participants",
    "fraction": "devices.participants",
    "snr": "channel.snr_db",
    "dataset": "data",
    "method": "algorithm",
    "strategy": "algorithm",
    "network": "model",
    "net": "model",
    "fading": "channel",
    "power_control": "power",
    "policy": "power",
    "optimizer": "server",
    "repetitions": "trials",
    "repeats": "trials",
    "runs": "trials",
}
"""What other programs call a key -> the key."""


def synonym(word: str) -> str:
    """Return the key that other programs call so, or nothing."""
    return SYNONYMS.get(_plain(word), "")


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like this one, if any is like it: in other letters (`GBMA`,
    `learning-rate`), by what other programs say for it, or by its spelling."""
    names = list(known)
    for guess in (_plain(word), synonym(word).rpartition(".")[2]):
        same = next((name for name in names if _plain(name) == guess), None)
        if same:
            return same
    found = difflib.get_close_matches(_plain(word), names, n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?", or nothing where no known word is like this one."""
    return meant(closest(word, known))


def meant(guess: str | None) -> str:
    """Return "; did you mean 'x'?", or nothing without a guess."""
    return f"; did you mean '{guess}'?" if guess else ""


def unknown(got: str, what: str, name: str, known: Iterable[Any]) -> UserError:
    """Return the error of a name that is not known, with those that are."""
    names = [str(one) for one in known]
    hint = did_you_mean(name, names)
    return UserError(f"{got}: not {what}{hint} (known: {', '.join(names)})")


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")
