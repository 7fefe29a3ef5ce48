"""Loops and marks of the program IR: how they are written, and which are refused."""

from __future__ import annotations

import pytest

from tuner.errors import IllegalSchedule
from tuner.lowering.schedule import schedule
from tuner.spaces.program.loops import Level, LoopId, loops_of
from tuner.spaces.program.marks import AmxTile, Interleave, Mark, TransposeInRegisters
from tuner.spaces.program.program import Block, Program
from tuner.workload.expression import Axis, Read, Tensor, Var

AXES = (Axis(name="g", extent=2), Axis(name="i", extent=16), Axis(name="j", extent=4))


def copying(*marks: Mark) -> Program:
    here = tuple(Var(axis.name) for axis in AXES)
    block = Block(name="Y", axes=AXES, buffer="Y", indices=here, body=Read("X", here))
    shape = tuple(axis.extent for axis in AXES)
    return Program(
        inputs=(Tensor(name="X", shape=shape, dtype="float32"),),
        outputs=(Tensor(name="Y", shape=shape, dtype="float32"),),
        buffers=(),
        blocks=(block,),
        steps=marks,
    )


def test_loops_are_written_as_block_and_axis() -> None:
    axis = Level.REGISTER.axis("i", 6)
    assert (axis.name, axis.extent) == ("i_0", 6)
    assert Level.REGISTER.holds(axis.name) and not Level.TILE.holds(axis.name)
    assert str(LoopId.of("C", axis)) == "C.i_0"
    assert str(LoopId.of("C", axis, initial=True)) == "C_init.i_0"
    assert loops_of("C", [axis]) == (LoopId("C", "i_0"),)


def test_levels_are_told_apart_by_their_suffixes() -> None:
    names = [level.name_of("i") for level in Level]
    assert [[level.holds(name) for level in Level].count(True) for name in names] == [1] * len(
        names
    )


@pytest.mark.parametrize("axis", ["g", "j"])
def test_a_mark_on_the_wrong_loop_is_refused(axis: str) -> None:
    schedule(copying(Interleave(loop=LoopId("Y", "i"))), "kernel")
    with pytest.raises(
        IllegalSchedule, match=rf"interleave on Y\.{axis}, which has \d loops inside"
    ):
        schedule(copying(Interleave(loop=LoopId("Y", axis))), "kernel")


@pytest.mark.parametrize("vector_lanes", [-4, 0, 3, 12])
def test_vectors_that_are_transposed_have_a_power_of_two_of_lanes(vector_lanes: int) -> None:
    with pytest.raises(ValueError, match="no power of two"):
        TransposeInRegisters(loop=LoopId("Y", "i"), vector_lanes=vector_lanes)


def test_matrix_registers_hold_loops_of_one_block() -> None:
    names = ("rows", "vectors", "vector_lanes", "words")
    loops = {name: LoopId("C", name) for name in names}
    mark = AmxTile(loop=LoopId("C", "k"), elements=LoopId("C", "e"), **loops)
    assert [loop.axis for loop in mark.loops] == ["k", *names, "e"]
    with pytest.raises(ValueError, match="several blocks"):
        AmxTile(loop=LoopId("C", "k"), elements=LoopId("D", "e"), **loops)
