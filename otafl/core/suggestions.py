"""Suggestions of the intended word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from otafl.core.errors import UserError


def format_count(count: int, word: str) -> str:
    """Write a count with its noun: "1 point", "2,000 points"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def shorten(text: str, most: int) -> str:
    """Return a text of at most so many characters; a longer one ends with three dots."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


SYNONYMS = {
    "lr": "algorithm.learning_rate",
    "step_size": "algorithm.learning_rate",
    "epochs": "training.local_epochs",
    "local_epochs": "training.local_epochs",
    "local_iterations": "training.local_steps",
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
    "noise_db": "channel.snr_db",
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
    "irs": "channel.ris",
    "ris": "channel.ris",
}
"""Name of a key in other programs -> the key."""

ALIKE = {
    "file": ("path", "root"),
    "folder": ("root", "path"),
    "path": ("file", "root", "dataset"),
    "root": ("path",),
    "gpu": ("cuda",),
    "fsk_mv": ("fsk_majority_vote",),
    "ota": ("over_the_air",),
    "aircomp": ("over_the_air",),
    "oac": ("over_the_air",),
    "bota_fl": ("blind",),
    "channel_inversion": ("ci",),
    "one_bit": ("obda",),
    "signsgd": ("fsk_majority_vote",),
    "tbma": ("type_based",),
    "d2d": ("graph",),
    "gossip": ("graph",),
    "decentralised": ("graph",),
    "hfl": ("hierarchical",),
    "adota": ("adagrad",),
    "zota": ("zeroth_order",),
}
"""Word -> words that some keys and choices use for the same, the likeliest first."""

REMARKS = {
    "epochs": "An epoch is one pass of a device over its own samples in minibatches",
    "noise_db": "The noise is set by the ratio of transmit to noise power, in dB",
}
"""Name of a key in other programs -> the key's difference from it."""


def find_synonym(word: str) -> str:
    """Return the key for which other programs use this word, or nothing."""
    return SYNONYMS.get(_normalise_word(word), "")


def format_remark(word: str) -> str:
    """Return the difference of the key that a word of other programs stands for, after a space."""
    text = REMARKS.get(_normalise_word(word))
    return f" {text}" if text else ""


def find_same(word: str, known_words: Iterable[str]) -> str | None:
    """Return the known word that is this one in other letters (`GBMA`, `learning-rate`).

    Names in other programs, or in other sections, count too.
    """
    names = {_normalise_word(name): name for name in reversed(list(known_words))}
    plain = _normalise_word(word)
    guesses = (plain, find_synonym(word).rpartition(".")[2], *ALIKE.get(plain, ()))
    return next((names[guess] for guess in guesses if guess in names), None)


def find_closest(word: str, known_words: Iterable[str]) -> str | None:
    """Return the known word most like this one, or None.

    It is the `find_same`, one that differs by about a letter (`round`: `rounds`), the only one
    that has this word as a part (`count`: `device_count`), or the closest by its spelling.
    """
    names, plain = list(known_words), _normalise_word(word)
    if not plain:
        return None
    having = [name for name in names if f"_{plain}_" in f"_{_normalise_word(name)}_"]
    guesses = (
        find_same(word, names),
        _find_spelling(plain, names, cutoff=0.85),
        having[0] if len(having) == 1 else None,
        _find_spelling(plain, names, cutoff=0.6),
    )
    return next((guess for guess in guesses if guess), None)


def _find_spelling(word: str, known_words: list[str], cutoff: float) -> str | None:
    """Return the known word that is the closest by its spelling, if it is closer than `cutoff`."""
    return next(iter(difflib.get_close_matches(word, known_words, n=1, cutoff=cutoff)), None)


def format_suggestion(word: str, known_words: Iterable[str]) -> str:
    """Return "; did you mean 'x'?", or nothing if no known word is like this one."""
    return format_guess(find_closest(word, known_words))


def format_guess(guess: str | None) -> str:
    """Return "; did you mean 'x'?", or nothing without a guess."""
    return f"; did you mean '{guess}'?" if guess else ""


def format_unknown_key(word: str, known_words: Iterable[str]) -> str:
    """Write that a section has no such key, with a suggestion and the keys that it has."""
    known = list(known_words)
    return f"unknown key{format_suggestion(word, known)} (known keys: {', '.join(known)})"


def format_near_file(path: Path, pattern: str) -> str:
    """Return "; did you mean 'x'?" for a missing file, or nothing if there is none like it.

    pattern: names of the files that can be meant. In a missing folder, folders beside it can be.
    """
    folder = path.parent
    if folder.is_dir():
        return format_suggestion(path.name, (one.name for one in folder.glob(pattern)))
    beside = [one.name for one in folder.parent.glob("*") if (one / path.name).exists()]
    near = find_closest(folder.name, beside)
    return format_guess(near and str(folder.parent / near / path.name))


def make_unknown_name_error(
    given: str, noun: str, name: str, known_names: Iterable[Any]
) -> UserError:
    """Return the error of an unknown name, with the known ones."""
    names = [str(one) for one in known_names]
    hint = format_suggestion(name, names)
    return UserError(f"{given}: not {noun}{hint} (known: {', '.join(names)})")


def _normalise_word(word: str) -> str:
    return word.lower().replace("-", "_")
