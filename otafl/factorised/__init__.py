"""Calculations with factors of matrices and tensors, and sparse or low-rank weights.

`lowrank`: the manifold U S V^T (FedRLR). `truncation`: balanced factors L R (FedHM). `cp` and
`cp_aggregation`: the CP form (TDPFed). `decomposition`: SVD and its operations. `shrinkage`:
proximal maps. Import the module, since some names occur in several.

All functions are batched over rows.
"""
