"""Regions by their libraries: right for every layout that tensors have."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tests.support.torch_libraries import region_library  # noqa: E402
from tests.support.torch_regions import evaluated  # noqa: E402
from tuner.models.library.region_cache import RegionCache  # noqa: E402
from tuner.runtime.loader import LibraryError  # noqa: E402
from tuner.torch.backend import Backend  # noqa: E402
from tuner.torch.compiling import compiled  # noqa: E402
from tuner.torch.layouts import Layouts, layouts_of  # noqa: E402
from tuner.torch.native import native  # noqa: E402
from tuner.torch.notices import TunerWarning  # noqa: E402
from tuner.torch.options import options_from  # noqa: E402
from tuner.torch.partition import Region, partition  # noqa: E402
from tuner.torch.tuning import key_of  # noqa: E402


def unused(message: str) -> Any:
    raise AssertionError(message)


def only_region(function: Any, *inputs: Any) -> Region:
    (region,) = partition(make_fx(function, tracing_mode="fake")(*inputs).graph).regions
    return region


@pytest.mark.slow
def test_tensors_are_taken_as_they_lie(tmp_path: Path) -> None:
    """Strides of a permuted tensor as they are; other strides and alignments by copies."""

    def function(x: Any, y: Any) -> Any:
        return (x * 2 + y, (x - y).sum(1))

    x = torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last)
    y = torch.randn(2, 4, 3, 3)
    region = only_region(function, x, y)
    path = tmp_path / "region.so"
    path.write_bytes(region_library(region.graph))
    call = native(path, region.packed, layouts_of(region), unused)
    shifted = torch.randn(73)[1:].reshape(2, 4, 3, 3)
    assert shifted.data_ptr() % 64
    for other in (y, x, shifted, y[:, :1].expand(2, 4, 3, 3), y.flip(1)):
        results = call(x, other)
        for got, right in zip(results, function(x, other), strict=True):
            torch.testing.assert_close(got, right)
        assert results[0].stride() == function(x, y)[0].stride()
    with ThreadPoolExecutor(4) as threads:
        for got, right in zip(
            threads.map(lambda n: call(x * n, y)[0], range(200)),
            [function(x * n, y)[0] for n in range(200)],
            strict=True,
        ):
            torch.testing.assert_close(got, right)
    failing = native(path, region.packed, layouts_of(region), lambda message: lambda *_: message)
    assert "status 10" in failing(x) and "status 10" in failing(x, 3)  # no two tensors
    assert "status 10" in failing(x.half(), y) and "status 10" in failing(x.to(torch.int32), y)
    with pytest.raises(LibraryError, match="of another region"):
        native(path, only_region(lambda x: x * 2, x).packed, Layouts(inputs=(), outputs=()), unused)


@pytest.mark.slow
@pytest.mark.parametrize("cache_bytes", [None, 1 << 17])
def test_results_are_written_over_the_inputs_that_they_replace(
    tmp_path: Path, cache_bytes: int | None
) -> None:
    """Where these begin at no multiple of 64 bytes or share memory, the results are new.

    Also where the region is computed in parts for a small cache.
    """

    def step(x: Any, y: Any) -> None:
        speed = x.tanh() + y * 0.5
        place = x - speed
        y.copy_(speed)
        x.copy_(place)

    def apart(x: Any, y: Any) -> Any:
        own = (x.clone(), y.clone())
        step(*own)
        return own

    x, y = torch.randn(96, 128), torch.randn(96, 128)
    region = only_region(step, x, y)
    assert {number for _, number in region.replaced} == {0, 1}
    path = tmp_path / "region.so"
    path.write_bytes(region_library(region.graph, cache_bytes))
    call = native(path, region.packed, layouts_of(region), unused)

    def called(x: Any, y: Any) -> tuple[list[Any], list[bool]]:
        """What replaces both, and whether it lies over them."""
        results, places = call(x, y), dict((b, a) for a, b in region.replaced)
        made = [results[places[number]] for number in range(2)]
        return made, [one is other for one, other in zip(made, (x, y), strict=True)]

    for _ in range(3):
        right = apart(x, y)
        made, over = called(x, y)
        assert over == [True, True]
        torch.testing.assert_close((x, y), right)
        torch.testing.assert_close(tuple(made), right)
    shifted, whole = torch.randn(12289)[1:].reshape(96, 128), torch.randn(12304)
    assert shifted.data_ptr() % 64
    overlapping = (whole[:12288].reshape(96, 128), whole[16:].reshape(96, 128))
    for given in ((shifted, y), (x, x), overlapping, (x.T.contiguous().T, y)):
        before, right = tuple(tensor.clone() for tensor in given), apart(*given)
        made, over = called(*given)
        assert not any(over)
        torch.testing.assert_close(tuple(made), right)
        torch.testing.assert_close(given, before)
    own = [(x * n, y * n) for n in range(1, 100)]
    rights = [apart(*pair) for pair in own]
    with ThreadPoolExecutor(4) as threads:
        assert all(over == [True, True] for _, over in threads.map(lambda pair: called(*pair), own))
    torch.testing.assert_close(own, rights)


@pytest.mark.slow
def test_a_kept_library_is_used_and_a_damaged_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a second process finds it, which has no compiler."""
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path))
    settings = options_from("tune-off", {"threads": 1}).settings
    cache = RegionCache(folder=tmp_path / "torch")

    def function(x: Any) -> Any:
        return x.tanh() * 3

    x = torch.randn(5, 7)
    kept = []

    def keep(region: Region, eager: Any) -> Any:
        key = key_of(region.packed, settings)
        kept.append(cache.keep(key, region_library(region.graph)))
        return evaluated(region, eager)

    torch.compile(function, backend=lambda module, inputs: compiled(module, inputs, keep))(x)
    for damaged in (False, True):
        if damaged:
            # Another file of the name: the first one is mapped into this process.
            kept[0].unlink()
            kept[0].write_bytes(b"no library")
        torch._dynamo.reset()
        backend = Backend()
        call = torch.compile(function, backend=backend, options={"tune": "off", "threads": 1})
        if damaged:
            with pytest.warns(TunerWarning, match="is damaged"):
                torch.testing.assert_close(call(x), function(x))
            assert not kept[0].exists()
        torch.testing.assert_close(call(x), function(x))
        torch.testing.assert_close(call(x), function(x))
