"""The failpoints of a job that searches, in the order in which it passes them."""

from __future__ import annotations

GROUPS = {  # each on a job of its own, in this order, so that every one is passed
    "early": (
        "claim:before",
        "claim:after",
        "space:before",
        "space:after",
        "renew:before",
        "renew:after",
    ),
    "search": (
        "best:before",
        "join:before",
        "join:after",
        "trial:before",
        "trial:after",
        "elapsed:before",
        "elapsed:after",
    ),
    "ending": (
        "best:after",
        "promotion:before",
        "promotion:after",
        "task:before",
        "task:after",
        "finish:before",
        "finish:after",
    ),
}
