"""README and the pages in docs/ are easy to read: short sentences in the field's words, and a first
line that says what the page is for.

Words, sentences and syllables are counted here, without a package. The reading ease is Flesch's
206.835 - 1.015 words a sentence - 84.6 syllables a word (Flesch 1948, "A New Readability
Yardstick"). Code, tables, headings, formulas and pictures are left out; inline code is one word.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FIRST = {"README", "index", "get_started", "concepts"}
"""What a new reader reads first."""

MOST_WORDS, MEAN_WORDS, LEAST_EASE = 40, 18.0, 45.0

BANNED = {
    r"\b(?:nobody|somebody|whoever)\b": "name the devices: no device, a device",
    r"\b(?:of|those) who\b": "name the devices, or `transmitters`, `participants`",
    r"\bbut for\b": "except",
    r"\bin (?:(?:the|its|their) )?place of\b": "instead of",
    r"\b(?:are|is) none\b": "there are no; are not modelled",
    r"\bfor all that\b": "as far as",
    r"\bhardly meant\b": "probably not intended",
    r"\b(?:reckon|suppose)(?:s|ed|ing)?\b": "estimate",
    r"\bbeliev(?:e|es|ed|ing)\b": "estimate",
    r"\b(?:is|are|was|were|be|been|not) heard\b|\bhears?\b": "delivered, received",
    r"\b(?:is|are|was|were|be|been|not) told\b": "informed, given, reported",
    r"\bwould do\b": "use",
    r"\bheld (?:to|by)\b": "checked against, checked by",
    r"\b(?:at|to) hand\b": "available",
    r"\bsome (?:\d+|tens?|hundreds?|thousands?|per ?cent)\b": "about",
    r"\b(?:deals?|dealt|dealing) out\b": "divide, partition",
    r"\bmade[- ]up\b": "synthetic",
    r"\b(?:foresight|dry run)\b": "preflight",
    r"\bwithout phase\b": "non-coherent",
    r"\bsums? in phase\b": "coherent aggregation",
    r"\bnoise to (?:itself|themselves)\b": "limited by self-interference",
    r"\bheavy tails\b": "heavy-tailed interference",
    r"\bcut to size\b": "submodel",
    r"\bkeeps? what (?:it|they)\b": "keeps its current value",
    r"\bwhat is (?:no|not (?:of|an?)|of)\b": "name the subject",
}
"""Phrases that the pages do not use, in prose, tables and headings -> what to write instead."""

DROPPED = (r"^#.*$", r"^\|.*$", r"^`{3,}.*$", r"^ {4}.*$", r"<!--.*?-->", r"!\[[^\]]*\]\([^)]*\)")


def paragraphs(text: str) -> list[str]:
    """Return the prose of a page, a text for each paragraph and item of a list."""
    text = re.sub(r"^(`{3})[^`\n]*\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    for pattern in DROPPED:
        text = re.sub(pattern, "", text, flags=re.MULTILINE)
    text = re.sub(r"\{\w+\}`([^`<]*)(?:<[^>]*>)?`", r"\1", text)
    text = re.sub(r"`[^`]*`", "name", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "")
    text = re.sub(r"^(?:-|\d+\.) ", "\n", text, flags=re.MULTILINE)
    return [" ".join(one.split()) for one in re.split(r"\n\s*\n", text) if one.strip()]


def sentences(text: str) -> list[list[str]]:
    """Return the words of each sentence; a colon ends one."""
    found = [re.split(r"(?<=[.:?!])\s+", one) for one in paragraphs(text)]
    return [words for one in found for part in one if len(words := part.split()) > 2]


def syllables(word: str) -> int:
    """Count groups of vowels, without a silent e at the end."""
    letters = re.sub(r"[^a-z]", "", word.lower())
    groups = len(re.findall(r"[aeiouy]+", letters))
    silent = re.search(r"[^aeiouyl]es?$|[aeiouy]les?$|[^aeiouytd]ed$", letters) is not None
    return max(groups - silent, 1)


def reading_ease(text: str) -> float:
    """Return Flesch's reading ease of a page."""
    found = sentences(text)
    words = [word for one in found for word in one]
    per_word = sum(map(syllables, words)) / len(words)
    return 206.835 - 1.015 * len(words) / len(found) - 84.6 * per_word


def find_banned(text: str) -> list[str]:
    """Return the banned phrases of a page, each with its place and with what to write instead."""
    text = re.sub(r"^(`{3,})[^`\n]*\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text)
    found = []
    for phrase, instead in BANNED.items():
        for match in re.finditer(phrase, text, re.IGNORECASE):
            around = " ".join(text[max(0, match.start() - 40) : match.end() + 40].split())
            found.append(f"'{match[0]}' in '{around}': write {instead}")
    return found


def find_faults(page: Path) -> list[str]:
    """Say what of a page is above the bars."""
    text = page.read_text(encoding="utf-8")
    found = sentences(text)
    faults = [" ".join(one) for one in found if len(one) > MOST_WORDS]
    faults += [" ".join(one) for one in found if sum(word.endswith(";") for word in one) > 1]
    faults += find_banned(text)
    mean = sum(map(len, found)) / len(found)
    if mean > MEAN_WORDS:
        faults.append(f"{mean:.1f} words a sentence, more than {MEAN_WORDS:g}")
    ease = reading_ease(text)
    if page.stem in FIRST and ease < LEAST_EASE:
        faults.append(f"reading ease {ease:.0f}, less than {LEAST_EASE:g}")
    begins = "otafl simulates " if page.stem in ("README", "index") else ("This page ", "In this ")
    if not paragraphs(text)[0].startswith(begins):
        faults.append(f"does not begin with what it is for: {paragraphs(text)[0]}")
    return faults


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_are_easy_to_read(page: Path) -> None:
    assert find_faults(page) == []


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("Fading that nobody hears is not drawn.", "no device"),
        ("Return the weight of who is on air.", "transmitters"),
        ("The rows agree but for one of them.", "except"),
        ("Noise stands in place of\ndata.", "instead of"),
        ("Faults of the server are none.", "not modelled"),
        ("A plan of more devices than it reckons with", "estimate"),
        ("| fading | what the server believes in |", "estimate"),
        ("An update that was not heard is kept.", "delivered"),
        ("The device is told its rate.", "informed"),
        ("Some 300 devices", "about"),
        ("Samples are dealt out by class.", "divide"),
        ("## Votes without phase", "non-coherent"),
        ("What is not of a device is the mean over the servers.", "the subject"),
    ],
)
def test_a_banned_phrase_is_found(text: str, instead: str) -> None:
    assert any(instead in one.partition(": write ")[2] for one in find_banned(text))
    assert not find_banned(f"```text\n{text}\n```\n")


def test_what_is_counted() -> None:
    """Code, tables, formulas and headings are no sentences; items and colons end one."""
    text = """# A heading of a page

    E = kappa f^2 C joules in a formula

One short sentence of `inline code here` words. Another [one with a link](page.md#place): and more
of it follows.

| a table | of words |
|---|---|

- an item of words
- another item of words

```text
a block of text that has no stop
```
"""
    assert [len(one) for one in sentences(text)] == [6, 5, 5, 4, 4]
    assert [syllables(word) for word in ("scale", "power", "received", "idle", "the")] == [
        1,
        2,
        2,
        2,
        1,
    ]
    short, long = (
        "The server adds the sums. ",
        "Multidimensional heterogeneity complicates everything. ",
    )
    assert reading_ease(short) > 90 > 0 > reading_ease(long)
