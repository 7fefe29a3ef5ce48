"""What is said of a foreign kernel: verified with its time, or what it did wrong by name."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from tuner.measure.outcome import printable
from tuner.measure.statistics import Ratio
from tuner.measure.wire import Document


class VerdictName(StrEnum):
    """The closed set of verdicts. docs/how-to/judge-kernels.md says what leads to each."""

    VERIFIED = "verified"
    # Before it runs.
    BUILD_ERROR = "build_error"
    HEADER_REFUSED = "header_refused"
    SYMBOL_REFUSED = "symbol_refused"
    SECTION_REFUSED = "section_refused"
    # What it computes.
    WRONG_ELEMENT = "wrong_element"
    PRECISION_LOWERED = "precision_lowered"
    OUTPUT_NOT_WRITTEN = "output_not_written"
    OUTPUT_READ = "output_read"
    OUTPUT_CACHED = "output_cached"
    # What it touches.
    INPUT_CHANGED = "input_changed"
    OUT_OF_BOUNDS = "out_of_bounds"
    FLOATING_POINT_STATE = "floating_point_state"
    SYSTEM_CALL = "system_call"
    # How it ends.
    ENDED_EARLY = "ended_early"
    RETURNED_ERROR = "returned_error"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    IMPLAUSIBLE = "implausible"
    # Not its own fault: judged again, it may be verified.
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongElement:
    """The first wrong element of an output, in row-major order."""

    output: str
    index: tuple[int, ...]
    value: float
    expected: float
    inputs: str  # kind of inputs: normal, large, zeros, fresh, special, positive


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTime:
    """What a verified kernel takes, seen from outside of its process."""

    median_s: float  # seconds of one call
    ci95_s: tuple[float, float]
    rival: str  # that it was timed in turn with: "incumbent" or "default"
    rival_median_s: float
    # Its time divided by the rival's: below 1 it is the faster one.
    ratio: Ratio
    roofline_fraction: float | None = None  # share of the machine's limit; None: it is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer to a foreign kernel."""

    name: VerdictName
    message: str  # in words, with the compiler's own text where it refused
    element: WrongElement | None = None
    max_rel_error: float | None = None  # of a verified one
    time: ForeignTime | None = None  # of a verified one that was raced

    @property
    def verified(self) -> bool:
        return self.name is VerdictName.VERIFIED


class Guilty(Exception):
    """What was judged is not verified."""

    def __init__(
        self, name: VerdictName, message: str, element: WrongElement | None = None
    ) -> None:
        text = printable(message)
        super().__init__(text)
        self.verdict = Verdict(name=name, message=text, element=element)


def guilty_to_document(guilty: Guilty) -> Document:
    """What was found, as JSON."""
    return asdict(guilty.verdict)


def guilty_from_document(document: Document) -> Guilty:
    """The inverse of `guilty_to_document`. Raises KeyError, ValueError or TypeError."""
    element = document["element"]
    return Guilty(
        VerdictName(document["name"]),
        document["message"],
        None if element is None else WrongElement(**{**element, "index": tuple(element["index"])}),
    )
