"""Send real bits: a row's words through the LDPC codes of 5G NR (3GPP TS 38.212, section 5.3.2),
QAM, and white Gaussian noise at the device's signal-to-noise ratio, by Sionna's blocks.

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

from otafl.codecs.base import Codec
from otafl.core.contracts import Cohort, Group
from otafl.core.errors import UserError
from otafl.core.rng import Purpose, Streams, family
from otafl.transport.mcs import Mcs
from otafl.transport.packets import rows_once

CODED = family("coded", __name__)
"""Noise, a stream for each group of a payload."""

CODEWORD_BITS = 3840
"""Information bits of a codeword at most: what both base graphs can hold."""

CODEWORDS_AT_ONCE = 64
"""Decoded together: messages of so many fit the memory at 256-QAM."""

LEAST_BITS = 12
"""The shortest block that Sionna's encoder takes."""


@dataclass(frozen=True)
class Layout:
    """Say how a row's bits are coded. blocks: codewords. k: bits of each. n: coded bits of each, of
    which `mother` come from the code and the rest repeat them. order: bits of a symbol."""

    blocks: int
    k: int
    n: int
    mother: int
    order: int

    @property
    def symbols(self) -> int:
        """Return the channel uses of the row."""
        return self.blocks * (self.n // self.order)


def layout(bits: int, mcs: Mcs) -> Layout:
    """Lay out a row of so many bits."""
    blocks = max(1, -(-bits // CODEWORD_BITS))
    k = max(LEAST_BITS, -(-bits // blocks))
    n = math.ceil(k * 1024 / mcs.rate_1024 / mcs.order) * mcs.order
    mother = min(n, 5 * k // mcs.order * mcs.order)
    return Layout(blocks, k, n, mother, mcs.order)


class CodedBits:
    """Send words of a codec by the schemes of a table."""

    def __init__(self, table: Sequence[Mcs], codec: Codec, streams: Streams) -> None:
        if codec.word_bits is None:
            raise UserError(
                "transport.coding: 'ldpc' sends the bits of words, and the codec makes none; codec "
                "uniform, or qsgd with norm: max, would do"
            )
        self._table = table
        self._codec = codec
        self._word_bits = codec.word_bits
        self._streams = streams
        self._links: dict[Layout, Callable[[Tensor, Tensor, Tensor], Tensor]] = {}

    def symbols(self, group: Group) -> list[int]:
        """Return the channel uses of a row of a group by each scheme."""
        return [layout(round(self._codec.bits(group)), mcs).symbols for mcs in self._table]

    def send(
        self, payload: Sequence[Group], cohort: Cohort, scheme: Tensor, snr: Tensor, slot: int
    ) -> tuple[list[Group], Tensor]:
        """Send the uplink groups of a payload.

        Parameters
        ----------
        payload : of N rows.
        cohort : these rows.
        scheme : [S, K] index of the table, negative for a device that does not send.
        snr : [S, K], linear.
        slot : the round.

        Returns
        -------
        The payload as it is read, wrong bits included, and whose bits all arrived right, [S, K].
        """
        read = list(payload)
        wrong = torch.zeros_like(scheme, dtype=torch.bool).flatten()
        by_row = scheme.flatten()[cohort.cell].where(cohort.sends, -1)
        for index, group in enumerate(payload):
            if group.route == "uplink":
                rows = rows_once(group, cohort, "coding: 'ldpc'")
                cell, who = cohort.cell[rows], (cohort.trial[rows], cohort.device[rows])
                read[index], right = self._send(
                    group, who, by_row[rows], snr.flatten()[cell], slot, CODED / index
                )
                wrong[cell[~right]] = True
        return read, ~wrong.view_as(scheme)

    def _send(
        self,
        group: Group,
        who: tuple[Tensor, Tensor],
        scheme: Tensor,
        snr: Tensor,
        slot: int,
        stream: Purpose,
    ) -> tuple[Group, Tensor]:
        """Return a group as it is read, and which of its rows [n] arrived right; who: their trial
        [n] and device [n], scheme, snr: [n]."""
        sent = _bits_of(self._codec.words(group), self._word_bits)
        # ranges and norms fill the rest, and arrive right
        beside = round(self._codec.bits(group)) - sent.shape[1]
        sent = torch.nn.functional.pad(sent, (0, beside))
        heard = sent.clone()
        for index in scheme.unique().tolist():
            if index >= 0:
                at = (scheme == index).nonzero().squeeze(1)
                plan = layout(sent.shape[1], self._table[index])
                size = (plan.blocks, plan.n // plan.order, 2)
                noise = self._streams.device_normal(stream, slot, who[0][at], who[1][at], size)
                heard[at] = self._over(plan, sent[at], noise, snr[at])
        right = (heard == sent).all(1)
        back = _words_of(heard[:, : sent.shape[1] - beside], self._word_bits)
        return replace(group, blocks=self._codec.values(group, back)), right

    def _over(self, plan: Layout, bits: Tensor, noise: Tensor, snr: Tensor) -> Tensor:
        """Return bits [n, L] as decided by the receiver; noise: [n, blocks, symbols, 2] standard
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
    """Return a function of bits [c, k], noise [c, symbols] of E|z|^2 = 2 and its variance [c, 1]
    that decides bits [c, k]. Sionna takes seconds to import and reseeds torch's generator, which is
    put back."""
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
    """Return the bits of words [n, P], [n, P * width] uint8, most significant first."""
    shifts = torch.arange(width - 1, -1, -1, device=words.device)
    return ((words[..., None] >> shifts) & 1).to(torch.uint8).flatten(1)


def _words_of(bits: Tensor, width: int) -> Tensor:
    """Return the words of bits."""
    shifts = torch.arange(width - 1, -1, -1, device=bits.device)
    return (bits.unflatten(1, (-1, width)).to(torch.int64) << shifts).sum(2)
