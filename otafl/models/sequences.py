"""Shape of sequences of tokens, for models that score every position."""

from __future__ import annotations

from otafl.core.errors import UserError


def require_tokens(shape: tuple[int, ...], model: str) -> int:
    """Return the length of sequences [length] of tokens.

    Raises
    ------
    UserError
        If samples of this shape are none.
    """
    if len(shape) != 1:
        raise UserError(
            f"model.name: '{model}' needs sequences of tokens, but a sample of the data set has "
            f"shape {list(shape)}; must be [length], as of data: shakespeare"
        )
    return shape[0]
