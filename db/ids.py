"""Short ids that sort by the time of their creation.

A prefix, 48 bits of milliseconds and 30 random bits, in Crockford's base 32.
"""

from __future__ import annotations

import secrets
from datetime import datetime

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # https://www.crockford.com/base32.html
TIME_DIGITS = 10
RANDOM_DIGITS = 6


def new_id(prefix: str, now: datetime) -> str:
    """A new id, for example `j_01jd3x5v9k7f2qam`: 16 digits after the prefix."""
    time = _digits(int(now.timestamp() * 1000), TIME_DIGITS)
    return f"{prefix}_{time}{_digits(secrets.randbits(RANDOM_DIGITS * 5), RANDOM_DIGITS)}"


def _digits(number: int, count: int) -> str:
    return "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(count)))
