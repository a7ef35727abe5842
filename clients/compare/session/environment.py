"""The environment of a comparison: the server's answers and, for a server started here, this machine's own data.

A running server does not tell a client about its machine's processors, torch or Triton language: these are None.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tritonclient.grpc
import tritonclient.http
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients.client.client import Client
from triton_regressors.version import __version__

ENGINE_OF_AUTO = {"CPU": "torch (auto)", "GPU": "triton (auto)"}
_QUESTION = """
import importlib.metadata, json, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
names = None
if sys.argv[1:]:
    import torch
    names = [torch.cuda.get_device_name(int(index)) for index in sys.argv[1:]]
print(json.dumps([version("torch"), version("triton"), names]))
"""


def describe_environment(
    client: Client, config: model_config_pb2.ModelConfig, own: bool, python: Path | None
) -> dict[str, Any]:
    """Return the report's description of the environment; None stands for what cannot be known from here.

    Args:
        client: a client of the server.
        config: the model's configuration as the server has it, with the instances that the server made.
        own: whether the server was started here, on this machine.
        python: the interpreter whose packages the models of such a server see; None: the running one.
    """
    kinds, gpus = processors(config)
    torch, triton, names = _of_this_machine(python, gpus) if own else (None, None, None)
    machine = [_cpu_name()] if own and kinds == ["CPU"] else names
    engine = config.parameters["engine"].string_value if "engine" in config.parameters else None
    if engine == "auto" and len(kinds) == 1:
        engine = ENGINE_OF_AUTO.get(kinds[0], engine)
    return {
        "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "model": config.name,
        "model_version": _served_version(client, config.name),
        "engine": engine,
        "runs_on": " and ".join(kinds) + (f" {', '.join(map(str, gpus))}" if gpus else ""),
        "processor": None if machine is None else ", ".join(dict.fromkeys(machine)),
        "server": "started for this comparison on this machine" if own else client.url,
        "triton_server": _server_release(client),
        "torch": torch,
        "triton_language": triton,
        "client_cores": os.cpu_count(),
        "client_machine": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "triton_regressors": __version__,
        "grpcio": version("grpcio"),
        "tritonclient": version("tritonclient"),
    }


def processors(config: model_config_pb2.ModelConfig) -> tuple[list[str], list[int]]:
    """Return the kinds of processor that a model's instances run on, and the GPUs' numbers as the server counts them.

    The kinds are one or more of "CPU", "GPU", "a choice of the model's" and "a choice of the server's".
    """
    names = {"KIND_CPU": "CPU", "KIND_GPU": "GPU", "KIND_MODEL": "a choice of the model's"}
    kinds, gpus = [], []
    for group in config.instance_group:
        kinds.append(names.get(model_config_pb2.ModelInstanceGroup.Kind.Name(group.kind), "a choice of the server's"))
        gpus += list(group.gpus) if kinds[-1] == "GPU" else []
    return sorted(set(kinds)) or ["a choice of the server's"], sorted(set(gpus))


def _served_version(client: Client, model: str) -> str | None:
    """Return the version that answers a request without a version: the newest loaded one."""
    loaded = [int(each["version"]) for each in client.statistics(model).get("model_stats", ())]
    return str(max(loaded)) if loaded else None


def _server_release(client: Client) -> str:
    """Return the release that the Triton server reports."""
    library = tritonclient.grpc if client.protocol == "grpc" else tritonclient.http
    with library.InferenceServerClient(client.url) as asked:
        metadata = asked.get_server_metadata()
        return str(metadata["version"] if isinstance(metadata, dict) else metadata.version)


def _of_this_machine(python: Path | None, gpus: Sequence[int]) -> tuple[str | None, str | None, list[str] | None]:
    """Return an interpreter's versions of torch and the Triton language, and the names of GPUs as torch has them.

    Each is None if the interpreter does not report it.
    """
    command = [str(python or sys.executable), "-c", _QUESTION, *map(str, gpus)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        torch, triton, names = json.loads(answer)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None, None, None
    return torch, triton, names


def _cpu_name() -> str:
    """Return the processor's name as Linux reports it, or else as Python does, with the number of its cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"
