"""The errors that clients raise, in place of tritonclient's, grpc's and aiohttp's own.

`triton_regressors.errors` shows the whole tree. Each message is one sentence and holds the server's own.
"""

# ruff: noqa: N818 (the names say what happened, as `TimeoutError`'s siblings in httpx do)

import re

from triton_regressors.errors import TritonRegressorsError


class ServerError(TritonRegressorsError):
    """The embedded Triton server could not start, or ended by itself; `log` holds everything that it wrote."""

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class RowsError(TritonRegressorsError):
    """A file of rows, or the golden rows of an entry, cannot be read."""


class InferenceError(TritonRegressorsError):
    """A Triton server did not do what it was asked."""


class InvalidRequest(InferenceError):
    """The request itself is wrong: shape, dtype, output name, values, or an argument of the call."""


class ModelNotFound(InferenceError):
    """No such model, or no such version of it, is loaded."""


class ServerUnavailable(InferenceError):
    """Nothing answers at this address, or the server takes no more requests now."""


class RequestTimeout(InferenceError):
    """No answer in the time given."""


class RequestCancelled(InferenceError):
    """The request was cancelled before it was answered."""


class ServerFault(InferenceError):
    """The server failed: an error inside the model, a model that does not load, or an answer that cannot be read."""


_STATUS_PREFIX = re.compile(r"^(?:Internal|Invalid argument|Unavailable|Unsupported|Unknown|Not found): ")
_REQUEST_ID = re.compile(r"^\[request id: [^\]]*\] ")


def plain_reason(text: str) -> str:
    """Return the Triton server's own words as one sentence, without request ids, call stacks and notes."""
    text = _REQUEST_ID.sub("", text.strip())
    text = text.split("\n\nAt:\n")[0].split(" NOTE: Setting a non-zero max_batch_size")[0]
    text = _STATUS_PREFIX.sub("", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        lines = lines[-1:]
    return " ".join(lines).rstrip(".") or "no reason given"
