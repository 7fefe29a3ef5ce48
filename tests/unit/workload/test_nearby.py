"""Workloads of nearly the extents of another."""

from __future__ import annotations

import pytest

from tuner.errors import WorkloadError
from tuner.workload.nearby import nearby
from tuner.workload.spec import parse_spec


def changes(spec: str, *parameters: str) -> dict[str, list[int]]:
    changed: dict[str, list[int]] = {}
    for each in nearby(parse_spec(spec), parameters):
        assert each.workload.params[each.parameter] == each.extent
        changed.setdefault(each.parameter, []).append(each.extent)
    return changed


@pytest.mark.parametrize(
    ("extent", "values"),
    [
        (1000, [960, 992, 1008, 1024]),
        (1024, [1008, 1040, 1088]),
        (1008, [960, 992, 1024]),
        (100, [96, 112]),
        (16, []),
        (9, []),
        (1, []),
    ],
)
def test_lines_and_tiles_on_either_side_are_near(extent: int, values: list[int]) -> None:
    assert changes(f"matmul:M=3,N={extent},K=5").get("N", []) == values


def test_a_line_holds_more_elements_of_narrow_types() -> None:
    assert changes("matmul:M=3,N=100,K=5,dtype=bfloat16") == {"N": [96]}


def test_all_but_the_changed_extent_stays() -> None:
    asked = parse_spec("matmul:M=100,N=200,K=3,transpose_b=true,const=B,numerics=fast")
    for each in nearby(asked, ["N"]):
        same = {name: value for name, value in each.workload.params.items() if name != "N"}
        assert same == {name: value for name, value in asked.params.items() if name != "N"}
        assert (each.workload.constants, each.workload.numerics) == (("B",), "fast")
        assert each.parameter == "N"


def test_windows_and_impossible_extents_stay() -> None:
    spec = "conv2d:N=1,CI=640,H=56,W=56,CO=100,KH=3,KW=3,pad=1,groups=20"
    # No multiple of a line near 640 or 100 has 20 groups.
    assert changes(spec) == {"H": [48, 64], "W": [48, 64]}


@pytest.mark.parametrize("name", ["Q", "K"])
def test_what_is_no_extent_to_change_is_refused(name: str) -> None:
    with pytest.raises(WorkloadError, match=f"'{name}' is no extent of matmul.*M, N"):
        nearby(parse_spec("matmul:M=100,N=200,K=3"), [name])
