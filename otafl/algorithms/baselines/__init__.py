"""Methods that train one global model, from which others are built."""
