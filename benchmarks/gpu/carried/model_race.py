"""The race of a network: kernels chosen on the device, one graph, against torch.compile."""

from __future__ import annotations

import ctypes
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .kernels import Kernel, checked
from .networks import NETWORKS, scale_of
from .row import begun, result
from .timing import SCREEN_S, LoopTimer, Timer, optimised, raced

MAGIC = b"tuner-cuda-model-1\n"
# Of the largest element, by which a candidate may differ from the default schedule: both
# round to 16 bits.
ALIKE = 0.01


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2"""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("sizes", ctypes.c_uint * 7),  # grid, block, shared bytes
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


class Program:
    """The steps of a call: which kernel, on which buffers, after which steps."""

    def __init__(self, data: bytes) -> None:
        start = len(MAGIC) + 8
        length = int.from_bytes(data[len(MAGIC) : start], "little")
        head = json.loads(data[start : start + length])
        self.steps: list[dict[str, Any]] = head["steps"]
        self.arguments: list[list[Any]] = [*head["inputs"], *head["outputs"]]
        self.memory_bytes = int(head["memory_bytes"])
        self.constants = data[len(data) - head["constants"] :]


class Network:
    """The program with a kernel for each of its numbers, as one CUDA graph.

    Steps that wait for none of each other are branches of the graph.
    """

    def __init__(
        self,
        torch: Any,
        driver: Any,
        program: Program,
        kernels: dict[int, Kernel],
        given: list[Any],
    ) -> None:
        """`given`: inputs, then outputs."""
        self._torch, self._driver, self._given = torch, driver, given
        self._memory = torch.zeros(program.memory_bytes, dtype=torch.uint8, device="cuda")
        if program.constants:
            constants = torch.frombuffer(bytearray(program.constants), dtype=torch.uint8)
            self._memory[: len(program.constants)] = constants
        self._kept: list[Any] = []
        graph, ended = ctypes.c_void_p(), list[Any]()
        checked(driver, driver.cuGraphCreate(ctypes.byref(graph), 0))
        for step in program.steps:
            kernel = kernels[step["kernel"]]
            named = [*kernel.head["inputs"], *kernel.head["outputs"]]
            tensors = [self._tensor(*both) for both in zip(step["places"], named, strict=True)]
            count = len(kernel.head["inputs"])
            after = [ended[number] for number in step["after"]]
            for launch in kernel.launches(tensors[:count], tensors[count:]):
                self._kept.append(launch)
                after = [self._node(graph, after, launch)]
            ended.append(after[0])
        self._executable = ctypes.c_void_p()
        checked(
            driver,
            driver.cuGraphInstantiateWithFlags(
                ctypes.byref(self._executable), graph, ctypes.c_ulonglong(0)
            ),
        )

    def _tensor(self, place: list[Any], named: dict[str, Any]) -> Any:
        """A buffer of a step, in an argument or in the network's memory."""
        kind, position, offset = place
        dtype = getattr(self._torch, named["dtype"])
        whole = self._memory if kind == "memory" else self._given[position].view(-1)
        count, size = 1, self._torch.empty(0, dtype=dtype).element_size()
        for extent in named["shape"]:
            count *= extent
        raw = whole.view(self._torch.uint8)[offset : offset + count * size]
        return raw.view(dtype).view(named["shape"])

    def _node(self, graph: Any, after: list[Any], launch: tuple[Any, ...]) -> Any:
        function, sizes, parameters, _ = launch
        node = ctypes.c_void_p()
        described = KernelNode(
            function, (ctypes.c_uint * 7)(*sizes), ctypes.addressof(parameters), None, None, None
        )
        waits = (ctypes.c_void_p * max(len(after), 1))(*after)
        checked(
            self._driver,
            self._driver.cuGraphAddKernelNode_v2(
                ctypes.byref(node),
                graph,
                waits,
                ctypes.c_size_t(len(after)),
                ctypes.byref(described),
            ),
        )
        return node

    def __call__(self) -> None:
        stream = ctypes.c_void_p(self._torch.cuda.current_stream().cuda_stream)
        checked(self._driver, self._driver.cuGraphLaunch(self._executable, stream))


def run(
    torch: Any, driver: Any, folder: Path, race: dict[str, Any], arch: str
) -> Iterator[dict[str, Any]]:
    """The race's row against PyTorch's own kernels in a graph, then against torch.compile."""
    dtype = getattr(torch, race["dtype"])
    network = NETWORKS[race["network"]](torch, race["batch"], **race["sizes"])
    x = torch.randn(network.input, device="cuda").to(dtype)
    weights = [
        (torch.randn(shape, device="cuda") * scale_of(shape)).to(dtype) for shape in network.weights
    ]
    program = Program((folder / race["program"]).read_bytes())
    chosen, faults = fastest(torch, driver, folder, race["built"][arch])
    row = begun(race, arch, faults)
    row["config"] = {number: candidate["config"] for number, (candidate, _) in chosen.items()}
    with torch.no_grad():
        want = network.written_out(x.float(), *(weight.float() for weight in weights))
        out = torch.zeros(want.shape, dtype=dtype, device="cuda")
        kernels = {number: kernel for number, (_, kernel) in chosen.items()}
        own = Network(torch, driver, program, kernels, [x, *weights, out])
        library = library_of(torch, network, weights)
        rivals = {"torch in a CUDA graph": captured(torch, library, x)}
        yield row | against(torch, race, arch, own, out, want, rivals)
        # The third call is the first that replays.
        fast = optimised(torch, library, x, mode="max-autotune", calls=3)
        if fast is not None:
            rivals["torch.compile max-autotune"] = fast
            yield row | against(torch, race, arch, own, out, want, rivals)


def fastest(
    torch: Any, driver: Any, folder: Path, built: list[dict[str, Any]]
) -> tuple[dict[int, tuple[dict[str, Any], Kernel]], list[str]]:
    """The fastest candidate of each kernel that agrees with the first, and the others' faults.

    Each on random inputs, alone.
    """
    best: dict[int, tuple[float, dict[str, Any], Kernel]] = {}
    inputs: dict[int, list[Any]] = {}
    expected: dict[int, list[Any]] = {}
    faults = []
    for candidate in built:
        number = candidate["kernel"]
        kernel = Kernel(torch, driver, (folder / candidate["file"]).read_bytes())
        if number not in inputs:
            inputs[number] = [random(torch, entry) for entry in kernel.head["inputs"]]
        outputs = [unwritten(torch, entry) for entry in kernel.head["outputs"]]
        call = kernel.bind(inputs[number], outputs)
        call()
        torch.cuda.synchronize()
        first = expected.setdefault(number, outputs)
        if not all(alike(*pair) for pair in zip(outputs, first, strict=True)):
            faults.append(f"{candidate['file']} differs from the default schedule")
            continue
        timer = Timer(torch, call, SCREEN_S)
        seconds = statistics.median(timer.sample() for _ in range(3))
        if number not in best or seconds < best[number][0]:
            best[number] = (seconds, candidate, kernel)
    return {number: entry[1:] for number, entry in best.items()}, faults


def random(torch: Any, entry: dict[str, Any]) -> Any:
    return torch.randn(entry["shape"], device="cuda").to(getattr(torch, entry["dtype"]))


def unwritten(torch: Any, entry: dict[str, Any]) -> Any:
    dtype = getattr(torch, entry["dtype"])
    return torch.full(entry["shape"], float("nan"), device="cuda", dtype=dtype)


def alike(output: Any, expected: Any) -> bool:
    """Whether no element differs by more than so much of the largest; none is a NaN."""
    off, most = (output.float() - expected.float()).abs().max(), expected.float().abs().max()
    return bool(off <= ALIKE * most)


def library_of(torch: Any, network: Any, weights: list[Any]) -> Any:
    """The network as PyTorch's users have it: weights are parameters, those of
    convolutions have channels last."""

    class Module(torch.nn.Module):  # type: ignore[misc]  # PyTorch is Any to mypy
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.ParameterList([laid_out(torch, each) for each in weights])

        def forward(self, x: Any) -> Any:
            return network.call(x, *self.weights)

    return Module()


def laid_out(torch: Any, weight: Any) -> Any:
    if weight.dim() != 4:
        return weight
    last = weight.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    return last.permute(2, 3, 1, 0)


def captured(torch: Any, library: Any, x: Any) -> Any:
    """Replays the library's calls as one graph."""
    torch.backends.cudnn.benchmark = True
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            library(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        library(x)
    return graph.replay


def against(
    torch: Any,
    race: dict[str, Any],
    arch: str,
    own: Network,
    out: Any,
    want: Any,
    rivals: dict[str, Any],
) -> dict[str, Any]:
    """What a race of the network against these rivals adds to its row."""
    out.fill_(float("nan"))
    times = raced(torch, {"kernel": own, **rivals}, LoopTimer)
    error = float((out.float() - want).abs().max() / want.abs().max())
    if not error <= race["bound"]:
        return {"verdict": f"wrong: error {error:.3g}, {race['bound']:.3g} is allowed"}
    return result(race, arch, times["kernel"], {name: times[name] for name in rivals}, error)
