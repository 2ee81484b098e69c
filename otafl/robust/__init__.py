"""Robust aggregation: devices in groups with slots of their own, and rules over group means."""
