"""The key to a Triton server's management APIs, which `TritonServer` and docker/compose.yaml restrict to it.

The key protects loading, unloading and listing models, and logging, tracing and shared memory. Loading a model runs
code as the server's user; without a key every user of the machine could do it, and every web page open in a browser on
it. Inference, health, metadata, configuration and statistics need no key.
"""

import os
import re
import secrets

from triton_regressors.errors import TritonRegressorsError

VARIABLE = "TRITON_ADMIN_KEY"
"""The environment variable that clients take the key from."""
RESTRICTED = "shared-memory,model-repository,trace,logging"
_HEADERS = {"http": "triton-admin-key", "grpc": "triton-grpc-protocol-admin-key"}
_USABLE = re.compile(r"[!-~]+")

_OWN: dict[str, str] = {}
"""HOST:PORT → key, of the servers that run as children of this process, so that clients here need no key argument."""


def choose_key(key: str | None) -> str:
    """Return the key of a server to be started: the given one, else $TRITON_ADMIN_KEY, else a random one."""
    return _checked(key or os.environ.get(VARIABLE) or secrets.token_urlsafe(32))


def remember(addresses: list[str], key: str) -> None:
    """Give clients of this process the key of its own server, which listens at these addresses."""
    _OWN.update(dict.fromkeys(addresses, key))


def forget(addresses: list[str]) -> None:
    """Forget the key of a stopped server, so that no later listener at these addresses receives it."""
    for address in addresses:
        _OWN.pop(address, None)


def own_key(address: str) -> str | None:
    """Return the key of the server that this process runs at HOST:PORT; None if it runs none there."""
    return _OWN.get(address)


def key_headers(protocol: str, key: str | None) -> dict[str, str]:
    """Return the HTTP header or gRPC metadata that opens the management APIs; none without a key.

    None stands for the key in $TRITON_ADMIN_KEY.

    Raises:
        TritonRegressorsError: the key holds spaces, or other characters that no header can carry.
    """
    key = os.environ.get(VARIABLE, "") if key is None else key
    return {_HEADERS[protocol]: _checked(key)} if key else {}


def restrictions(key: str) -> dict[str, str]:
    """Return the options of a Triton server that answers its management APIs only to this key.

    Returns:
        The option as every user may read it → the option with the key, for `private_arguments.launch`.
    """
    return {option.format(f"${VARIABLE}"): option.format(_checked(key)) for option in _options(RESTRICTED)}


def closures() -> list[str]:
    """Return the options of a Triton server whose management APIs are closed, except for listing the models.

    Models are not loaded or unloaded on request. The other APIs require a header value with a line end, which no
    request can contain.
    """
    closed = RESTRICTED.replace("model-repository,", "")
    return ["--model-control-mode=none", *(option.format("\n") for option in _options(closed))]


def _options(restricted: str) -> list[str]:
    return [
        f"--http-restricted-api={restricted}:{_HEADERS['http']}={{}}",
        f"--grpc-restricted-protocol={restricted}:{_HEADERS['grpc'].removeprefix('triton-grpc-protocol-')}={{}}",
    ]


def _checked(key: str) -> str:
    if not _USABLE.fullmatch(key):
        raise TritonRegressorsError(
            f"The key to the management APIs (${VARIABLE}, or admin_key) holds a character that a header cannot carry; "
            "accepted: ASCII letters, digits and punctuation, without spaces."
        )
    return key
