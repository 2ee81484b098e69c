"""Calculations with factors of matrices and tensors, and sparse or low-rank weights.

All functions are batched over rows.
"""
