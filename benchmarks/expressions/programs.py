"""Random programs, drawn by the generator of the property tests.

The same seed gives the same programs.
"""

from __future__ import annotations

from itertools import count

from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks.kernels.contest import Case
from tests.support.random_expressions import EXTENTS, programs
from tuner.workload.spec import workload_from_notation

# Extents: tiny, odd, prime and round. The property tests' own extents make programs of
# some 100 operations.
LARGE = (1, 3, 8, 31, 64, 97)
DRAWS = 3  # of each generator: its first draws are the smallest programs there are
# A program of less is all call and no kernel. The default schedule of one of more takes
# seconds.
FLOPS = range(16, 50_000_000)


def cases(number_of_cases: int, seed_number: int, *, small: bool = False) -> list[Case]:
    """Draw so many distinct programs, named by the number of their drawing.

    `small` uses the extents of the property tests.
    """
    drawn: dict[str, Case] = {}
    numbers = count()
    while len(drawn) < number_of_cases:
        number = next(numbers)
        workload = workload_from_notation(
            _drawn(f"{seed_number}.{number}", EXTENTS if small else LARGE), {}
        )
        if workload.expression.flops in FLOPS:
            drawn.setdefault(workload.key, Case(name=f"e{number}", workload=workload))
    return list(drawn.values())


def _drawn(name: str, extents: tuple[int, ...]) -> str:
    """Draw one program.

    Hypothesis draws by the seed alone, without its database of examples and without
    shrinking.
    """
    drawn: list[str] = []

    @seed(name)
    @settings(
        max_examples=DRAWS,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(extents=extents))
    def draw(text: str) -> None:
        drawn.append(text)

    draw()
    return drawn[-1]
