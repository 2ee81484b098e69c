"""Differential privacy by the noise of the uplink: clipping, limits on power, and accounting.

A transport that accounts for privacy calls `mechanism.Privacy` four times in a transmission.
`limit_power` bounds the powers of the slot, and `clip_rows` the norm of rows. `scale` sets the mean
symbol powers of that norm, and `spend` adds the privacy loss. `accounting` converts between mu,
epsilon and delta. `checks` refuses scenarios that cannot be accounted for.
"""
