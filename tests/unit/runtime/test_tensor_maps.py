"""Tensor maps of a module: kept with its launches, judged, and handed to C."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.cuda_modules import MODULE
from tuner.runtime.cuda_link import MAX_MAPS, cuda_wrapper, link_cuda
from tuner.runtime.cuda_module import CudaModule, CudaModuleError, Launch, TensorMap, unpacked
from tuner.runtime.toolchain import LinkError
from tuner.workload.expression import Tensor

A = Tensor(name="A", shape=(2, 96, 64), dtype="float16")
C = Tensor(name="C", shape=(96, 128), dtype="float32")
IN_BOXES = TensorMap(buffer="A", shape=(2, 96, 64), box=(1, 128, 64))
OUT_BOXES = TensorMap(buffer="C", shape=(96, 128), box=(64, 32))
BOXED = CudaModule(
    symbol="boxed",
    inputs=(A,),
    outputs=(C,),
    workspace=(),
    launches=(
        Launch(
            kernel="boxed_kernel",
            arguments=("C",),
            grid=(2, 1, 1),
            block=(384, 1, 1),
            shared_bytes=1024,
            maps=(IN_BOXES, OUT_BOXES),
        ),
    ),
    cubins=(("sm_90", b"\x7fELF"),),
)


def with_map(changed: TensorMap) -> CudaModule:
    (launch,) = BOXED.launches
    return replace(BOXED, launches=(replace(launch, maps=(changed,)),))


def test_they_are_packed_with_their_launch_and_modules_without_any_say_nothing_of_them() -> None:
    assert unpacked(BOXED.pack()) == BOXED
    assert unpacked(MODULE.pack()) == MODULE
    assert b'"maps"' in BOXED.pack() and b'"maps"' not in MODULE.pack()


def test_they_follow_a_callers_names() -> None:
    (launch,) = BOXED.named(["X", "Y"]).launches
    assert [each.buffer for each in launch.maps] == ["X", "Y"]
    assert launch.buffers == ("X", "Y", "Y")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (replace(IN_BOXES, buffer="B"), "takes ['B'], which it cannot"),
        (replace(IN_BOXES, box=(1, 257, 64)), "sides are 1 to 256 long"),
        (replace(IN_BOXES, box=(1, 0, 64)), "sides are 1 to 256 long"),
        (replace(IN_BOXES, box=(1, 64, 65)), "rows of 130 bytes in a box, 128 at most"),
        (replace(IN_BOXES, box=(64, 64)), "3 dimensions and boxes of 2"),
        (replace(IN_BOXES, shape=(2, 96, 60)), "rows of 120 bytes, which 16 must divide"),
        (replace(IN_BOXES, shape=(3, 96, 64)), "is [3, 96, 64] of a buffer of [2, 96, 64]"),
        (replace(OUT_BOXES, box=(64, 64)), "rows of 256 bytes in a box"),
        (replace(IN_BOXES, rounded=True), "rounds elements of float16"),
        (replace(IN_BOXES, steps=(1, 3, 1)), "boxes of [1, 384, 64], whose sides"),
        (replace(IN_BOXES, box=(1, 8, 64), steps=(1, 9, 1)), "at most the 8-th"),
        (replace(IN_BOXES, steps=(1, 1, 2)), "of a row it takes all"),
    ],
)
def test_what_the_accelerator_cannot_copy_is_refused(changed: TensorMap, said: str) -> None:
    with pytest.raises(CudaModuleError) as raised:
        with_map(changed).check()
    assert said in str(raised.value)


def test_elements_that_no_kernel_copies_in_boxes_are_refused() -> None:
    with pytest.raises(CudaModuleError, match="has elements of int64"):
        replace(BOXED, inputs=(replace(A, dtype="int64"),)).check()


def test_the_driver_gets_dimensions_innermost_first() -> None:
    text = cuda_wrapper("library", [BOXED])
    # Place, type, rank, elements, bytes from one to the next, box, steps.
    assert "{0, 6, 3, {64, 96, 2}, {128, 12288}, {64, 128, 1}, {1, 1, 1}}" in text
    assert "{1, 7, 2, {128, 96}, {512}, {32, 64}, {1, 1}}" in text
    assert '"boxed_kernel", {2, 1, 1}, {384, 1, 1}, 1024, 1, arguments_0_0, 2, maps_0_0' in text
    assert json.dumps("rows_kernel") + ", {8, 1, 1}" in cuda_wrapper("library", [MODULE])


def test_each_second_element_may_be_copied() -> None:
    module = with_map(replace(IN_BOXES, box=(1, 64, 64), steps=(1, 2, 1)))
    module.check()
    assert unpacked(module.pack()) == module
    # The driver counts a box's elements with those between them.
    assert "{64, 128, 1}, {1, 2, 1}}" in cuda_wrapper("library", [module])


def test_float32_may_be_rounded_as_it_is_copied() -> None:
    module = with_map(replace(OUT_BOXES, rounded=True))
    module.check()
    assert unpacked(module.pack()) == module
    assert "{1, 11, 2, {128, 96}" in cuda_wrapper("library", [module])


def test_more_than_a_launch_has_room_for_are_refused() -> None:
    (launch,) = BOXED.launches
    crowded = replace(launch, maps=(IN_BOXES,) * (MAX_MAPS + 1))
    with pytest.raises(LinkError, match="takes 9 tensor maps; 8 are the most"):
        link_cuda("library", [replace(BOXED, launches=(crowded,))])
