"""The key to a Triton server's management APIs, where it restricts them as docker/compose.yaml does.

Restricted are loading, unloading and listing models, and logging, tracing and shared memory. Inference, health,
metadata, configuration and statistics need no key.
"""

import os
import re

from triton_regressors.errors import TritonRegressorsError

VARIABLE = "TRITON_ADMIN_KEY"
"""The environment variable that clients take the key from."""
RESTRICTED = "shared-memory,model-repository,trace,logging"
_HEADERS = {"http": "triton-admin-key", "grpc": "triton-grpc-protocol-admin-key"}
_USABLE = re.compile(r"[!-~]+")


def key_headers(protocol: str, key: str | None) -> dict[str, str]:
    """The HTTP header or gRPC metadata that opens the management APIs. Without a key ($TRITON_ADMIN_KEY if None): none.

    Raises:
        TritonRegressorsError: the key holds spaces, or other characters that no header can carry.
    """
    key = os.environ.get(VARIABLE, "") if key is None else key
    return {_HEADERS[protocol]: _checked(key)} if key else {}


def restrictions(key: str) -> list[str]:
    """The options of a Triton server that answers its management APIs only to this key."""
    value = _checked(key)
    return [
        f"--http-restricted-api={RESTRICTED}:{_HEADERS['http']}={value}",
        f"--grpc-restricted-protocol={RESTRICTED}:admin-key={value}",
    ]


def _checked(key: str) -> str:
    if not _USABLE.fullmatch(key):
        raise TritonRegressorsError(
            f"The key to the management APIs (${VARIABLE}, or admin_key) holds a character that a header cannot carry; "
            "accepted: ASCII letters, digits and punctuation, without spaces."
        )
    return key
