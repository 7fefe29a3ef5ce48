"""Commands asked of a real service: the same output as on its database, and what only a
service can answer with."""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import os
import signal
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from tests.support.command import Tuner
from tests.support.database_samples import sample_target
from tests.support.live_service import LiveService, options_for, serving, wait_for
from tests.support.promotions import promote_archive
from tests.support.relu_kernel import SPEC, relu_kernel
from tuner.db import events, jobs, leases, targets, trials
from tuner.db.engine import Session
from tuner.db.jobs import Job
from tuner.db.leases import Lease
from tuner.export.archive import export_archive
from tuner.export.signature import Signer, signer_at
from tuner.measure.outcome import Conditions, Failed, FailureKind, Timed, Trial
from tuner.workload.spec import parse_spec

MATMUL = "matmul:M=16,N=8,K=4"
NOTATION = (
    "kernel mlp(A: f32[M, K], B: f32[K, N]) -> (C: f32[M, N]) {\n  C[i, j] += A[i, k] * B[k, j]\n}"
)


@pytest.fixture(scope="module")
def service(service_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder = tmp_path_factory.mktemp("service")
    # The service runs in this process, and its log would mix with what the command prints.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with serving(options_for(service_url, folder, event_poll_s=0.05)) as live:
        yield live
    structlog.reset_defaults()


@pytest.fixture
def remote(tuner: Tuner, service: LiveService, monkeypatch: pytest.MonkeyPatch) -> Tuner:
    """The command of a user with a service and a key of its own."""
    monkeypatch.setenv("TUNER_SERVER", service.url)
    monkeypatch.setenv("TUNER_TOKEN", service.key("submit"))
    return tuner


def measure(service: LiveService, job: str) -> Lease:
    """Three trials as an orchestrator records them: the default, a faster one, a failure."""
    lease = service.claim(job)
    conditions = Conditions(lane="cpu:1", isolation="none")
    with service.database.write() as session:
        leases.note_task(session, lease, 0, space_size=1234)
        for number, seconds in ((0, 2e-3), (1, 1e-3)):
            outcome = Timed(
                samples_s=(seconds,),
                max_rel_error=1e-7,
                conditions=conditions,
                artifact=f"{number:064x}",
            )
            trials.record(
                session,
                lease,
                Trial(number=number, config={"tile": (4, 8)} if number else {}, outcome=outcome),
            )
            events.append(
                session,
                job,
                "trial",
                {"task": 0, "number": number, "outcome": "ok", "median_s": seconds},
            )
            events.append(
                session,
                job,
                "best",
                {"task": 0, "number": number, "median_s": seconds, "previous_s": None},
            )
        failure = Failed(kind=FailureKind.BUILD_TIMEOUT, message="not built within 30 s")
        trials.record(session, lease, Trial(number=2, config={"tile": (8, 8)}, outcome=failure))
        events.append(
            session,
            job,
            "trial",
            {"task": 0, "number": 2, "outcome": "build_timeout", "median_s": None},
        )
    return lease


def finish(
    service: LiveService, lease: Lease, state: str = "succeeded", *, kernel: str | None = None
) -> None:
    with service.database.write() as session:
        leases.note_task(
            session, lease, 0, state=None if state == "cancelled" else state, kernel=kernel
        )
        leases.finish(session, lease, state, error="it broke" if state == "failed" else None)


def promoted(
    service: LiveService, archive: bytes, *, signature: str | None, spec: str = SPEC
) -> str:
    """The id of a new promoted kernel whose export is `archive`."""
    digest = hashlib.sha256(archive).hexdigest()
    return promote_archive(
        service, parse_spec(spec), archive, signature=signature, schedule={"export": digest}
    )


def signed(signer: Signer, archive: bytes) -> str:
    return base64.b64encode(signer.sign(hashlib.sha256(archive).hexdigest().encode())).decode()


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return signer_at(tmp_path_factory.mktemp("key") / "signing.key")


@pytest.fixture(scope="module")
def archive(signer: Signer) -> bytes:
    return export_archive([relu_kernel()], "relu", signer=signer)


def test_a_job_is_submitted_listed_shown_cancelled_and_resumed(
    service: LiveService, remote: Tuner, tmp_path: Path
) -> None:
    Path("mlp.kernel").write_text(NOTATION)
    shapes = ("--notation", "mlp.kernel", "--shapes", "M=16,N=8,K=4")
    called = remote(
        "submit",
        MATMUL.replace("16", "17") + ",const=B,numerics=fast",
        *shapes,
        "--trials",
        "4",
        "--priority",
        "3",
    )
    job = called.out.strip()
    assert called.code == 0 and f"tuner watch {job}" in called.err
    shown = remote("show", "last", "--json").document
    assert (shown["id"], shown["state"], shown["trials"], shown["priority"]) == (
        job,
        "queued",
        4,
        3,
    )
    specs = [task["workload"]["spec"] for task in shown["tasks"]]
    assert "const=B" in specs[0] and "numerics=fast" in specs[0] and len(specs) == 2
    assert [
        item["id"]
        for item in remote("jobs", "--json", "--state", "queued", "--state", "running").document[
            "items"
        ]
    ] == [job]
    assert (
        job in remote("jobs").out
        and remote("jobs", "--json", "--state", "failed").document["items"] == []
    )
    assert remote("cancel", job, "--json").document["state"] == "cancelled"
    assert remote("trials", job, "--json").document == {"items": [], "next": None}


def test_a_service_and_its_database_are_printed_alike(service: LiveService, remote: Tuner) -> None:
    job = remote("submit", "matmul:M=18,N=8,K=4", "--trials", "3").out.strip()
    finish(service, measure(service, job))
    on_the_database = ("--db", service.options.database_url)
    failed = ("trials", job, "--outcome", "failed")
    for arguments in (
        ("show", job),
        ("trials", job),
        failed,
        ("watch", job),
        ("show", job, "--plot"),
    ):
        for form in ((), ("--json",)):
            there, here = remote(*arguments, *form), remote(*arguments, *form, *on_the_database)
            assert (there.code, there.out) == (here.code, here.out) and there.code == 0
    assert remote("best", "--json").document == remote("best", "--json", *on_the_database).document
    document = remote("watch", job, "--json").document
    assert document["results"][0]["trials"] == {"total": 3, "ok": 2, "failed": {"build_timeout": 1}}
    assert document["results"][0]["space_size"] == 1234


def test_a_job_is_tuned_followed_and_summed_up(service: LiveService, remote: Tuner) -> None:
    """`tune` sees what an orchestrator records meanwhile, and ends with the job."""
    with service.database.read() as session:
        before = {job.id for job in jobs_of(session)}

    def orchestrate() -> None:
        job = wait_for_job(service, before)
        time.sleep(0.3)
        finish(service, measure(service, job))

    worker = threading.Thread(target=orchestrate)
    worker.start()
    called = remote("tune", "matmul:M=19,N=8,K=4", "--trials", "3", "--json")
    worker.join(timeout=60)
    assert called.code == 0, called.err
    assert called.document["results"][0]["workload"]["params"]["M"] == 19
    assert (
        "1,234 configs, 3 trials" in called.err
        and "1.00 ms" in called.err
        and "build_timeout 1" in called.err
    )


@pytest.mark.parametrize(("state", "code"), [("failed", 5), ("cancelled", 3)])
def test_how_a_job_ended_is_the_exit_code(
    service: LiveService, remote: Tuner, state: str, code: int
) -> None:
    job = remote("submit", f"matmul:M={20 + code},N=8,K=4", "--trials", "3").out.strip()
    lease = measure(service, job)
    finish(service, lease, state)
    called = remote("watch", job)
    assert called.code == code and f"tuner resume {job}" in called.err


def test_ctrl_c_cancels_a_job_tuned_there_and_leaves_one_that_is_watched(
    service: LiveService, remote: Tuner
) -> None:
    def interrupt() -> None:
        wait_for_streams(service, 1)
        os.kill(os.getpid(), signal.SIGINT)

    wait_for_streams(service, 0)
    pressed = threading.Thread(target=interrupt)
    pressed.start()
    called = remote("tune", "matmul:M=30,N=8,K=4")
    pressed.join(timeout=60)
    assert called.code == 3 and "stopping" in called.err
    job = remote("submit", "matmul:M=31,N=8,K=4").out.strip()
    wait_for_streams(service, 0)
    pressed = threading.Thread(target=interrupt)
    pressed.start()
    called = remote("watch", job)
    pressed.join(timeout=60)
    assert called.code == 130 and f"job {job} goes on" in called.err
    assert remote("show", job, "--json").document["state"] == "queued"


def test_a_kernel_is_downloaded_checked_and_put_in_place(
    service: LiveService,
    remote: Tuner,
    signer: Signer,
    archive: bytes,
    tmp_path: Path,
) -> None:
    kernel = promoted(service, archive, signature=signed(signer, archive))
    called = remote("export", kernel, "-o", "kit", "--public-key", signer.public_key, "--json")
    assert called.code == 0, called.err
    assert called.document["library"] == "lib/librelu.so" and Path("kit/lib/librelu.so").is_file()
    assert called.document["public_key"] == signer.public_key
    assert (
        f"signed by {signer.public_key}" in remote("export", kernel, "-o", "kit").out
    )  # over an earlier export
    foreign = remote("export", kernel, "-o", "other", "--public-key", "ed25519:" + "0" * 64)
    assert foreign.code == 1 and "not by" in foreign.err and not Path("other").exists()
    named = remote("export", kernel, "-o", "other", "--name", "mine")
    assert named.code == 2 and "leave out --name" in named.err
    linked = remote("export", kernel, "-o", "other", "--for", "jax")
    assert linked.code == 2 and "--for jax: a downloaded library is linked" in linked.err
    other = promoted(
        service, archive, signature=signed(signer, archive), spec="elementwise:M=8,N=256,act=relu"
    )
    both = remote("export", kernel, other, "-o", "both", "--json").document
    assert [Path(library["directory"]).name for library in both["libraries"]] == [kernel, other]


def altered(
    archive: bytes, change: Callable[[tarfile.TarInfo, bytes], tuple[tarfile.TarInfo, bytes] | None]
) -> bytes:
    """The archive with each member changed, or left out for None."""
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as old,
        tarfile.open(fileobj=buffer, mode="w:gz") as new,
    ):
        for member in old:
            file = old.extractfile(member)
            assert file is not None
            changed = change(member, file.read())
            if changed is not None:
                entry = tarfile.TarInfo(changed[0].name)
                entry.size, entry.type, entry.linkname = (
                    len(changed[1]),
                    changed[0].type,
                    changed[0].linkname,
                )
                new.addfile(entry, io.BytesIO(changed[1]))
    return buffer.getvalue()


def library_swapped(member: tarfile.TarInfo, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
    return member, content[:-1] + b"!" if member.name.endswith(".so") else content


def outside(member: tarfile.TarInfo, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
    if member.name.endswith("manifest.json"):
        member.name = "relu/../../manifest.json"
    return member, content


def linked(member: tarfile.TarInfo, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
    if member.name.endswith(".so"):
        member.type, member.linkname, content = tarfile.SYMTYPE, "/etc/passwd", b""
    return member, content


def unsigned(member: tarfile.TarInfo, content: bytes) -> tuple[tarfile.TarInfo, bytes] | None:
    return None if member.name.endswith(".sig") else (member, content)


@pytest.mark.parametrize(("change", "says"), [
    (library_swapped, "was altered"), (outside, "which no library has"), (linked,
    "which no library has"),
    (unsigned, "signed by"),
])  # fmt: skip
def test_an_altered_archive_is_refused_and_nothing_is_written(
    service: LiveService,
    remote: Tuner,
    signer: Signer,
    archive: bytes,
    tmp_path: Path,
    change: Callable[[tarfile.TarInfo, bytes], tuple[tarfile.TarInfo, bytes] | None],
    says: str,
) -> None:
    forged = altered(archive, change)
    kernel = promoted(service, forged, signature=signed(signer, forged))
    called = remote("export", kernel, "-o", "kit")
    assert called.code == 1 and says in called.err and called.err.count("\n") == 1
    assert not Path("kit").exists()


def test_an_archive_that_the_service_did_not_sign_is_refused(
    service: LiveService, remote: Tuner, archive: bytes, tmp_path: Path
) -> None:
    stranger = signer_at(tmp_path / "stranger.key")
    kernel = promoted(service, archive + b"\x00" * 16, signature=signed(stranger, archive))
    called = remote("export", kernel, "-o", "kit")
    assert called.code == 1 and "not signed by" in called.err and not Path("kit").exists()


def test_a_kernel_is_rolled_back_by_an_administrator_only(
    service: LiveService,
    remote: Tuner,
    archive: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = "elementwise:M=8,N=512,act=relu"
    first, second = (
        promoted(service, archive + b"\x00" * count, signature=None, spec=spec) for count in (1, 2)
    )
    assert remote("best", spec, "--json").document["items"][0]["id"] == second
    refused = remote("rollback", second)
    assert refused.code == 2 and "admin" in refused.err
    monkeypatch.setenv("TUNER_TOKEN", service.key("admin"))
    assert remote("rollback", second, "--json").document["promoted"]["id"] == first
    assert remote("best", spec, "--json").document["items"][0]["id"] == first
    again = remote("rollback", second)
    assert again.code == 2 and "rolled back" in again.err


def test_the_fleet_is_asked_too(service: LiveService, remote: Tuner) -> None:
    on_the_database = ("--db", service.options.database_url)
    assert remote("health", "--json").document["status"] == "ok"
    assert remote("ops", "--json").document == remote("ops", "--json", *on_the_database).document
    assert remote("ops", "matmul").out == remote("ops", "matmul", *on_the_database).out
    with service.database.read() as session:
        machines = [target.name for target in targets.list_all(session)]
    assert machines[0] == sample_target().name
    shown = remote("space", MATMUL, "--json").document
    assert shown["target"]["name"] == machines[0] and shown["size"] > 1
    assert remote("workers", "--json").document["items"] == []


def test_what_a_service_refuses_is_one_clear_line(
    service: LiveService, remote: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, says in (
        (("show", "j_nothing"), "j_nothing"),
        (("show", "last"), "no job yet"),
        (("submit", "matmul:M=0,N=8,K=4"), "M"),
        (("submit", MATMUL, "--target", "abacus"), "abacus"),
        (("export", "k_nothing", "-o", "kit"), "k_nothing"),
        (("jobs", "--state", "lost"), "state"),
    ):
        called = remote(*arguments)
        assert (
            called.code == 2
            and says in called.err
            and called.out == ""
            and "Traceback" not in called.err
        )
    monkeypatch.setenv("TUNER_TOKEN", "tk_abc_def")
    assert "unknown, expired or revoked" in remote("jobs").err
    monkeypatch.delenv("TUNER_TOKEN")
    assert "Bearer" in remote("jobs").err


@pytest.mark.parametrize("arguments", [
    ("serve",), ("worker",), ("doctor",), ("verify", "kit"), ("replay", "table"), ("bench",
    MATMUL), ("ci",), ("report", "last"),
    ("db", "check"), ("db", "upgrade"), ("db", "backup", "file"), ("db", "restore", "file"),
    ("keys", "list"),
])  # fmt: skip
def test_commands_that_cannot_be_remote_say_so(tuner: Tuner, arguments: tuple[str, ...]) -> None:
    called = tuner(*arguments, "--server", "http://127.0.0.1:9")
    assert called.code == 2 and "--server" in called.err and f"tuner {arguments[0]}" in called.err
    assert called.err.count("\n") == 1 and called.out == ""


def test_a_service_of_the_environment_is_not_mistaken_for_the_database(
    tuner: Tuner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUNER_SERVER", "http://127.0.0.1:9")
    refused = tuner("db", "check")
    assert refused.code == 2 and "environment TUNER_SERVER" in refused.err and "--db" in refused.err
    assert (
        tuner("jobs", "--db", f"sqlite:///{tmp_path}/own.db").code == 2
    )  # there is none, and it was not asked of the service
    both = tuner("jobs", "--db", "sqlite:///x.db", "--server", "http://127.0.0.1:9")
    assert both.code == 2 and "one of the two" in both.err
    monkeypatch.setenv("TUNER_SERVER", "ftp://somewhere")
    assert "must be a URL" in tuner("jobs").err


@pytest.mark.slow  # it is asked again and again
def test_a_service_that_is_not_there_is_named(tuner: Tuner) -> None:
    called = tuner("health", "--server", "http://127.0.0.1:9")
    assert called.code == 1 and "http://127.0.0.1:9" in called.err and called.err.count("\n") == 1


def test_the_token_is_never_shown(tuner: Tuner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_TOKEN", "tk_abc_secret")
    for form in ((), ("--json",)):
        called = tuner("config", "show", "--origin", *form)
        assert called.code == 0 and "tk_abc" not in called.out and "TUNER_TOKEN" in called.out


def jobs_of(session: Session) -> tuple[Job, ...]:
    return jobs.list_page(session, limit=1000).items


def wait_for_streams(service: LiveService, count: int) -> None:
    """Waits until so many clients follow events of jobs."""
    with service.http(service.key("read")) as http:
        wait_for(lambda: f"\ntuner_event_streams {count}.0\n" in http.get("/metrics").text)


def wait_for_job(service: LiveService, before: set[str]) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with service.database.read() as session:
            fresh = [job.id for job in jobs_of(session) if job.id not in before]
        if fresh:
            return fresh[0]
        time.sleep(0.05)
    raise AssertionError("no job was submitted")
