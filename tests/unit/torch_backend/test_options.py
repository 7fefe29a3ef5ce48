"""The backend's options: what is valid, and the error that names it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tuner.errors import UsageError  # noqa: E402
from tuner.torch.backend import Backend  # noqa: E402
from tuner.torch.options import options_from  # noqa: E402


def test_the_default_tunes_in_the_background_with_the_threads_of_pytorch() -> None:
    options = options_from(None, None)
    assert options.tune == "background"
    assert options.settings.threads == torch.get_num_threads()


@pytest.mark.parametrize(
    ("mode", "given", "tune"),
    [
        ("tune-now", None, "now"),
        (None, {"mode": "tune-off"}, "off"),
        (None, {"tune": "background"}, "background"),
    ],
)
def test_a_mode_is_short_for_when_to_tune(mode: Any, given: Any, tune: str) -> None:
    assert options_from(mode, given).tune == tune


def test_options_become_settings() -> None:
    given = {"seconds": 5, "trials": 7, "threads": 1, "numerics": "fast", "max_error": 0.01}
    settings = options_from(None, given).settings
    assert settings.model_dump(include=set(given)) == given


@pytest.mark.parametrize(
    ("mode", "given", "message"),
    [
        (
            None,
            {"treads": 2},
            r"'treads' is no option of the backend tuner; valid are tune, mode, ",
        ),
        (None, {"freeze": 1}, r"freeze is 1; valid are True and False"),
        (None, {"tune": "later"}, r"tune is 'later'; valid are now, background, off"),
        ("fast", None, r"mode is 'fast'; valid are tune-now, tune-background, tune-off"),
        ("tune-now", {"tune": "off"}, r"tune is 'off' and mode is 'tune-now'; give one of them"),
        (None, {"trials": 0}, r"setting trials is 0 \(option trials\); it must be greater than"),
        (None, {"numerics": "loose"}, r"setting numerics is 'loose'"),
    ],
)
def test_bad_options_are_refused(mode: Any, given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options_from(mode, given)


def test_the_error_reaches_who_compiles() -> None:
    compiled = torch.compile(lambda x: x * 2, backend=Backend(), options={"speed": 9})
    with pytest.raises(Exception, match="'speed' is no option of the backend tuner"):
        compiled(torch.ones(2))
