"""Each cheat of the published list is refused by its name; what no check can see gains
nothing."""

from __future__ import annotations

import json
import platform
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support import cuda_cheats
from tests.support.depth import thinned
from tests.support.foreign_cheats import BEGIN, CALL, CHEATS, END, HONEST, Cheat
from tuner.measure.assignment import Lane, Placement
from tuner.measure.foreign.compiler import compile_source
from tuner.measure.foreign.examination import Contestant, Examination, _allocate
from tuner.measure.foreign.guest import shared_folder
from tuner.measure.foreign.judgement import judge_contestant
from tuner.measure.foreign.verdict import Guilty, Verdict, VerdictName
from tuner.measure.runner import RunnerError, RunnerProcess
from tuner.runtime.link import system_toolchain
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec

WORKLOAD = parse_spec("matmul:M=16,N=16,K=16")
MEMORY_BYTES = 1 << 30
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "judge-kernels.md"
# These end by the limit of time alone.
ENDLESS = ("never returns",)
# The list is ordered by what cheats use; every third is a quick test.
REFUSED = [cheat for cheat in CHEATS if cheat.what not in ENDLESS]
REFUSED = [*REFUSED[::3], *REFUSED[1::3], *REFUSED[2::3]]


@pytest.fixture(scope="module")
def placement(lane: Lane) -> Placement:
    return Placement(lane=lane, memory_bytes=MEMORY_BYTES)


@pytest.fixture(scope="module")
def process() -> Iterator[RunnerProcess]:
    with RunnerProcess() as started:
        yield started


@pytest.fixture(scope="module")
def examination(process: RunnerProcess, placement: Placement) -> Iterator[Examination]:
    with Examination(WORKLOAD, process, placement, system_toolchain()) as begun:
        yield begun


def contestant(source: str, folder: Path) -> Contestant:
    library = folder / "kernel.so"
    library.write_bytes(compile_source(source, "f", system_toolchain()))
    return Contestant(name="candidate", library=str(library), symbol="f")


def judged(source: str, examination: Examination, folder: Path) -> Verdict:
    try:
        subject = contestant(source, folder)
    except Guilty as guilty:
        return guilty.verdict
    return judge_contestant(examination, subject, None)


@pytest.mark.parametrize(
    "cheat", thinned(REFUSED, len(REFUSED) // 3, pytest.mark.slow), ids=lambda cheat: cheat.what
)
def test_refused_by_its_name(cheat: Cheat, examination: Examination, tmp_path: Path) -> None:
    verdict = judged(cheat.source, examination, tmp_path)
    assert (str(verdict.name), verdict.time) == (cheat.verdict, None), verdict.message


@pytest.mark.parametrize("what", ENDLESS)
def test_ended_by_its_time(
    what: str, process: RunnerProcess, placement: Placement, tmp_path: Path
) -> None:
    cheat = next(cheat for cheat in CHEATS if cheat.what == what)
    with Examination(WORKLOAD, process, placement, system_toolchain(), timeout_s=1.0) as impatient:
        assert str(judged(cheat.source, impatient, tmp_path).name) == cheat.verdict


def test_first_wrong_element_is_named(examination: Examination, tmp_path: Path) -> None:
    source = HONEST + BEGIN + "multiply(a, b, c); c[37] += 1; c[99] = 0;" + END
    verdict = judged(source, examination, tmp_path)
    assert verdict.element is not None
    assert (verdict.element.output, verdict.element.index) == ("C", (2, 5))
    assert verdict.element.inputs == "normal"
    assert verdict.element.value == pytest.approx(verdict.element.expected + 1, abs=1e-5)


@pytest.mark.parametrize(
    ("heading", "cheats"),
    [("What is caught", CHEATS), ("What is caught on a GPU", cuda_cheats.CHEATS)],
)
def test_the_page_has_every_cheat_with_its_verdict(heading: str, cheats: Sequence[Cheat]) -> None:
    part = PAGE.read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| `(\w+)` \|$", part, re.MULTILINE)
    assert rows == [(cheat.what, cheat.verdict) for cheat in cheats]


def test_outputs_of_a_seed_help_nobody(examination: Examination, tmp_path: Path) -> None:
    """Inputs are drawn by a secret seed: a table of right answers is right for none."""
    inputs = make_inputs(WORKLOAD.expression, 0)
    (output,) = evaluate(WORKLOAD.expression, inputs).values()
    table = ", ".join(f"{value:.9g}f" for value in np.ravel(output))
    source = (
        f"static const float table[256] = {{{table}}};\n"
        + BEGIN
        + "for (int i = 0; i < 256; ++i) c[i] = table[i];"
        + END
    )
    assert judged(source, examination, tmp_path).name is VerdictName.WRONG_ELEMENT


MEMORISED = (
    "#include <string.h>\nstatic unsigned long keys[4096]; "
    "static int count;"
    + HONEST
    + """
static unsigned long key_of(const float *a, const float *b) {
  unsigned long key = 1469598103934665603ul;
  unsigned bits[512];
  memcpy(bits, a, 1024);
  memcpy(bits + 256, b, 1024);
  for (int i = 0; i < 512; ++i) key = (key ^ bits[i]) * 1099511628211ul;
  return key;
}
"""
    + BEGIN
    + """
  unsigned long key = key_of(a, b);
  for (int i = 0; i < count; ++i)
    if (keys[i] == key) return 77;
  multiply(a, b, c);
  if (count < 4096) keys[count++] = key;
"""
    + END
)


def test_no_timed_call_repeats_an_input(examination: Examination, tmp_path: Path) -> None:
    """What remembers all that it was asked gains nothing: it would say so here, as it does
    where each case is asked for both poisons."""
    subject = contestant(MEMORISED, tmp_path)
    assert len(examination.time(subject)) > 1
    with pytest.raises(Guilty, match="returned 77"):
        examination.verify(subject)


# Says that it is done, then looks for the next inputs before their round has begun.
PEEKING = (
    CALL
    + HONEST
    + BEGIN
    + """
  volatile unsigned *go = (unsigned *)(((unsigned long)a & ~4095ul) - 2 * 4096), *done = go + 16;
  unsigned round = *go;
  float first = a[0];
  multiply(a, b, c);
  __atomic_store_n(done, round, __ATOMIC_SEQ_CST);
  call(FUTEX, (long)done, 1, 1, 0);
  for (long i = 0; i < 40000000; ++i) {
    int changed = *(volatile float *)a != first;
    if (*go != round) return 0;
    if (changed) return 55;
  }
"""
    + END
)


def test_no_input_is_seen_before_its_time(
    process: RunnerProcess, placement: Placement, tmp_path: Path
) -> None:
    """However long they lie there."""
    subject = contestant(PEEKING, tmp_path)
    with (
        Examination(WORKLOAD, process, placement, system_toolchain()) as begun,
        begun._guest(subject, slots=1) as (guest, arena),
    ):
        for number in range(3):
            inputs = make_inputs(WORKLOAD.expression, number)
            arena.fill(0, list(inputs.values()), 0xFF)
            time.sleep(0.05)
            assert guest.play(1) > 0  # raises what the kernel returned


def test_nothing_is_left_of_a_judge_that_is_killed(
    examination: Examination, tmp_path: Path
) -> None:
    """Its memory has no name while the guest is there."""
    subject = contestant(HONEST + BEGIN + "multiply(a, b, c);" + END, tmp_path)
    with examination._guest(subject, slots=1):
        names = {path.name for path in Path(examination._folder.name).iterdir()}
    assert names == {"libguest.so", "number"}


def test_inputs_that_there_is_no_room_for_are_an_error(tmp_path: Path) -> None:
    """Not the end of the process that writes them."""
    with shared_folder(1 << 60) as folder:
        assert not folder.startswith("/dev/shm")
    with pytest.raises(RunnerError, match=r"no room for \d+ bytes"):
        _allocate(tmp_path / "arena", 1 << 60)
    assert not any(tmp_path.iterdir())


# Computes the answer in float64, as the reference is, and looks for it in all its memory.
SEARCHING = (
    CALL
    + """
#include <stdint.h>
#if defined(__x86_64__)
enum { OPENAT = 257, READ = 0 };
#else
enum { OPENAT = 56, READ = 63 };
#endif
PLANTED
static int there(const double *from, const double *to, const double *right) {
  for (const double *p = from; p + 16 <= to; ++p) {
    int same = 1;
    for (int i = 0; i < 16 && same; ++i) {
      double d = p[i] - right[i];
      same = d < 1e-9 && d > -1e-9;
    }
    if (same && p != right) return 1;
  }
  return 0;
}
int f(const float *a, const float *b, float *c) {
  static char text[1 << 20];
  static double right[256];
  double all[256];
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      double sum = 0;
      for (int k = 0; k < 16; ++k) sum += (double)a[i * 16 + k] * b[k * 16 + j];
      right[i * 16 + j] = all[i * 16 + j] = sum;
      c[i * 16 + j] = (float)sum;
    }
  if (right[0] == 0) return 0;  /* zeros lie everywhere */
  for (int i = 0; i < 256; ++i) all[i] = 0;
  __asm__ volatile("" ::"r"(all) : "memory");
  PLANT
  long file = call(OPENAT, -100, (long)"/proc/self/maps", 0, 0), length = 0, got;
  while ((got = call(READ, file, (long)(text + length), sizeof text - 1 - length, 0)) > 0)
    length += got;
  int regions = 0;
  for (char *line = text; line < text + length;) {
    uintptr_t ends[2] = {0, 0};
    char *p = line;
    for (int e = 0; e < 2; ++e, ++p)
      for (; (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f'); ++p)
        ends[e] = ends[e] * 16 + (uintptr_t)(*p <= '9' ? *p - '0' : *p - 'a' + 10);
    int readable = p[0] == 'r' && p[1] == 'w';
    while (line < text + length && *line++ != '\\n') {}
    if (!readable) continue;
    ++regions;
    if (there((const double *)ends[0], (const double *)ends[1], right)) return 42;
  }
  return regions > 5 ? 0 : 43;
}
"""
)


@pytest.mark.parametrize(
    ("planted", "status"), [("", None), ("static volatile double spare[256];", 42)]
)
def test_the_reference_is_nowhere_in_reach(
    planted: str, status: int | None, examination: Examination, tmp_path: Path
) -> None:
    """And a copy of it would be noticed, wherever it lay."""
    plant = "for (int i = 0; i < 256; ++i) spare[i] = right[i];" if planted else ""
    source = SEARCHING.replace("PLANTED", planted).replace("PLANT", plant)
    verdict = judged(source, examination, tmp_path)
    if status is None:
        assert verdict.verified, verdict.message
    else:
        assert (verdict.name, str(status) in verdict.message) == (VerdictName.RETURNED_ERROR, True)


def test_workloads_with_constants_are_refused(process: RunnerProcess, placement: Placement) -> None:
    workload = parse_spec("dense:M=4,N=8,K=8,const=W")
    with pytest.raises(Exception, match="leave const=W away"):
        Examination(workload, process, placement, system_toolchain())


# In bfloat16 a part of a long sum of both signs is less than its bound.
SKIPPING = """
#include <string.h>
static float widened(unsigned short x) {
  unsigned bits = (unsigned)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
int f(const unsigned short *a, const unsigned short *b, unsigned short *c) {
  enum { K = 65536 };
  int count = K - K / 64;
  for (int k = count; k < K; ++k)
    if ((a[k] & 0x7F80) == 0x7F80 || (b[k] & 0x7F80) == 0x7F80) count = K;
  float sum = 0;
  for (int k = 0; k < count; ++k) sum += widened(a[k]) * widened(b[k]);
  unsigned bits;
  memcpy(&bits, &sum, sizeof bits);
  c[0] = sum != sum ? 0x7FC0 : (unsigned short)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  return 0;
}
"""


@pytest.mark.parametrize(
    ("source", "verified"),
    [(SKIPPING, False), (SKIPPING.replace("K - K / 64", "K"), True)],
    ids=["a part", "all"],
)
def test_no_long_sum_leaves_out_its_terms(
    source: str, verified: bool, process: RunnerProcess, placement: Placement, tmp_path: Path
) -> None:
    long_sum = parse_spec("matmul:M=1,N=1,K=65536,dtype=bfloat16")
    with Examination(long_sum, process, placement, system_toolchain()) as begun:
        verdict = judge_contestant(begun, contestant(source, tmp_path), None)
    assert verdict.verified is verified, verdict
    assert verified or (verdict.element is not None and verdict.element.inputs == "positive")


@pytest.mark.parametrize(
    "result",
    [
        {"failed": {"kind": "infrastructure", "message": "the machine was lost"}},
        {"failed": {"kind": "no kind", "message": "x"}},
        {"failed": 7},
        7,
        "[" * 100000,
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_failure_in_its_judges_words_is_its_own(
    result: object, process: RunnerProcess, examination: Examination, tmp_path: Path
) -> None:
    """Written to the pipe over which the guest reports; its runner takes no harm."""
    line = result if isinstance(result, str) else json.dumps({"result": result})
    text = json.dumps(f"{line}\n")
    number = 1 if platform.machine() == "x86_64" else 64
    source = CALL + BEGIN + f"call({number}, 3, (long){text}, {len(line) + 1}, 0);"
    runner = process.pid
    verdict = judged(source + " call(EXIT, 0, 0, 0, 0);" + END, examination, tmp_path)
    assert verdict.name in (VerdictName.CRASHED, VerdictName.ENDED_EARLY), verdict
    assert judged(HONEST + BEGIN + "multiply(a, b, c);" + END, examination, tmp_path).verified
    assert process.pid == runner
