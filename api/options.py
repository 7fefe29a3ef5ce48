"""The options of the service, as one record for `create_app` and `serve`.

Nothing here reads the environment: the command line fills the record and decides the
precedence of flags, environment and files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from tuner.errors import UsageError
from tuner.target.target import Target

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Limits are in bytes and seconds. The defaults are those of docs/reference/rest.md."""

    database_url: str = field(repr=False)  # SQLAlchemy URL, or what db.engine accepts
    artifacts: Path  # content-addressed store of compiled kernels, shared with the workers
    # "off" only on loopback: every caller there is an administrator
    auth: Literal["on", "off"] = "on"
    host: str = "127.0.0.1"
    port: int = 8077
    max_body_bytes: int = 1_000_000
    max_estimates_bytes: int = 8 * MIB  # 10,000 workloads of the most parameters take 3
    max_model_bytes: int = 2 * GIB - 1  # what the reader of files takes
    max_run_bytes: int = 64 * MIB  # body of a run request; its arrays have limits of their own
    requests_per_s: float = 1000.0  # refill of a key's token bucket
    request_burst: int = 2000  # size of a key's token bucket
    submit_cost: int = 10  # tokens a request that makes work for the fleet takes; others take one
    failed_logins_per_s: float = 0.5  # refill of an address's bucket of refused credentials
    failed_login_burst: int = 20
    # how long an accepted key is cached; a revoked one ends within this time
    key_memory_s: float = 1.0
    run_wait_s: float = 30.0  # how long POST …/run waits before it answers 202
    event_poll_s: float = 0.25  # interval of the query for new events, one for all streams
    # interval of comment lines in idle streams, and of checks that the key is still valid
    event_ping_s: float = 15.0
    event_stream_s: float = 3600.0  # a stream is closed after this long, and clients reconnect
    max_streams: int = 500  # event streams open at once in this process
    max_key_streams: int = 250  # of one key, so that no key takes all
    max_waiting_runs: int = 64  # unfinished runs of one key
    max_active_jobs: int = 1000  # unfinished jobs of one key
    # unfinished jobs that lookups have queued; they have no owner and count in no key's quota
    max_prepare_jobs: int = 1000
    shutdown_grace_s: float = 10.0
    candidates: Literal["on", "off"] = "off"  # whether POST /v1/candidates takes sources
    target: Target | None = None  # this machine's, meant where a request names none
    models: bool = False  # whether the workers can take ONNX files apart
    log_format: Literal["json", "text"] = "json"

    def __post_init__(self) -> None:
        if self.auth not in ("on", "off"):
            raise UsageError(f"auth is {self.auth!r}; it takes 'on' or 'off'")
        if self.candidates not in ("on", "off"):
            raise UsageError(f"candidates is {self.candidates!r}; it takes 'on' or 'off'")
        if self.auth == "off" and not is_loopback(self.host):
            raise UsageError(
                f"auth 'off' is only possible on a loopback address, not on {self.host!r}; "
                "use --host 127.0.0.1, or create a key with 'tuner keys create' and leave auth on"
            )


def is_loopback(host: str) -> bool:
    """Whether the host is reachable from this machine only.

    Names other than localhost are never trusted.
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
