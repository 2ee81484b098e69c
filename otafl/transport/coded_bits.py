"""Real bits: a row's words through the LDPC codes of 5G NR (3GPP TS 38.212, section 5.3.2), QAM,
and white Gaussian noise at the device's signal-to-noise ratio, by Sionna's blocks.

A row's bits are cut into equal blocks, each a codeword; coded bits are scrambled, as in the
standard, so that padding does not bias the constellation. Code rates below 1/5, which the base
graphs do not have, repeat coded bits. Errors are told from the truth, like a CRC that never errs
and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from otafl.core.contracts import Cohort, Group, WordCodec
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.transport.mcs import Mcs

CODEWORD_BITS = 3840
"""Information bits of a codeword at most: what both base graphs can hold."""

CODEWORDS_AT_ONCE = 64
"""Decoded together: messages of so many fit the memory at 256-QAM."""

LEAST_BITS = 12
"""The shortest block that Sionna's encoder takes."""


@dataclass(frozen=True)
class Layout:
    """How a row's bits are coded. blocks: codewords. k: bits of each. n: coded bits of each, of
    which `mother` come from the code and the rest repeat them. order: bits of a symbol."""

    blocks: int
    k: int
    n: int
    mother: int
    order: int

    @property
    def symbols(self) -> int:
        """Channel uses of the row."""
        return self.blocks * (self.n // self.order)


def layout(bits: int, mcs: Mcs) -> Layout:
    """Of a row of so many bits."""
    blocks = max(1, -(-bits // CODEWORD_BITS))
    k = max(LEAST_BITS, -(-bits // blocks))
    n = math.ceil(k * 1024 / mcs.rate_1024 / mcs.order) * mcs.order
    mother = min(n, 5 * k // mcs.order * mcs.order)
    return Layout(blocks, k, n, mother, mcs.order)


class CodedBits:
    """Sends words of a codec by the schemes of a table."""

    def __init__(self, table: Sequence[Mcs], codec: object, streams: Streams) -> None:
        if not isinstance(codec, WordCodec) or codec.word_bits is None:
            raise UserError(
                "transport.coding: 'ldpc' sends the bits of words, and the codec makes none; codec "
                "uniform, or qsgd with norm: max, would do"
            )
        self._table = table
        self._codec = codec
        self._word_bits = codec.word_bits
        self._streams = streams
        self._links: dict[Layout, Callable[[Tensor, Tensor, Tensor], Tensor]] = {}

    def symbols(self, bits: float) -> list[int]:
        """Channel uses of a row of so many bits by each scheme."""
        return [layout(round(bits), mcs).symbols for mcs in self._table]

    def send(
        self,
        group: Group,
        bits: float,
        cohort: Cohort,
        scheme: Tensor,
        snr: Tensor,
        round_: int,
        stream: str,
    ) -> tuple[Group, Tensor]:
        """The group as received, and which of its rows [n] bool arrived right. scheme: [n] index
        of the table, negative for a row that is not sent; snr: [n] linear."""
        words = self._codec.words(group)
        sent = _bits_of(words, self._word_bits)
        beside = round(bits) - sent.shape[1]  # ranges and norms: they fill, and arrive right
        sent = torch.nn.functional.pad(sent, (0, beside))
        heard = sent.clone()
        rows = torch.arange(cohort.size, device=sent.device) if group.rows is None else group.rows
        for index in scheme.unique().tolist():
            if index >= 0:
                at = (scheme == index).nonzero().squeeze(1)
                pair = cohort.trial[rows[at]], cohort.device[rows[at]]
                plan = layout(sent.shape[1], self._table[index])
                size = (plan.blocks, plan.n // plan.order, 2)
                noise = self._streams.device_normal(f"coded/{stream}", round_, *pair, size)
                heard[at] = self._over(plan, sent[at], noise, snr[at])
        right = (heard == sent).all(1)
        back = _words_of(heard[:, : sent.shape[1] - beside], self._word_bits)
        values = self._codec.values(group, back)
        return replace(group, blocks=values), right

    def _over(self, plan: Layout, bits: Tensor, noise: Tensor, snr: Tensor) -> Tensor:
        """Bits [n, L] as decided by the receiver; noise: [n, blocks, symbols, 2] standard
        normal."""
        missing = plan.blocks * plan.k - bits.shape[1]
        padded = torch.nn.functional.pad(bits, (0, missing))
        blocks = padded.view(-1, plan.k).to(torch.float32)
        variance = (1.0 / snr.clamp_min(1e-9)).repeat_interleave(plan.blocks)[:, None]
        flat = torch.view_as_complex(noise.to(torch.float32).contiguous()).flatten(0, 1)
        if plan not in self._links:
            self._links[plan] = _sionna_link(plan, bits.device)
        link = self._links[plan]
        decided = [
            link(*(part[i : i + CODEWORDS_AT_ONCE] for part in (blocks, flat, variance.float())))
            for i in range(0, len(blocks), CODEWORDS_AT_ONCE)
        ]
        return torch.cat(decided).view(len(bits), -1)[:, : bits.shape[1]].to(bits.dtype)


def _sionna_link(plan: Layout, device: torch.device) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """(bits [c, k], noise [c, symbols] of E|z|^2 = 2, its variance [c, 1]) -> decided bits [c, k].
    Sionna takes seconds to import and reseeds torch's generator, which is put back."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        from sionna.phy.fec.ldpc import LDPC5GDecoder, LDPC5GEncoder
        from sionna.phy.mapping import Constellation, Demapper, Mapper

        where: dict[str, str] = {"device": str(device), "precision": "single"}
        encode = LDPC5GEncoder(plan.k, plan.mother, num_bits_per_symbol=plan.order, **where)
        decode = LDPC5GDecoder(encode, hard_out=True, num_iter=20, **where)
        constellation = Constellation("qam", plan.order, **where)
        modulate = Mapper(constellation=constellation, **where)
        demodulate = Demapper("app", constellation=constellation, **where)
    generator = torch.Generator().manual_seed(0)
    scramble = torch.randint(0, 2, (plan.n,), generator=generator).to(device, torch.float32)
    place = torch.arange(plan.n, device=device) % plan.mother

    def link(bits: Tensor, noise: Tensor, variance: Tensor) -> Tensor:
        coded = (encode(bits)[:, place] - scramble).abs()  # exclusive or
        received = modulate(coded) + noise * (variance / 2.0).sqrt()
        logits = demodulate(received, variance) * (1.0 - 2.0 * scramble)
        combined = logits.new_zeros(len(bits), plan.mother).index_add_(1, place, logits)
        decided: Tensor = decode(combined)
        return decided

    return link


def _bits_of(words: Tensor, width: int) -> Tensor:
    """[n, P] -> [n, P * width] uint8, most significant bit first."""
    shifts = torch.arange(width - 1, -1, -1, device=words.device)
    return ((words[..., None] >> shifts) & 1).to(torch.uint8).flatten(1)


def _words_of(bits: Tensor, width: int) -> Tensor:
    """The other way."""
    shifts = torch.arange(width - 1, -1, -1, device=bits.device)
    return (bits.unflatten(1, (-1, width)).to(torch.int64) << shifts).sum(2)
