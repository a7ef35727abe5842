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
_PORT_TAKEN = re.compile(r"failed to start (?P<service>\w+) service: .*already in use")


class LogLine(NamedTuple):
    """One line of the log.

    `time` is HH:MM:SS and `level` info, warning, error or fatal; both are empty for lines without the server's prefix,
    such as a model's own output.
    """

    time: str
    level: str
    message: str


def readable_log_line(line: str) -> LogLine:
    """Take the Triton server's log prefix apart, and unquote the message."""
    line = line.rstrip()
    match = _GLOG.match(line)
    if match is None:
        return LogLine("", "", line)
    message = match["message"]
    if len(message) > 1 and message[0] == message[-1] == '"':
        try:
            message = str(json.loads(message))
        except ValueError:
            message = message[1:-1]
    return LogLine(match["time"], _LEVELS[match["level"]], message)


def own_line(message: str) -> str:
    """A warning of ours, written as the server writes its log."""
    return f"{datetime.now():W%m%d %H:%M:%S.%f} {os.getpid()} triton_regressors] {json.dumps(message)}"


def is_table(line: str) -> bool:
    """Whether a line belongs to the tables that the server draws of its options, backends and models at start."""
    return line.startswith(("+--", "| ")) or (line.endswith("] ") and _GLOG.match(line) is not None)


def load_failures(lines: Iterable[str]) -> dict[str, str]:
    """Model name → reason, for every model that the log says could not be loaded."""
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


def still_loading(lines: Iterable[str]) -> list[str]:
    """The models whose loading began and did not end, in the order in which it began."""
    loading: dict[str, None] = {}
    for line in lines:
        message = readable_log_line(line).message
        if match := _LOADING.match(message):
            loading[match["model"]] = None
        elif match := _LOADED.match(message):
            loading.pop(match["model"], None)
    return list(loading)


def missing_model_file(line: str) -> Path | None:
    """The model.py that a model's process misses; the server waits for that process for ever, and for nothing else."""
    match = _NO_MODEL_FILE.search(line)
    return Path(match["path"]) if match else None


def taken_service(lines: Iterable[str]) -> str | None:
    """`HTTP`, `gRPC` or `metrics` if the server gave up because that port was taken."""
    names = {"grpc": "gRPC", "http": "HTTP", "metrics": "metrics"}
    for line in lines:
        match = _PORT_TAKEN.search(line)
        if match:
            return names.get(match["service"].lower(), match["service"])
    return None


def last_error(lines: Iterable[str]) -> str:
    """The last thing that the server called an error; without one, the last line."""
    error = last = ""
    for line in lines:
        parsed = readable_log_line(line)
        if parsed.message and not is_table(line):
            last = parsed.message
            if parsed.level in ("error", "fatal") or parsed.message.startswith(("error:", "Signal (")):
                error = parsed.message
    return plain_reason(error or last)
