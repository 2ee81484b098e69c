"""Transmission of real bits: 5G LDPC codes, QAM and white Gaussian noise, by Sionna's blocks.

A row's words are sent with the LDPC codes of 5G NR (3GPP TS 38.212, section 5.3.2) at the device's
signal-to-noise ratio. Its bits are cut into equal blocks, each a codeword. Coded bits are
scrambled, as in the standard, so that padding does not bias the constellation. Code rates below
1/5, which the base graphs do not have, repeat coded bits. Errors are detected by comparison with
the sent bits, like an ideal CRC without overhead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from otafl.codecs.base import Codec, get_trial_device
from otafl.core.contracts import Group
from otafl.core.errors import UserError
from otafl.core.rng import Streams
from otafl.models.base import flatten
from otafl.uplink.delivery import Delivery
from otafl.uplink.digital.packets import Mcs, list_rows
from otafl.uplink.noise import draw_bit_noise

CODEWORD_BITS = 3840
"""Largest number of information bits of a codeword, which both base graphs support."""

CODEWORDS_AT_ONCE = 64
"""Codewords decoded at a time, whose messages fit the memory at 256-QAM."""

MIN_BITS = 12
"""Shortest block that Sionna's encoder accepts."""


@dataclass(frozen=True)
class Layout:
    """Coding of a row's bits.

    Parameters
    ----------
    blocks : int
        Number of codewords.
    k, n : int
        Information bits and coded bits of a codeword.
    mother : int
        Coded bits that the code gives; the rest repeats them.
    order : int
        Bits of a symbol.
    """

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
    """Lay out a row of `bits` bits by a modulation and coding scheme."""
    blocks = max(1, -(-bits // CODEWORD_BITS))
    k = max(MIN_BITS, -(-bits // blocks))
    n = math.ceil(k * 1024 / mcs.rate_1024 / mcs.order) * mcs.order
    mother = min(n, 5 * k // mcs.order * mcs.order)
    return Layout(blocks, k, n, mother, mcs.order)


class CodedBits:
    """Transmission of a codec's words by the schemes of a table.

    Parameters
    ----------
    table : sequence of Mcs
        Modulation and coding schemes.
    codec : Codec
        Codec of the words.
    streams : Streams
        Random streams of the trials.

    Raises
    ------
    UserError
        If the codec does not produce words of bits.
    """

    def __init__(self, table: Sequence[Mcs], codec: Codec, streams: Streams) -> None:
        if codec.word_bits is None:
            raise UserError(
                "transport.coding: 'ldpc' sends words of bits, and this codec has none; use codec: "
                "uniform, or qsgd with norm: max"
            )
        self._table, self._codec, self._streams = table, codec, streams
        self._word_bits = codec.word_bits
        self._links: dict[Layout, Callable[[Tensor, Tensor, Tensor], Tensor]] = {}

    def symbols(self, group: Group) -> list[int]:
        """Return the channel uses of a row of a group by each scheme."""
        return [layout(round(self._codec.count_bits(group)), mcs).symbols for mcs in self._table]

    def send(self, delivery: Delivery, scheme: Tensor, snr: Tensor) -> Tensor:
        """Send the uplink groups of a delivery.

        Parameters
        ----------
        delivery : Delivery
            The payload.
        scheme : Tensor, int64 [S, K]
            Position of the scheme in the table, negative for a device that does not send.
        snr : Tensor, float [S, K]
            Signal-to-noise ratio, linear.

        Returns
        -------
        Tensor, bool [S, K]
            Devices without wrong bits.
        """
        cohort = delivery.cohort
        wrong = torch.zeros_like(scheme, dtype=torch.bool).flatten()
        by_row = scheme.flatten()[cohort.flat_index].where(cohort.transmit_mask, -1)
        for one in delivery.uplink:
            index, group = one.index, one.group
            rows = list_rows(group, cohort)
            cell, (trial, device) = cohort.flat_index[rows], get_trial_device(group, cohort)
            chosen, ratio = by_row[rows], snr.flatten()[cell]
            # ranges and norms fill the rest, and have no errors
            words = _unpack_bits(flatten(self._codec.to_words(group)), self._word_bits)
            beside = round(self._codec.count_bits(group)) - words.shape[1]
            sent = torch.nn.functional.pad(words, (0, beside))
            detected = sent.clone()
            for used in chosen[chosen >= 0].unique().tolist():
                at = (chosen == used).nonzero().squeeze(1)
                plan = layout(sent.shape[1], self._table[used])
                size = (plan.blocks, plan.n // plan.order, 2)
                own = trial[at], device[at]
                drawn = draw_bit_noise(self._streams, index, delivery.round, own, size)
                detected[at] = self._over(plan, sent[at], drawn, ratio[at])
            wrong[cell[(detected != sent).any(1)]] = True
        return ~wrong.view_as(scheme)

    def _over(self, plan: Layout, bits: Tensor, noise: Tensor, snr: Tensor) -> Tensor:
        """Send bits [n, L] through the channel, and return the receiver's decisions.

        The noise is standard normal, [n, blocks, symbols, 2].
        """
        missing = plan.blocks * plan.k - bits.shape[1]
        padded = torch.nn.functional.pad(bits, (0, missing))
        blocks = padded.view(-1, plan.k).to(torch.float32)
        variance = (1.0 / snr.clamp_min(1e-9)).repeat_interleave(plan.blocks)[:, None]
        flat = torch.view_as_complex(noise.to(torch.float32).contiguous()).flatten(0, 1)
        if plan not in self._links:
            self._links[plan] = _sionna_link(plan, bits.device)
        link = self._links[plan]
        parts = (part.split(CODEWORDS_AT_ONCE) for part in (blocks, flat, variance.float()))
        decided = [link(*part) for part in zip(*parts, strict=True)]
        return torch.cat(decided).view(len(bits), -1)[:, : bits.shape[1]].to(bits.dtype)


def _sionna_link(plan: Layout, device: torch.device) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Build the function that decides bits [c, k], given sent bits, noise and its variance [c, 1].

    The noise [c, symbols] has E|z|^2 = 2. Sionna takes seconds to import and reseeds torch's
    generator, which is restored.
    """
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


def _unpack_bits(words: Tensor, width: int) -> Tensor:
    """Return the bits of words [n, P], [n, P * width] uint8, most significant first."""
    shifts = torch.arange(width - 1, -1, -1, device=words.device)
    return ((words[..., None] >> shifts) & 1).to(torch.uint8).flatten(1)
