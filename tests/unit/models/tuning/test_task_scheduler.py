"""The order in which kernels of a model are tuned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tuner.models.tuning.task_scheduler import (
    FIRST_ROUND,
    ROUND,
    KernelProgress,
    gain_per_trial,
    model_s,
    needless,
    next_kernel,
    round_trials,
)


def subject(calls: int = 1, flops: int = 10**9, kind: str = "2:1") -> KernelProgress:
    return KernelProgress(calls=calls, flops=flops, kind=kind)


def test_each_has_a_turn_first() -> None:
    """The heaviest before the others: whatever ends the tuning early, they have their schedules."""
    subjects = [subject(), subject(calls=3), subject(flops=2 * 10**9)]
    order = []
    for _ in range(3):
        position = next_kernel(subjects)
        assert position is not None
        order.append(position)
        subjects[position] = subjects[position].after(FIRST_ROUND, 1e-3, finished=False)
    assert order == [1, 2, 0]


def test_then_the_one_with_most_to_gain() -> None:
    often = subject(calls=8).after(FIRST_ROUND, 1e-3, finished=False)
    once = subject(calls=1).after(FIRST_ROUND, 1e-3, finished=False)
    assert next_kernel([once, often]) == 1


def test_what_stops_gaining_gives_way() -> None:
    """The same time and number of calls: the one that has just gained goes on, the one
    that stood still waits."""
    still = (
        subject()
        .after(16, 1e-3, finished=False)
        .after(48, 1e-3, finished=False)
        .after(80, 1e-3, finished=False)
    )
    moving = (
        subject()
        .after(16, 4e-3, finished=False)
        .after(48, 2e-3, finished=False)
        .after(80, 1e-3, finished=False)
    )
    assert gain_per_trial(moving, [still, moving]) > gain_per_trial(still, [still, moving])


def test_what_is_far_behind_its_like_is_worth_more() -> None:
    fast = subject().after(16, 1e-4, finished=False)
    slow = subject().after(16, 1e-3, finished=False)
    other = subject(kind="4:3").after(16, 1e-3, finished=False)
    assert gain_per_trial(slow, [fast, slow]) > gain_per_trial(fast, [fast, slow])
    assert gain_per_trial(other, [fast, other]) == gain_per_trial(other, [other])


def test_the_finished_have_no_more_turns() -> None:
    subjects = [subject().after(16, 1e-3, finished=True), subject().after(16, None, finished=False)]
    assert next_kernel(subjects) is None


def test_a_turn_without_a_trial_is_the_last() -> None:
    after_first = subject().after(16, 1e-3, finished=False)
    assert after_first.after(16, 1e-3, finished=False).finished
    assert not after_first.after(16 + ROUND, 1e-3, finished=False).finished


def test_turns_grow() -> None:
    progress, lengths = subject(), []
    for _ in range(4):
        lengths.append(round_trials(progress))
        progress = progress.after(progress.trials + lengths[-1], 1e-3, finished=False)
    assert lengths == [FIRST_ROUND, 2 * FIRST_ROUND, ROUND, ROUND]


def test_strict_variants_come_before_fast_ones() -> None:
    """Whatever ends the tuning early, the model can be assembled."""
    heavy = KernelProgress(calls=9, flops=10**10, kind="4:3", key="f", instead_of=("a",))
    light = KernelProgress(calls=1, flops=10**6, kind="2:1")
    assert next_kernel([heavy, light]) == 1
    assert next_kernel([heavy, light.after(FIRST_ROUND, 1e-6, finished=False)]) == 0


def test_the_slower_variant_gains_only_what_it_is_faster_by() -> None:
    like = subject(kind="4:3").after(FIRST_ROUND, 1e-3, finished=False)
    strict = KernelProgress(calls=1, flops=10**9, kind="4:3", key="a")
    fast = KernelProgress(calls=1, flops=10**9, kind="4:3:fast", key="f", instead_of=("a",))
    strict = strict.after(3, 4e-3, finished=False).after(6, 2e-3, finished=False)
    much_faster = fast.after(6, 4e-4, finished=False)
    a_little_faster = fast.after(6, 1.9e-3, finished=False)
    alone = gain_per_trial(strict, [like, strict])
    assert gain_per_trial(strict, [like, strict, much_faster]) == 0
    assert 0 < gain_per_trial(strict, [like, strict, a_little_faster]) < alone
    assert gain_per_trial(much_faster, [like, strict, much_faster]) > 0


def test_a_fast_variant_that_is_no_faster_needs_no_kernel() -> None:
    def variant(name: str, best_s: tuple[float, ...], *, fast: bool) -> KernelProgress:
        names = {"key": f"fast {name}", "instead_of": (name,)} if fast else {"key": name}
        return KernelProgress(calls=1, flops=1, kind="4:3", best_s=best_s, **names)

    kernels = [
        variant("a", (2e-3, 1e-3), fast=False),
        variant("b", (1e-3,), fast=False),
        variant("c", (1e-3,), fast=False),
        variant("d", (), fast=False),
        variant("a", (9e-4,), fast=True),  # faster
        variant("b", (1.1e-3,), fast=True),  # slower
        variant("c", (), fast=True),  # untried
        variant("d", (1.0,), fast=True),  # the only one
    ]
    assert needless(kernels) == {5, 6}


def chain_and_parts(chain_s: float | None) -> list[KernelProgress]:
    """Two kernels of 1 and 3 ms, and one that does the work of both in `chain_s`."""
    parts = [
        KernelProgress(calls=4, flops=10**8, kind="2:1", key=key, best_s=(seconds,), trials=6)
        for key, seconds in (("a", 1e-3), ("b", 3e-3))
    ]
    best_s = () if chain_s is None else (chain_s,)
    chain = KernelProgress(
        calls=2, flops=2 * 10**8, kind="3:1", key="c", instead_of=("a", "b"), best_s=best_s,
        trials=6,
    )  # fmt: skip
    return [*parts, chain]


def test_a_chain_counts_where_it_is_faster_than_its_parts() -> None:
    assert needless(chain_and_parts(None)) == needless(chain_and_parts(4e-3)) == {2}
    assert needless(chain_and_parts(3.9e-3)) == frozenset()
    apart_s = 4 * (1e-3 + 3e-3)
    assert model_s(chain_and_parts(None)) == pytest.approx(apart_s)
    assert model_s(chain_and_parts(5e-3)) == pytest.approx(apart_s)
    assert model_s(chain_and_parts(3e-3)) == pytest.approx(apart_s - 2 * 1e-3)


def siblings_and_parts(joint_s: float | None, reader_s: float | None) -> list[KernelProgress]:
    """Two products of 1 ms and who reads them in 2 ms, and both products as one with a kernel
    of its own of who reads that."""

    def kernel(key: str, seconds: float | None, **others: Any) -> KernelProgress:
        best_s = () if seconds is None else (seconds,)
        return KernelProgress(
            calls=2, flops=10**8, kind="2:1", key=key, best_s=best_s, trials=6, **others
        )

    instead_of = ("a", "a", "r")
    return [
        replace(kernel("a", 1e-3), calls=4),
        kernel("r", 2e-3),
        kernel("j", joint_s, instead_of=instead_of, beside=("s",)),
        kernel("s", reader_s, instead_of=instead_of, beside=("j",)),
    ]


def test_siblings_count_with_who_reads_them() -> None:
    """A slower reader is needed where the joint product is faster by more than that."""
    for times in ((None, None), (1e-3, None), (None, 1e-3), (2e-3, 2e-3), (1.5e-3, 2.6e-3)):
        kernels = siblings_and_parts(*times)
        assert needless(kernels) == {2, 3}
        assert model_s(kernels) == pytest.approx(8e-3)
    kernels = siblings_and_parts(1.5e-3, 2.1e-3)
    assert needless(kernels) == frozenset()
    assert model_s(kernels) == pytest.approx(8e-3 - 2 * 0.4e-3)


def test_siblings_gain_what_they_are_faster_by_together() -> None:
    hopeless, slow, fast = (siblings_and_parts(1.5e-3, s) for s in (9e-3, 2.6e-3, 2e-3))
    assert gain_per_trial(hopeless[2], hopeless) == 0
    assert 0 < gain_per_trial(slow[2], slow) < gain_per_trial(fast[2], fast)
    alone = siblings_and_parts(1.5e-3, None)
    assert gain_per_trial(alone[0], alone) > gain_per_trial(fast[0], fast)
    assert next_kernel(alone) == 3  # its first round


def test_parts_behind_a_faster_chain_gain_only_what_is_faster_than_it() -> None:
    alone = gain_per_trial(chain_and_parts(None)[1], chain_and_parts(None))
    for chain_s, fraction in ((4.5e-3, 1.0), (2e-3, 1 / 3)):
        kernels = chain_and_parts(chain_s)
        assert gain_per_trial(kernels[1], kernels) <= fraction * alone * (1 + 1e-9)
    # The other part alone takes longer than the chain.
    kernels = chain_and_parts(0.5e-3)
    assert gain_per_trial(kernels[1], kernels) == gain_per_trial(kernels[0], kernels) == 0


def test_a_chain_that_is_slower_gains_from_where_its_parts_are() -> None:
    hopeless, slow, fast = (chain_and_parts(seconds) for seconds in (9e-3, 5e-3, 4e-3))
    assert gain_per_trial(hopeless[2], hopeless) == 0
    assert 0 < gain_per_trial(slow[2], slow) < gain_per_trial(fast[2], fast)
    assert next_kernel(chain_and_parts(None)) == 2  # its first round
