"""`tuner targets`: what --target may name."""

from __future__ import annotations

import typer

from tuner.cli.invocation import Invocation


def targets(context: typer.Context) -> None:
    """Lists what --target may name: this machine, and declared CPUs and GPUs, which need
    not be here."""
    from tuner.target.capability import called, serves
    from tuner.target.detect import declared_targets, detect_cpu
    from tuner.target.microarchitectures import declared_cpus

    invocation = Invocation.of(context)
    file = invocation.settings().values.microarchitectures
    machine, cpus = detect_cpu(), declared_cpus(file)
    items = [
        {
            "name": "cpu",
            "kind": "cpu",
            "describes": f"this machine: {machine.name}",
            "isa": list(machine.isa),
            "vector_bytes": machine.vector_bytes,
            "measured_here": True,
        }
    ]
    for target in declared_targets(file):
        entry = cpus.get(str(target.fingerprint.get("declared")))
        items.append(
            {
                "name": called(target),
                "kind": target.kind,
                "describes": target.name if entry is None else entry.describes,
                "isa": list(target.isa),
                "vector_bytes": target.vector_bytes,
                "measured_here": serves(machine, target),
            }
        )
    if invocation.output.as_json:
        invocation.output.items(items)
        return
    rows = [
        (str(item["name"]), str(item["describes"]), "yes" if item["measured_here"] else "")
        for item in items
    ]
    invocation.output.table(("target", "is", "measured here"), rows)
    invocation.output.note(
        "kernels for the others are compiled here and measured on a machine that is one"
    )
