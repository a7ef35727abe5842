"""The base class of `Client` and `AsyncClient`."""

from typing import Any

from triton_regressors.clients.client.admin_key import own_key
from triton_regressors.clients.client.calls import Call, Calls, Protocol, typed_error
from triton_regressors.clients.client.request_flow import Dialogues
from triton_regressors.clients.errors import InvalidRequest

_LOOPBACK = ("127.", "localhost", "[::1]")


class Connection:
    """The base of `Client` and `AsyncClient`: the server's address, and the typed errors."""

    def __init__(
        self,
        url: str,
        protocol: Protocol = "grpc",
        timeout_s: float = 30.0,
        load_timeout_s: float = 600.0,
        admin_key: str | None = None,
    ) -> None:
        if protocol not in ("grpc", "http"):
            raise InvalidRequest(f"protocol is {protocol!r}; accepted: 'grpc', 'http'.")
        scheme, separator, address = url.rpartition("://")
        if separator and scheme not in ("http", "grpc"):
            raise InvalidRequest(f"url is {url!r}; it must be HOST:PORT, without TLS.")
        if not (timeout_s > 0 and load_timeout_s > 0):
            raise InvalidRequest(f"timeout_s is {timeout_s} and load_timeout_s {load_timeout_s}; both must be above 0.")
        self.url = address.rstrip("/")
        self.protocol: Protocol = protocol
        self.timeout_s = timeout_s
        key = own_key(self.url) if admin_key is None else admin_key
        self._calls = Calls(protocol, timeout_s, load_timeout_s, key)
        self._dialogues = Dialogues(self._calls)
        self._closed = False

    def __repr__(self) -> str:
        protocol = "gRPC" if self.protocol == "grpc" else "HTTP"
        return f"<{type(self).__name__} of {self.url} over {protocol}{', closed' * self._closed}>"

    def _failure(self, error: Exception, call: Call[Any]) -> Exception:
        """Return the error to raise for a call's error: the typed one, or the error itself if it has no typed one."""
        typed = typed_error(error, self.url, self.protocol, call.timeout_s)
        if typed is None or call.part is None:
            return typed or error
        return call.part.error(typed)

    def _grpc_options(self) -> list[tuple[str, int]]:
        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each client
        ]
        if self.url.startswith(_LOOPBACK):
            options.append(("grpc.enable_http_proxy", 0))
        return options
