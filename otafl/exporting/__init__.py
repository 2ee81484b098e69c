"""Trained models as ordinary PyTorch modules, and from there to other runtimes."""
