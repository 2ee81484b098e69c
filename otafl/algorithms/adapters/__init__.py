"""Fine-tuning by low-rank adapters on a frozen model."""
