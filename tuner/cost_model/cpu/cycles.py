"""Cycles of a loop nest as a sum of terms, each a reason for which a kernel takes time.

How much a unit of each costs is another question: round numbers to begin with, learned
from what was measured on a machine (calibration.py). A term is never negative and grows
with the kernel, so that terms of several groups add up.
"""

from __future__ import annotations

import numpy as np

from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.nests import NestTable
from tuner.cost_model.cpu.reuse import FILLS
from tuner.cost_model.cpu.work import Work
from tuner.target.microarchitecture import fma_units
from tuner.target.target import LINE_BYTES, Target

LOAD_PORTS = 2.0
ENOUGH_CHAINS, PLENTY_CHAINS = (
    4.0,
    6.0,
)  # accumulators that keep a unit of four cycles' latency busy; with some to spare
FOLLOWED = 4.0  # lines one after the other from which a prefetcher follows
HIDDEN = 64.0  # cycles of a wait that other work fills
# cycles that a run on another page than the one before it is waited for: nothing
# fetches it ahead
CROSSING = 3.6
STREAMS = 6.0  # elements broadcast in one step before they cost more than their loads

# (term, cycles that a unit of it costs until a machine says otherwise)
TERMS: tuple[tuple[str, float], ...] = (
    (
        "arithmetic",
        2.0,
    ),  # vector operations at full rate, beside which half of what follows is done
    ("operands", 1.0),  # loads beyond those that the arithmetic hides
    ("crowded", 0.3),  # the same where loads nearly fill their ports
    ("latency", 0.7),  # units waiting for too few accumulators
    ("pipeline", 0.2),  # the same where they are just enough
    ("loop", 0.5),  # runs of the innermost body
    ("life", 1.0),  # accumulators set up, addresses computed
    ("write_back", 0.5),  # vectors of accumulators written
    ("partial", 1.0),  # of these, added to what an earlier block of the reduction left
    ("loads", 0.1),  # operands, hidden or not
    ("beyond_l1", 0.2),  # at 48 bytes a cycle
    ("beyond_l2", 0.3),  # at 16
    ("beyond_l3", 0.3),  # at 6
    ("written_l1", 0.3),  # of these, what is written: it comes in first and goes out again
    ("written_l2", 0.3),
    ("streamed", 1.0),  # the same past the caches, at 16
    (
        "revisited_l1",
        0.5,
        # sums of a block that come in for the next block of the reduction: one after the
        # other, fetched ahead
    ),
    ("revisited_l2", 0.5),
    ("strewn_l1", 8.0),  # lines written one element at a time, which nothing fetches ahead
    ("strewn_l2", 8.0),
    ("pages", 1.5),  # addresses translated anew
    ("jumps", 16.0),  # runs of written lines too short for a prefetcher to follow
    (
        "restarts",
        0.3,
    ),  # waits for the first line of a run that comes in from beyond the second cache
    ("starved_l1", 0.7),
    ("starved_l2", 0.3),
    (
        "burst_l1",
        1.0,
        # of what arithmetic could hide, what comes in at once while it waits for a later
        # pass over it
    ),
    ("burst_l2", 1.0),
    (
        "interleaved",
        0.5,
        # bytes at 16, of more runs at a time than a prefetcher follows, which arithmetic
        # does not hide
    ),
    ("padded", 0.5),  # elements
    ("padded_parts", 0.3),
    ("packed", 0.3),
    ("packed_first", 0.9),
    ("singly", 1.0),  # of these, elements moved one by one
    ("singly_first", 0.7),
    ("spilled", 1.7),  # registers wanted beyond those there are
    ("kept", 1.5),  # the same where an unrolled body keeps what it takes again
    ("paired", 0.05),  # neighbours loaded one by one
    ("picked", 1.0),  # shuffles that make vectors of elements a few places apart
    ("gathered", 0.5),  # elements
    ("scattered", 1.0),
    ("stored", 0.5),  # vectors
    ("folded", 2.5),  # halvings of a vector of partial results
    ("libm", 35.0),  # calls of a transcendental function
    ("polynomial", 10.0),  # vectors of one
    ("aliased", 10.0),  # lines that push each other out of a set
    ("streams", 0.1),
    ("checked", 0.1),  # positions compared with a border
    ("checked_twice", 0.5),  # the same in two dimensions, where the compiler merges fewer
    ("torn", 0.2),  # accumulators stored and loaded around such a comparison
)
_COST = dict(TERMS)
NAMES = tuple(_COST)
ROUND = np.array([cost for _, cost in TERMS])


def cycles(table: NestTable, work: Work, target: Target) -> Floats:
    """Units of each term, shape (len(TERMS), n)."""
    nest = work.nest
    lanes, accumulators, registers = work.lanes, work.accumulators, target.vector_registers
    units = _units(target, lanes * table.dtype_bytes)
    peak = lanes * 2 * units * table.rate
    per_body = np.maximum(work.steps / np.maximum(work.bodies, 1), 1)
    # Multiply-adds of a body; a map without arithmetic still issues something for each vector.
    operations = (
        accumulators * max(table.flops / max(table.points * table.share, 1) / 2, 0.5) * per_body
    )
    operands = work.loads + work.broadcasts
    hides = 0.0 if table.in_registers else operations  # registers of matrices wait for their rows
    vectors = 0.0 if table.in_registers else 1.0
    reduces = 1.0 if table.reductions else 0.0
    reduction_blocks, kept = nest.extent[table.spatial], _kept(table, work, registers)
    lives = work.lives * (1.0 - kept) + work.lives / reduction_blocks * kept
    arithmetic = table.flops * work.covered / peak
    # (n,) bytes that come in from beyond the first two caches: operands and what is
    # written once; sums that are written again.
    divided = ((reduction_blocks > 1) & (table.reductions > 0)).astype(np.float32)
    sums_l1, sums_l2 = (traffic[-1] * divided for traffic in work.brought.traffic[:2])
    through, past = (1.0 - divided) * ~nest.streamed, (1.0 - divided) * nest.streamed
    written_l1, written_l2 = (traffic[-1] * through for traffic in work.brought.traffic[:2])
    # What is written past the caches does not come in first.
    first, second, third = (
        traffic.sum(axis=0) - traffic[-1] * past for traffic in work.brought.traffic
    )
    libm, polynomial = work.slow * ~nest.polynomial, work.slow / lanes * nest.polynomial
    # Bytes that are fetched ahead come in while functions are computed and vectors multiplied.
    busy = (arithmetic + libm * _COST["libm"] + polynomial * _COST["polynomial"]) * (nest.ahead > 0)
    fetched = (
        work.steps if table.reductions and not table.is_rows else np.float32(table.points / lanes)
    )
    fetches = fetched * (nest.ahead > 0)
    found = {
        "arithmetic": arithmetic,
        "operands": work.bodies * np.maximum(operands / LOAD_PORTS - hides / units, 0),
        "crowded": vectors
        * work.bodies
        * np.maximum(1.3 * operands / LOAD_PORTS - operations / units, 0),
        "latency": reduces * work.steps * np.maximum(ENOUGH_CHAINS - accumulators / units, 0),
        "pipeline": reduces * work.steps * np.maximum(PLENTY_CHAINS - accumulators / units, 0),
        "loop": work.bodies,
        "life": lives,
        "write_back": reduces * lives * accumulators,
        "partial": reduces * work.lives * accumulators * (1.0 - kept) * (reduction_blocks > 1),
        "loads": (work.bodies * operands + fetches) / LOAD_PORTS,
        "beyond_l1": np.maximum((first - sums_l1) / 48 - busy, 0.0),
        "beyond_l2": np.maximum((second - sums_l2) / 16 - busy, 0.0),
        "beyond_l3": np.maximum(third / 6 - busy, 0.0),
        "written_l1": written_l1 / 48,
        "written_l2": written_l2 / 16,
        "streamed": work.brought.traffic[0][-1] * past / 16 * _in_parts(table, work),
        "revisited_l1": sums_l1 / 48,
        "revisited_l2": sums_l2 / 16,
        "strewn_l1": work.brought.traffic[0][-1] / LINE_BYTES * (work.scattered > 0),
        "strewn_l2": work.brought.traffic[1][-1] / LINE_BYTES * (work.scattered > 0),
        "pages": work.brought.pages[:-1].sum(axis=0),
        "jumps": np.maximum(
            work.brought.pages[-1] - work.brought.traffic[0][-1] / LINE_BYTES / FOLLOWED, 0.0
        )
        * ~nest.streamed,
        "restarts": work.brought.runs[:-1].sum(axis=0) * _wait(target),
        "starved_l1": np.maximum(first / 32 + CROSSING * work.brought.crossings - arithmetic, 0.0),
        "starved_l2": np.maximum(second / 16 - arithmetic, 0.0),
        "burst_l1": _burst(
            work.brought.traffic[0][:-1] / 48, work.brought.passes[0][:-1], arithmetic
        ),
        "burst_l2": _burst(
            work.brought.traffic[1][:-1] / 16, work.brought.passes[1][:-1], arithmetic
        ),
        "interleaved": np.maximum(work.brought.interleaved / 16 - arithmetic, 0.0),
        "padded": work.padded,
        "padded_parts": work.padded_parts,
        "packed": work.packed,
        "packed_first": work.packed_first,
        "singly": work.singly,
        "singly_first": work.singly_first,
        "spilled": vectors * reduces * work.steps * np.maximum(work.held - registers, 0),
        "kept": vectors
        * reduces
        * work.bodies
        * np.maximum(work.held + work.shared - registers, 0)
        * (work.shared > 0),
        "paired": work.bodies * work.paired,
        "picked": work.bodies * work.picked,
        "gathered": work.bodies * work.gathered,
        "scattered": work.scattered,
        "stored": (work.written - work.scattered) / lanes,
        "folded": nest.covered
        / table.extents[table.spatial :].prod()
        * np.log2(lanes)
        * table.is_rows,
        "libm": libm,
        "polynomial": polynomial,
        "aliased": work.bodies * work.aliased + work.lives * work.aliased_writes * ~nest.streamed,
        "checked": work.bodies * work.checked,
        "checked_twice": work.bodies * work.checked_twice,
        "torn": work.bodies * work.checked * np.maximum(accumulators - registers / 2, 0),
        "streams": work.bodies * np.maximum(work.broadcasts / per_body - STREAMS, 0),
    }
    counts = np.empty((len(NAMES), len(work.bodies)), np.float32)
    for row, name in enumerate(NAMES):
        counts[row] = found[name]
    return counts


def _in_parts(table: NestTable, work: Work) -> Floats:
    """How many parts a line is written in that goes past the caches, (n,): a core joins
    those that follow each other at once, in one tile; each other goes to memory by
    itself."""
    nest = work.nest
    wide = nest.span[nest.vector] if nest.vector >= 0 else np.ones(len(work.bodies), np.float32)
    parts: Floats = np.maximum(LINE_BYTES / table.dtype_bytes / wide, 1.0)
    return parts


def _burst(transfers: Floats, passes: Floats, arithmetic: Floats) -> Floats:
    """Cycles of transfers (reads, n) that arithmetic would hide if it were spread
    evenly, and does not, since a read brings in all of it in the first of its passes."""
    at_once, spread = (
        np.maximum(transfers - arithmetic / passes, 0.0),
        np.maximum(transfers - arithmetic, 0.0),
    )
    found: Floats = (at_once - spread).sum(axis=0)
    return found


def _units(target: Target, vector_bytes: int) -> int:
    return fma_units(str(target.tvm.get("mcpu")), vector_bytes)


def _wait(target: Target) -> float:
    """Cycles that the first line of a run from beyond the second cache is waited for;
    none where nothing was measured.

    A stream that nothing but waiting holds up has FILLS lines on their way, so that by
    Little's law one takes FILLS times as long as passes between two of them. HIDDEN is
    what that is at 16 bytes a cycle.
    """
    if target.limits is None:
        return 0.0
    read = next(
        (
            entry.read
            for entry in target.limits.bandwidth
            if entry.working_set_bytes >= 2 * target.l2_bytes
        ),
        None,
    )
    if read is None:
        return 0.0
    units = _units(target, target.vector_bytes)
    clock = target.limits.fma_flops_best / (2 * units * target.vector_bytes / 4)  # float32
    return max(FILLS * LINE_BYTES * clock / read - HIDDEN, 0.0)


def _kept(table: NestTable, work: Work, registers: int) -> Floats:
    """Share of the accumulators that stay in registers from one block of the reduction
    to the next, shape (n,).

    Where a cache block is a single tile, nothing comes between two blocks of its
    reduction, and LLVM keeps the sums beside those of the block, as far as there are
    registers for both.
    """
    tiles = work.nest.extent[table.spatial + 1 : 2 * table.spatial + 1].prod(axis=0)
    kept: Floats = np.clip((registers - work.held) / work.accumulators, 0.0, 1.0) * (tiles == 1)
    return kept
