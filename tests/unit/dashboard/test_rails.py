"""Rails of a graph: every edge is drawn from its node to its reader, on lanes of its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuner.api.dashboard.charts.rails import Rail, draw, rails, width


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    count = draw(st.integers(1, 30))
    return [
        sorted(draw(st.sets(st.integers(0, row - 1), max_size=4))) if row else []
        for row in range(count)
    ]


@given(graphs())
def test_each_row_reads_the_lanes_of_what_it_comes_after(after: list[list[int]]) -> None:
    lanes: dict[int, int] = {}  # lane -> the node whose value runs in it
    for row, (rail, sources) in enumerate(zip(rails(after), after, strict=True)):
        assert sorted(lanes[lane] for lane in rail.read) == sources
        lanes = {lane: lanes[lane] for lane in rail.passing}
        assert rail.node not in lanes
        if rail.goes_on:
            lanes[rail.node] = row
        unread = {source for later in after[row + 1 :] for source in later if source <= row}
        assert set(lanes.values()) == unread


def test_a_chain_stays_on_its_lane_and_a_branch_gets_another() -> None:
    chain = rails([[], [0], [1]])
    assert [rail.node for rail in chain] == [0, 0, 0] and width(chain) == 16
    residual = rails([[], [0], [1, 0]])
    assert residual[1] == Rail(node=1, goes_on=True, read=(0,), passing=(0,))
    assert residual[2] == Rail(node=0, goes_on=False, read=(0, 1), passing=())
    assert draw(residual[2], 28).count("C") == 2 and "heavy" in draw(residual[2], 28, heavy=True)
