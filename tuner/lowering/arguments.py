"""Arguments in the shapes that callers know.

A scheduled function may address its arguments with fewer dimensions than callers have.
"""

from __future__ import annotations

import tvm
from tvm import tirx

# Attribute of a function whose parameters callers have in other shapes: these, in order.
ARGUMENTS = "tuner.arguments"


def restore_argument_shapes(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with each function taking arguments in the callers' shapes.

    What a body addresses becomes a view of them.
    """
    return tvm.IRModule(
        {name: _restored(function) for name, function in mod.functions.items()}, attrs=mod.attrs
    )


def _restored(function: tirx.PrimFunc) -> tirx.PrimFunc:
    if ARGUMENTS not in function.attrs:
        return function
    parameters, views = [], []
    for addressed, shape in zip(function.params, function.attrs[ARGUMENTS], strict=True):
        if [int(extent) for extent in addressed.shape] == [int(extent) for extent in shape]:
            parameters.append(addressed)
            continue
        parameters.append(
            tirx.decl_buffer([int(extent) for extent in shape], addressed.dtype, addressed.name)
        )
        views.append(tirx.DeclBuffer(addressed, data=parameters[-1].data))
    body = tirx.SeqStmt([*views, function.body]) if views else function.body
    stated = tirx.PrimFunc(parameters, body, function.ret_type, function.attrs, function.span)
    return stated.without_attr(ARGUMENTS)
