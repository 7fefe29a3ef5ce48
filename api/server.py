"""Runs the service in this process until a signal stops it; `tuner serve` calls `serve`."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable

import structlog
import uvicorn
from fastapi import FastAPI

from tuner.api import logs
from tuner.api.app import create_app
from tuner.api.options import ServiceOptions
from tuner.api.protocol import Protocol
from tuner.errors import TunerError

BACKLOG = 2048  # connections not yet accepted, as uvicorn asks for
log = structlog.get_logger("api.server")


class AddressInUse(TunerError):
    """The address cannot be listened on."""

    code = "address_in_use"


class Server(uvicorn.Server):
    """A uvicorn server that ends event streams before it waits for open requests.

    Otherwise it would wait for streams that never end.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info("stopping")
        application = self.config.app
        if isinstance(application, FastAPI):
            await application.state.service.feed.close()
        await super().shutdown(sockets)


def serve(
    options: ServiceOptions,
    *,
    started: Callable[[str], None] | None = None,
    app: FastAPI | None = None,
) -> None:
    """Serves until SIGINT or SIGTERM, then gives running requests `shutdown_grace_s`.

    `started` is called with the URL. Raises AddressInUse, DatabaseError, and UsageError
    for auth 'off' beyond loopback.
    """
    logs.configure(options.log_format)
    listener = listen(options.host, options.port)
    try:
        server = server_of(app or create_app(options), options)
        # What is loaded by now lives as long as the process. A collection that visits it
        # would stop all requests for 0.1 s.
        gc.collect()
        gc.freeze()
        host, port = listener.getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        log.info("listening", url=url, auth=options.auth)
        if started is not None:
            started(url)
        asyncio.run(server.serve(sockets=[listener]))
    finally:
        listener.close()


def server_of(app: FastAPI, options: ServiceOptions) -> Server:
    return Server(
        uvicorn.Config(
            app,
            http=Protocol,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            # a forged X-Forwarded-For must not choose the address that limits count
            proxy_headers=False,
            timeout_graceful_shutdown=int(options.shutdown_grace_s),
            timeout_keep_alive=30,
            h11_max_incomplete_event_size=64 * 1024,
            lifespan="on",
        )
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections before anything else starts.

    A port in use is thus one clear error, and clients can connect at once, though answers
    wait for the service. Port 0 takes any free one.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's delay off only where it is,
    # and an answer then takes 40 ms less.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
        listener.listen(BACKLOG)
    except (OSError, UnicodeError) as error:  # of a name that no host can have
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else error
        raise AddressInUse(
            f"cannot listen on {host}:{port}: {reason}; name another with --host and --port"
        ) from error
    return listener
