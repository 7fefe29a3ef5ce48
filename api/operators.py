"""The catalogue's operators as REST and commands show them. Apart from api/answers.py,
so that no database is loaded for them."""

from __future__ import annotations

from tuner.api.schemas import OperatorAnswer, OperatorParameter
from tuner.workload.operator import Operator, Param


def described_operator(found: Operator) -> OperatorAnswer:
    return OperatorAnswer(
        name=found.name,
        summary=found.about,
        notation=program(found),
        parameters=[_parameter(param) for param in found.params],
    )


def program(found: Operator) -> str:
    """The operator in the notation: its defaults, the first choice where there is none;
    extents stay symbols."""
    given = {
        param.name: param.choices[0] if param.choices else 8
        for param in found.params
        if param.default is None
    }
    return found.text(found.filled(given))


def _parameter(param: Param) -> OperatorParameter:
    whole = param.kind == "int"
    return OperatorParameter(
        name=param.name,
        type=param.kind,
        default=param.default,
        choices=list(param.choices) or None,
        least=param.least if whole else None,
        most=param.most if whole else None,
        description=param.about,
    )
