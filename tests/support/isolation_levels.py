"""Isolation levels, and systems that lack what they need."""

from __future__ import annotations

from dataclasses import replace

from tuner.measure.sandbox.support import Finding, Mechanism, State, Support, Way

WAYS = {
    Mechanism.SECCOMP: Way.LISTENER,
    Mechanism.CAPABILITIES: Way.CAPSET,
    Mechanism.PROCESSES: Way.CGROUP,
    Mechanism.FILES: Way.LANDLOCK,
    Mechanism.NETWORK: Way.NAMESPACE,
}


FULL = Support(
    machine="x86_64",
    findings={
        mechanism: Finding(state=State.AVAILABLE, way=way, detail=f"by {way}")
        for mechanism, way in WAYS.items()
    },
)


def without(mechanism: Mechanism, state: State) -> Support:
    lost = Finding(state=state, way=None, detail="Operation not permitted")
    return replace(FULL, findings={**FULL.findings, mechanism: lost})
