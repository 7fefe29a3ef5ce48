"""Settings: which source wins, what the origin says, and that a bad value names itself,
its limit and where it came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.settings import BUILT_IN, Settings, load_settings


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's machine without settings: own home, own working directory, no TUNER_* variable."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"TUNER_{name.upper()}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    work = tmp_path / "project" / "below"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    return tmp_path


def test_built_in_values_have_their_origin_and_the_database_lies_under_the_data_folder(
    empty_machine: Path,
) -> None:
    loaded = load_settings()
    assert set(loaded.origins.values()) == {BUILT_IN}
    assert loaded.values.db == f"sqlite:///{empty_machine}/data/tuner/tuner.db"
    assert loaded.values.artifacts == empty_machine / "data/tuner/artifacts"


def test_a_model_has_less_time_unless_somebody_sets_some(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_settings()
    assert loaded.model_seconds < 300 < loaded.values.seconds
    assert load_settings({"seconds": 900.0}).model_seconds == 900
    monkeypatch.setenv("TUNER_SECONDS", "700")
    assert load_settings().model_seconds == 700


def test_data_dir_moves_the_database_and_the_artifacts(empty_machine: Path) -> None:
    values = load_settings({"data_dir": empty_machine / "elsewhere"}).values
    assert values.db == f"sqlite:///{empty_machine}/elsewhere/tuner.db"
    assert values.artifacts == empty_machine / "elsewhere/artifacts"


def test_each_source_wins_over_the_next(
    empty_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = empty_machine / "config" / "tuner" / "tuner.toml"
    user.parent.mkdir(parents=True)
    user.write_text("trials = 11\nseed = 12\nthreads = 3\nseconds = 14\n")
    project = empty_machine / "project" / "tuner.toml"
    project.write_text("trials = 21\nseed = 22\nthreads = 2\n")
    monkeypatch.setenv("TUNER_TRIALS", "31")
    monkeypatch.setenv("TUNER_SEED", "32")
    loaded = load_settings({"trials": 41, "threads": None})
    values, origins = loaded.values, loaded.origins
    assert (values.trials, values.seed, values.threads, values.seconds) == (41, 32, 2, 14.0)
    assert origins["trials"] == "flag --trials"
    assert origins["seed"] == "environment TUNER_SEED"
    assert origins["threads"] == str(project)
    assert origins["seconds"] == str(user)
    assert origins["strategy"] == BUILT_IN
    assert loaded.files == (project, user)


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_TRIALS", "")
    assert load_settings().origins["trials"] == BUILT_IN


def test_a_bad_flag_names_setting_value_limit_and_flag() -> None:
    with pytest.raises(
        UsageError, match=r"trials is 0 \(flag --trials\).*greater than or equal to 1"
    ):
        load_settings({"trials": 0})


def test_a_bad_argument_is_named_as_the_caller_names_it() -> None:
    with pytest.raises(UsageError, match=r"build_timeout_s is 0\.0 \(argument build_timeout_s\)"):
        load_settings({"build_timeout_s": 0.0}, given_as="argument {}")


def test_a_bad_variable_names_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_STRATEGY", "luck")
    with pytest.raises(
        UsageError, match=r"strategy is 'luck' \(environment TUNER_STRATEGY\).*'annealing'.*'grid'"
    ):
        load_settings()


def test_a_bad_value_in_a_file_names_the_file(empty_machine: Path) -> None:
    path = empty_machine / "project" / "tuner.toml"
    path.write_text("seconds = 0.5\n")
    with pytest.raises(UsageError, match=f"seconds is 0.5 .{path}"):
        load_settings()


def test_an_unknown_name_in_a_file_is_refused_with_the_nearest(empty_machine: Path) -> None:
    (empty_machine / "project" / "tuner.toml").write_text("trails = 5\n")
    with pytest.raises(UsageError, match=r"'trails', which is no setting; did you mean 'trials'\?"):
        load_settings()


def test_a_file_that_is_no_toml_is_refused_with_its_position(empty_machine: Path) -> None:
    (empty_machine / "project" / "tuner.toml").write_text("trials = \n")
    with pytest.raises(UsageError, match=r"tuner\.toml cannot be read: .*line 1"):
        load_settings()


@pytest.mark.parametrize("name", ["data_dir", "artifacts", "microarchitectures"])
@pytest.mark.parametrize(
    ("path", "says"), [("~nobody-here/x", "~nobody-here is nobody's home"), ("a\0b", "NUL")]
)
def test_a_path_that_is_none_is_refused(name: str, path: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"setting {name} is .*{says}"):
        load_settings({name: path})


def test_a_user_without_a_home_names_the_folders(
    empty_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    assert load_settings().files == ()
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert load_settings({"data_dir": empty_machine}).values.data_dir == empty_machine
    monkeypatch.delenv("XDG_DATA_HOME")
    with pytest.raises(UsageError, match="set HOME, or XDG_DATA_HOME to a folder"):
        load_settings()


def test_files_that_cannot_be_reached_are_none(
    empty_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a folder of another user's, whose parent may not be entered."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(empty_machine / ("x" * 300)))
    assert load_settings().files == ()


def test_a_file_nested_deeper_than_a_parser_goes_is_refused(empty_machine: Path) -> None:
    (empty_machine / "project" / "tuner.toml").write_text("trials = " + "[" * 100_000)
    with pytest.raises(UsageError, match=r"tuner\.toml cannot be read"):
        load_settings()


def test_every_setting_has_a_description() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []
