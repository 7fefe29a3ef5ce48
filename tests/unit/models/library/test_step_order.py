"""Steps wait for those whose bytes they use, for all of these and for no others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuner.models.library.step_order import Access, StepOrder

accesses = st.lists(
    st.tuples(
        st.sampled_from([None, 0, 1]), st.integers(0, 12), st.integers(1, 6), st.booleans()
    ).map(lambda parts: (parts[0], parts[1], parts[1] + parts[2], parts[3])),
    min_size=1,
    max_size=4,
)


def conflict(left: Access, right: Access) -> bool:
    return (
        left[0] == right[0]
        and bool({*range(left[1], left[2])} & {*range(right[1], right[2])})
        and (left[3] or right[3])
    )


@given(st.lists(accesses, max_size=12))
def test_two_steps_are_in_order_just_where_their_bytes_ask_for_it(
    steps: list[list[Access]],
) -> None:
    order = StepOrder()
    waits = [order.add(step) for step in steps]
    needed: list[set[int]] = []  # of each step all that must end before it
    ordered: list[set[int]] = []
    for number, step in enumerate(steps):
        direct = {
            earlier
            for earlier in range(number)
            if any(conflict(left, right) for left in steps[earlier] for right in step)
        }
        needed.append(direct.union(*(needed[earlier] for earlier in direct)))
        ordered.append({*waits[number]}.union(*(ordered[earlier] for earlier in waits[number])))
    assert ordered == needed
    for number, after in enumerate(waits):
        for earlier in after:
            others = [ordered[other] for other in after if other != earlier]
            assert earlier not in set().union(*others), f"step {number} need not name {earlier}"


def test_independent_steps_do_not_wait_for_one_another() -> None:
    order = StepOrder()
    assert order.add([(0, 0, 64, False), (None, 0, 64, True)]) == ()
    assert order.add([(0, 0, 64, False), (None, 64, 128, True)]) == ()
    assert order.add([(None, 0, 128, False), (1, 0, 64, True)]) == (0, 1)
    assert order.add([(None, 0, 64, True)]) == (2,)
