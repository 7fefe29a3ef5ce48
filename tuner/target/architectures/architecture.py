"""What a folder of this package declares about its architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.target.isa import IsaDescription
from tuner.target.processor import Processor


@dataclass(frozen=True, slots=True)
class CpuidFeature:
    """Where CPUID announces a feature, and what the operating system must save for it.

    On Arm the place in Linux' auxiliary vector instead: `leaf` is the entry's type. Of type 0,
    which ends that vector, it is the length of scalable vectors: `subleaf`, in bytes.
    """

    leaf: int
    subleaf: int
    reg: int  # 0 eax, 1 ebx, 2 ecx, 3 edx
    bit: int
    xcr0: int  # mask of XCR0 bits that have to be set


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalableVectors:
    """Vectors of a length that each core has of its own, used at one length: code for it is
    wrong at any other."""

    feature: str  # that the core must have
    lengths: Mapping[int, str]  # by bytes, the feature that stands for just that length
    length_options: tuple[str, ...]  # of LLVM's, which take bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One CPU architecture: how it is detected, described, and checked at run time."""

    # Feature names, from the kernel's spelling in /proc/cpuinfo to LLVM's.
    features: Mapping[str, str]
    # LLVM's `-mcpu` name of a processor.
    llvm_cpu: Callable[[Processor], str]
    # From features in LLVM's spelling, and LLVM's name of the CPU.
    describe: Callable[[tuple[str, ...], str], IsaDescription]
    # Features that a library looks up before it calls a kernel, in LLVM's spelling.
    # None: libraries are built for the machine's own baseline and look nothing up.
    cpuid: Mapping[str, CpuidFeature] | None = None
    # Levels that portable libraries may be compiled for, with their features; the
    # richest first.
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Of code for another machine: the system it runs on, as LLVM and GCC name it, and what
    # else LLVM has to be given. Empty where nothing is declared.
    triple: str = ""
    cross: Mapping[str, str | int] = field(default_factory=dict)
    scalable: ScalableVectors | None = None
    # Code is a module that an engine loads: without an operating system, threads of its own
    # or an agent. Kernels for it are not measured.
    freestanding: bool = False

    def length_feature(self, vector_bytes: int) -> str | None:
        """What a core must have besides its features for code with vectors so long."""
        return None if self.scalable is None else self.scalable.lengths.get(vector_bytes)

    def cross_options(self, features: Sequence[str], vector_bytes: int) -> Mapping[str, str | int]:
        """Options of TVM's target, besides the CPU's name, for a core that is not here.

        Lists are texts with commas. A core may have features that LLVM's does not, such as
        a generic one.
        """
        options: dict[str, str | int] = {"mtriple": self.triple, **self.cross}
        if features:
            options["mattr"] = ",".join(f"+{feature}" for feature in features)
        if self.scalable is not None and self.length_feature(vector_bytes):
            bits = 8 * vector_bytes
            options["cl-opt"] = ",".join(f"{of}:uint={bits}" for of in self.scalable.length_options)
        return options

    def isa_features(self, processor: Processor) -> tuple[str, ...]:
        """The processor's features in LLVM's spelling, sorted."""
        names = (self.features[flag] for flag in processor.flags if flag in self.features)
        return tuple(sorted(names))
