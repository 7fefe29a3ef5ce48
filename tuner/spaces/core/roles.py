"""What a knob decides, whatever sketch it belongs to."""

from __future__ import annotations

from enum import Enum


class KnobRole(Enum):
    """The value is the word that begins the last part of a knob's stored name.

    Of several knobs with one role the subject follows: an axis (`block_i`), a read
    (`copy0_A`, `fetch1_B`) or a stage (`keep_exp`). Names are stored with trials and
    tables, so the words never change.
    """

    SKETCH = "sketch"  # the first knob of every space: which combination of sketches
    # CPUs
    REGISTER_TILE = "register"
    CACHE_BLOCK = "block_"
    OUTER_ORDER = "outer_order"
    INNER_ORDER = "inner_order"
    REDUCTION_BLOCK = "depth"
    UNROLL = "unroll"  # on GPUs too
    COPY = "copy"
    RECOMPUTE = "keep_"
    PREFETCH = "ahead"
    STORE_MODE = "stores"
    MATH_FUNCTIONS = "mathematics"
    BLOCK_TILE = "tile"  # on GPUs too
    # GPUs
    ROW_SHAPE = "shape"
    SHARED_COPY = "fetch"
    SHARED_ROWS = "rows"
    PIPELINE = "pipeline"
    WARP_SHAPE = "warp"
    BLOCK_ORDER = "order"
    DEPTH_SPLIT = "split"
    # of a user's own template, or of a table recorded elsewhere
    OTHER = ""

    @classmethod
    def of(cls, name: str) -> KnobRole:
        """The role of a knob by its stored name; OTHER where the name says none."""
        word = name.rpartition(".")[2]
        return next((role for role in cls if role._begins(word)), cls.OTHER)

    def _begins(self, word: str) -> bool:
        return word.startswith(self.value) if self in _WITH_SUBJECT else word == self.value


_WITH_SUBJECT = frozenset(
    {
        KnobRole.REGISTER_TILE,  # of several stages in one nest
        KnobRole.CACHE_BLOCK,
        KnobRole.COPY,
        KnobRole.RECOMPUTE,
        KnobRole.SHARED_COPY,
    }
)
