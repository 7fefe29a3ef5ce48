"""Limits that were measured twice: the highest of both."""

from __future__ import annotations

from dataclasses import replace

from tuner.target.target import Limits


def highest(old: Limits, new: Limits) -> Limits:
    """The old limits with the highest rates that either measurement reached.

    Medians stay those of the old one. Bandwidths and rates are compared where both
    measured the same ones.
    """
    bandwidth = old.bandwidth
    if len(new.bandwidth) == len(old.bandwidth):
        bandwidth = tuple(
            replace(
                before,
                read=max(before.read, after.read),
                write=max(before.write, after.write),
                copy=max(before.copy, after.copy),
            )
            for before, after in zip(old.bandwidth, new.bandwidth, strict=True)
        )
    best = {(rate.unit, rate.dtype): rate.flops_best for rate in new.rates}
    launches = [seconds for seconds in (old.launch_s, new.launch_s) if seconds is not None]
    return replace(
        old,
        fma_flops_best=max(old.fma_flops_best, new.fma_flops_best),
        bandwidth=bandwidth,
        rates=tuple(
            replace(rate, flops_best=max(rate.flops_best, best.get((rate.unit, rate.dtype), 0.0)))
            for rate in old.rates
        ),
        launch_s=min(launches, default=None),
    )
