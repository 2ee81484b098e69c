"""Take trained models out of a result: as PyTorch modules, and from there to other runtimes."""
