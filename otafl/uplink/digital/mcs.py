"""Modulation and coding schemes of 5G NR: 3GPP TS 38.214, section 5.1.3.1.

Table 5.1.3.1-1 goes up to 64-QAM, and table 5.1.3.1-2 up to 256-QAM. Reserved rows are left out.
"""

from __future__ import annotations

from typing import NamedTuple


class Mcs(NamedTuple):
    """Modulation and coding scheme.

    Parameters
    ----------
    order : int
        Bits of a QAM symbol, Q_m.
    rate_1024 : float
        Target code rate times 1024.
    """

    order: int
    rate_1024: float

    @property
    def efficiency(self) -> float:
        """Information bits per channel use."""
        return self.order * self.rate_1024 / 1024.0


def _table(*modulations: tuple[int, tuple[float, ...]]) -> tuple[Mcs, ...]:
    return tuple(Mcs(order, rate) for order, rates in modulations for rate in rates)


MCS_TABLES = {
    "64qam": _table(
        (2, (120, 157, 193, 251, 308, 379, 449, 526, 602, 679)),
        (4, (340, 378, 434, 490, 553, 616, 658)),
        (6, (438, 466, 517, 567, 616, 666, 719, 772, 822, 873, 910, 948)),
    ),
    "256qam": _table(
        (2, (120, 193, 308, 449, 602)),
        (4, (378, 434, 490, 553, 616, 658)),
        (6, (466, 517, 567, 616, 666, 719, 772, 822, 873)),
        (8, (682.5, 711, 754, 797, 841, 885, 916.5, 948)),
    ),
}
"""Schemes of each table; a scheme's position is its I_MCS."""
