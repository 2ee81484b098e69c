"""Calculate with matrices and tensors in factors, batched over rows, and make weights sparse or
low-rank."""
