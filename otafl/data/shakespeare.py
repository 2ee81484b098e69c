r"""Read Shakespeare's plays as sequences of characters, a user for each speaking role.

The file has speeches as "NAME:" on a line of its own, then the text, then a blank line. A speaker
is a user, equal names are one, and speakers of fewer than `min_characters` are left out: 64 of 309
have 5,000 in the text of 1.1 MB that `otafl data get` downloads. A speaker's speeches in their
order are one text, cut into sequences of `seq_len` characters. The label of a sequence is the same
text one character further, and the last sequences of each speaker test. LEAF's Shakespeare is the
same task on the complete works, by single next characters; `seq_len` is its name too.

References
----------
Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.
McMahan, Moore, Ramage, Hampson, Arcas 2017, "Communication-Efficient Learning of Deep Networks from
    Decentralized Data", section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from otafl.core.choices import declare_choice
from otafl.core.errors import UserError
from otafl.core.inputs import open_regular
from otafl.data.base import DataSource
from otafl.data.dataset import DataSet
from otafl.data.files import Download, Files, Root, build_file_finder, wrap_read_errors
from otafl.data.users import User, join_users
from otafl.losses.base import Labels

_FILE = "input.txt"
ALPHABET = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The characters of the text that is downloaded."""


class Shakespeare(DataSource):
    """Sequences x and y [n, seq_len] of places in the alphabet, by speaker in the text's order."""

    files: ClassVar[Files] = Files(
        "shakespeare",
        "1 MB",
        (
            Download(
                "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"
                f"{_FILE}",
                "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            ),
        ),
        build_file_finder(_FILE),
    )
    has_users: ClassVar[bool] = True
    labels: ClassVar[Labels | None] = "tokens"
    default_loss: ClassVar[str] = "next_token"
    example: ClassVar = {"model.name": "ngram"}

    name: Literal["shakespeare"] = "shakespeare"
    root: Root = None
    partition: Any = declare_choice(
        "partition", "how samples are assigned to the devices", default="natural"
    )
    test: Literal["official", "train_tail", "per_device"] = "per_device"
    """per_device: each speaker's last sequences test, on the speaker's device; official: those of
    all speakers together"""
    test_share: float = Field(0.25, gt=0, lt=1)
    """share of a speaker's sequences, the last in the text, that test"""
    min_characters: int = Field(5000, ge=1)
    """speakers with a shorter text are left out"""
    seq_len: int = Field(80, ge=1)
    """characters of a sequence, as LEAF calls it"""
    alphabet: str = Field(ALPHABET, min_length=2)
    """characters that are told apart; any other counts as the space, which must be one of them"""

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.seq_len,)

    @property
    def classes(self) -> int:  # type: ignore[override]
        return len(self.alphabet)

    def find_conflicts(self) -> Iterator[str]:
        if len(set(self.alphabet)) < len(self.alphabet):
            yield f"alphabet: got {self.alphabet!r}; every character must be in it once"
        if " " not in self.alphabet:
            yield (
                f"alphabet: expected a space among the characters, got {self.alphabet!r}; any "
                "other character counts as a space, so add one"
            )

    def read(self) -> DataSet:
        path = self.files.locate(self.name, self.root) / _FILE
        every = _read_speakers(path)
        texts = {n: t for n, t in every.items() if len(t) >= self.min_characters}
        if not texts:
            longest = max(map(len, every.values()), default=0)
            raise UserError(
                f"data.min_characters: got {self.min_characters}, but none of the {len(every)} "
                f"speakers of {path} has more than {longest} characters of text; use fewer"
            )
        place = {character: at for at, character in enumerate(self.alphabet)}
        space = place[" "]
        speakers = []
        for name, text in texts.items():
            tokens = np.array([place.get(one, space) for one in text])
            number = (len(tokens) - 1) // self.seq_len
            kept = int((1.0 - self.test_share) * number)
            if not 0 < kept < number:
                raise UserError(
                    f"data.seq_len: {name}'s {len(tokens)} characters make {number} sequences of "
                    f"{self.seq_len}, too few for training and test; use shorter ones, or a larger "
                    "data.min_characters"
                )
            x, y = (tokens[s : s + number * self.seq_len].reshape(number, -1) for s in (0, 1))
            x = x.astype(np.float32)
            speakers.append(User(x[:kept], y[:kept], x[kept:], y[kept:]))
        return join_users(speakers, self.classes)


def _read_speakers(path: Path) -> dict[str, str]:
    """Return speaker -> text, in the order of the first speeches; empty without any text.

    Raises UserError if the file has another form.
    """
    with wrap_read_errors(path, "not UTF-8 text", UnicodeDecodeError), open_regular(path) as file:
        whole = file.read().decode().replace("\r\n", "\n")
    speeches: dict[str, list[str]] = {}
    for block in whole.split("\n\n"):
        name, _, text = block.strip("\n").partition("\n")
        if not name:
            continue
        if not name.endswith(":"):
            raise UserError(
                f"{path}: expected 'NAME:' on a line before each speech, got {name[:40]!r}; "
                "`otafl data get shakespeare` downloads such a file"
            )
        speeches.setdefault(name[:-1], []).append(text)
    return {name: "".join(f"{one}\n" for one in own if one) for name, own in speeches.items()}
