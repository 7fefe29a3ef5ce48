"""Answers about the operators of the catalogue.

Separate from `api/answers.py`, so that commands need not load the database.
"""

from __future__ import annotations

from tuner.api.schemas import OperatorAnswer, OperatorParameter
from tuner.workload.operator import Operator, Param


def operator_answer(operator: Operator) -> OperatorAnswer:
    return OperatorAnswer(
        name=operator.name,
        summary=operator.about,
        notation=program(operator),
        parameters=[_parameter(param) for param in operator.params],
    )


def program(operator: Operator) -> str:
    """The operator's program in the notation, with its extents as symbols.

    Other parameters have their defaults, or their first choice if they have none.
    """
    given = {
        param.name: param.choices[0] if param.choices else 8
        for param in operator.params
        if param.default is None
    }
    return operator.text(operator.filled(given))


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
