"""Methods that train a model in low-rank or CP form."""
