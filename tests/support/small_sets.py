"""Small data sets as files in the formats of the official ones."""

from __future__ import annotations

import csv
import gzip
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from otafl.core import checksums

TRAIN, TEST = 12, 4
"""Samples of a small set of grey images."""
EACH = 3
"""Images of a small CIFAR batch."""
VOCABULARY = ["the", "good", "bad", "day", "!", ".", "don't", "not", "good"]
"""Words of a small file of vectors."""


def encode_idx(values: np.ndarray) -> bytes:
    """Return an array of bytes as IDX."""
    header = struct.pack(f">I{values.ndim}I", 0x0800 + values.ndim, *values.shape)
    return header + values.astype(np.uint8).tobytes()


def write_images(folder: Path) -> dict[str, np.ndarray]:
    """Write four small files; pixel p of image i is (7 i + p) mod 256, its label i mod 10."""
    folder.mkdir(parents=True)
    arrays = {}
    for part, n in (("train", TRAIN), ("t10k", TEST)):
        images = (7 * np.arange(n)[:, None] + np.arange(784)) % 256
        arrays[f"{part}-images-idx3-ubyte"] = images.reshape(n, 28, 28)
        arrays[f"{part}-labels-idx1-ubyte"] = np.arange(n) % 10
    for name, values in arrays.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(encode_idx(values), mtime=0))
    return arrays


def encode_cifar_batch(pixels: np.ndarray, **labels: list[int]) -> bytes:
    """Return a pickle as Python 2 wrote it: protocol 2, its strings plain bytes, an array by its
    constructor and its state."""

    def text(word: str) -> bytes:
        return b"U" + bytes([len(word)]) + word.encode()

    shape = b"".join(b"J" + struct.pack("<i", side) for side in pixels.shape)
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + b"\x87R"
        b"(K\x01" + shape + b"\x86cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    )
    items = text("data") + array
    for key, values in labels.items():
        items += text(key) + b"](" + b"".join(bytes([75, one]) for one in values) + b"e"
    return b"\x80\x02}(" + text("batch_label") + text("x") + items + b"u."


def make_batch(number: int) -> tuple[np.ndarray, list[int]]:
    """Return pixels and labels of a CIFAR batch, all different."""
    pixels = np.random.default_rng(number).integers(0, 256, (EACH, 3072), np.uint8)
    return pixels, [(number + i) % 10 for i in range(EACH)]


def write_cifar10(folder: Path) -> Path:
    """Write a small CIFAR-10; batch 0 is the test batch."""
    folder.mkdir(parents=True)
    for number in range(6):
        name = f"data_batch_{number}" if number else "test_batch"
        pixels, labels = make_batch(number)
        (folder / name).write_bytes(encode_cifar_batch(pixels, labels=labels))
    return folder


def make_vector(word: str) -> np.ndarray:
    """Return a word's 50 numbers: its first place in the vocabulary, and a half for each place."""
    return VOCABULARY.index(word) + np.arange(50, dtype=np.float32) / 2


def write_vectors(folder: Path) -> None:
    """Write the vocabulary's vectors as GloVe does."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for place, word in enumerate(VOCABULARY):
        lines.append(" ".join([word, *(f"{place + i / 2:.1f}" for i in range(50))]))
    (folder / "glove.6B.50d.txt").write_text("\n".join(lines) + "\n")


def write_tweets(path: Path, rows: list[tuple[str, str, str]]) -> None:
    """Write (polarity, user, text) as the authors of Sent140 do."""
    with path.open("w", encoding="latin-1", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        for number, (polarity, user, text) in enumerate(rows):
            writer.writerow([polarity, number, "Mon Apr 06", "NO_QUERY", user, text])


PEOPLE = (8, 5, 12)
"""Recordings of the people of a small Parkinsons file."""
PARKINSONS_HEAD = (
    "subject#,age,sex,test_time,motor_UPDRS,total_UPDRS,Jitter(%),Jitter(Abs),Jitter:RAP,"
    "Jitter:PPQ5,Jitter:DDP,Shimmer,Shimmer(dB),Shimmer:APQ3,Shimmer:APQ5,Shimmer:APQ11,"
    "Shimmer:DDA,NHR,HNR,RPDE,DFA,PPE"
)


def write_parkinsons(folder: Path, people: Sequence[int] = PEOPLE) -> None:
    """Write a small file of recordings, of which each person's are last first in time.

    A person's score is a line in time; DDP is three times RAP, and DDA three times APQ3.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(2)
    lines = [PARKINSONS_HEAD]
    for person, count in enumerate(people, 1):
        for time in range(count, 0, -1):
            features = rng.random(16)
            features[4], features[10] = 3.0 * features[2], 3.0 * features[7]
            score = 10.0 * person + 0.5 * time
            row = [person, 60, 0, 7.0 * time, score, score + 5.0, *features]
            lines.append(",".join(f"{value:g}" for value in row))
    (folder / "parkinsons_updrs.data").write_text("\n".join(lines) + "\n")
    checksums.write(folder / "parkinsons_updrs.data")


WINDOWS = {"train": [3, 1, 3, 1, 3], "test": [2, 2, 4]}
"""Person of each window of a small UCI HAR."""


def write_uci_har(folder: Path) -> None:
    """Write small files as in the official archive, features as it writes them: window i of a part
    has i / 8 everywhere, sample t of its signal j is i + j / 10 + t / 1000, its activity i + 1."""
    for part, people in WINDOWS.items():
        home = folder / "UCI HAR Dataset" / part
        (home / "Inertial Signals").mkdir(parents=True)
        window = np.arange(len(people))[:, None]
        kinds = [
            f"{kind}_{axis}" for kind in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"
        ]
        tables = {
            "X": np.repeat(window / 8, 561, 1),
            "y": window + 1,
            "subject": np.array(people)[:, None],
        } | {
            f"Inertial Signals/{kind}": window + j / 10 + np.arange(128) / 1000
            for j, kind in enumerate(kinds)
        }
        for name, values in tables.items():
            lines = [
                "".join(f"{value:17.7e}" if values.shape[1] > 1 else f"{value}" for value in row)
                for row in values
            ]
            (home / f"{name}_{part}.txt").write_text("\n".join(lines) + "\n")


SPEECHES = {"ALL": 1, "First Witch": 40, "MACBETH": 60, "Ghost": 0}
"""Speeches of the speakers of a small text."""


def write_shakespeare(folder: Path, speeches: dict[str, int] | None = None) -> dict[str, str]:
    """Write a small text, the speakers in turn, and return each one's whole text."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = SPEECHES if speeches is None else speeches
    blocks, texts = [], dict.fromkeys(counts, "")
    for number in range(max(*counts.values(), 1)):
        for name, count in counts.items():
            if number < count:
                said = f"When shall we {number}\nmeet again?"
                blocks.append(f"{name}:\n{said}")
                texts[name] += f"{said}\n"
            elif not count and not number:
                blocks.append(f"{name}:")
    (folder / "input.txt").write_text("\n\n".join(blocks) + "\n")
    checksums.write(folder / "input.txt")
    return texts
