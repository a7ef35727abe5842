"""Reading the Triton server's log: readable lines, and the reasons for a failed start."""

import json
import os
import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from triton_regressors.clients.errors import plain_reason

# I1121 09:32:06.079491 8097 model_lifecycle.cc:472] "loading: ridge:1"
_GLOG = re.compile(r"^(?P<level>[IWEF])\d{4} (?P<time>\d\d:\d\d:\d\d)\.\d+ +\d+ [^\]]*\] +(?P<message>.*)$")
_LEVELS = {"I": "info", "W": "warning", "E": "error", "F": "fatal"}
_CONFIG_SYNTAX = re.compile(r"Error parsing text-format \S+: (?P<where>.*)$")
_NOT_POLLED = re.compile(r"^Poll failed for model directory '(?P<model>[^']+)': (?P<reason>.*)$", re.DOTALL)
_NOT_FOUND = re.compile(r"^failed to poll model '(?P<model>[^']+)': (?P<reason>.*)$", re.DOTALL)
_NOT_LOADED = re.compile(r"^failed to load (?:model )?'(?P<model>[^']+)'(?: version \d+)?: (?P<reason>.*)$", re.DOTALL)
_LOADING = re.compile(r"^loading: (?P<model>.+):\d+$")
_LOADED = re.compile(r"^(?:successfully loaded|failed to load) '(?P<model>[^']+)'")
_NO_MODEL_FILE = re.compile(r"Python model file not found in '(?P<path>.*)'$")
_STEP = re.compile(r"^TRITONBACKEND_ModelInstanceInitialize: ")
_PORT_TAKEN = re.compile(r"failed to start (?P<service>\w+) service: .*already in use")

# Messages of a Triton server on a machine without a GPU. On a machine with a GPU, each of them reports a fault.
_WITHOUT_GPU = re.compile(
    r"Unable to allocate pinned system memory, pinned memory pool will not be available: "
    r"(CUDA driver version is insufficient for CUDA runtime version|no CUDA-capable device is detected)"
    r"|failed to allocate pinned system memory: no pinned memory pool, falling back to non-pinned system memory"
    r"|CUDA memory pool disabled"
    r"|CudaDriverHelper has not been initialized\."
    r"|Error: Failed to initialize NVML"
    r"|DCGM unable to start: DCGM initialization error"
)
# The message when many models stop at once. The lines before it report requests in flight. The processes are ended.
_SLOW_STOP = "failed to stop server: Internal - Exit timeout expired. Exiting immediately."


class LogLine(NamedTuple):
    """One line of the log.

    `time` is HH:MM:SS and `level` info, warning, error or fatal; both are empty for lines without the server's prefix,
    such as a model's own output.
    """

    time: str
    level: str
    message: str


def readable_log_line(line: str) -> LogLine:
    """Take the Triton server's log prefix apart, and unquote the message.

    Its threads do not wait for each other: a whole line may stand between another one's prefix and message.
    """
    line = line.rstrip()
    match = _GLOG.match(line)
    if match is None:
        return LogLine("", "", line)
    while whole := _GLOG.match(match["message"]):
        match = whole
    message = match["message"]
    if len(message) > 1 and message[0] == message[-1] == '"':
        try:
            message = str(json.loads(message))
        except ValueError:
            message = message[1:-1]
    return LogLine(match["time"], _LEVELS[match["level"]], message)


def own_line(message: str) -> str:
    """Return a warning of ours, written as the server writes its log."""
    return f"{datetime.now():W%m%d %H:%M:%S.%f} {os.getpid()} triton_regressors] {json.dumps(message)}"


def means_nothing(line: str, has_gpu: bool) -> bool:
    """Return whether a line tells a reader of the log nothing.

    Such a line is empty, belongs to a table, or sounds alarming but reports no fault on this machine.
    """
    if not line.strip() or is_table(line) or readable_log_line(line).message == _SLOW_STOP:
        return True
    return lacks_gpu(line) and not has_gpu


def is_table(line: str) -> bool:
    """Return whether a line belongs to the tables of options, backends and models that the server prints at start."""
    return line.startswith(("+--", "| ")) or (line.endswith("] ") and _GLOG.match(line) is not None)


def gpu_is_visible() -> bool:
    """Return whether this machine, or this container, has an NVIDIA GPU's device files."""
    return any(Path("/dev").glob("nvidia*")) or Path("/dev/dxg").exists()  # the second: in WSL


def lacks_gpu(line: str) -> bool:
    """Return whether a line only reports a missing GPU, which is harmless if no GPU is expected."""
    return _WITHOUT_GPU.fullmatch(readable_log_line(line).message) is not None


def load_failures(lines: Iterable[str]) -> dict[str, str]:
    """Return model name → reason, for every model that could not be loaded according to the log."""
    failures: dict[str, str] = {}
    syntax_error = ""
    for line in lines:
        syntax = _CONFIG_SYNTAX.search(line)
        if syntax:  # the line after it names the model
            syntax_error = syntax["where"]
            continue
        message = readable_log_line(line).message
        match = _NOT_POLLED.match(message) or _NOT_FOUND.match(message) or _NOT_LOADED.match(message)
        if match:
            reason = plain_reason(match["reason"])
            if syntax_error and "config" in reason:
                reason = f"{reason} (line:column {syntax_error.rstrip('.')})"
            failures[match["model"]] = reason
            syntax_error = ""
    return failures


class Loads:
    """The progress of the models' loads, from the log; `note` takes every line, once and in order.

    Attributes:
        steps: the number of lines so far that report a load's begin, process, or end. It only grows.
        ready: the models that have been loaded; some may have been unloaded since.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.ready: set[str] = set()
        self._loading: dict[str, None] = {}

    def note(self, line: str) -> None:
        """Read one line of the log."""
        message = readable_log_line(line).message
        if match := _LOADING.match(message):
            self._loading[match["model"]] = None
        elif match := _LOADED.match(message):
            self._loading.pop(match["model"], None)
            if message.startswith("successfully"):
                self.ready.add(match["model"])
        elif not _STEP.match(message):
            return
        self.steps += 1

    def unfinished(self) -> list[str]:
        """Return the models whose loading began and did not end, in the order in which it began."""
        return list(self._loading)


def missing_model_file(line: str) -> Path | None:
    """Return the model.py that a model's process cannot find.

    The server waits for that process forever, and for nothing else.
    """
    match = _NO_MODEL_FILE.search(line)
    return Path(match["path"]) if match else None


def taken_service(lines: Iterable[str]) -> str | None:
    """Return `HTTP`, `gRPC` or `metrics` if the server gave up because that port was taken; else None."""
    names = {"grpc": "gRPC", "http": "HTTP", "metrics": "metrics"}
    for line in lines:
        match = _PORT_TAKEN.search(line)
        if match:
            return names.get(match["service"].lower(), match["service"])
    return None


def last_error(lines: Iterable[str]) -> str:
    """Return the last message that the server marked as an error; without one, the last line."""
    error = last = ""
    for line in lines:
        parsed = readable_log_line(line)
        if parsed.message and not is_table(line) and not lacks_gpu(line):
            last = parsed.message
            if parsed.level in ("error", "fatal") or parsed.message.startswith(("error:", "Signal (")):
                error = parsed.message
    return plain_reason(error or last)
