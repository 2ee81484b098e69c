"""Differential privacy by the uplink's own noise: clipping, limits on power, and accounting.

A scheme that accounts for privacy calls `mechanism.Privacy` at four places of a transmission:
`limit` bounds the slot's powers, `clip` bounds the norm of rows, `scale` sets the mean symbol
powers that go with that norm, and `spend` adds what the noise has not hidden. `accounting` converts
between mu, epsilon and delta. `checks` refuses what cannot be accounted for.
"""
