"""Runs the examples of README.md and docs/, and writes their output into the pages: `python -m docs.examples`.

A page's blocks of `python` and `shell` run in order in one empty directory: the Python blocks in one process, like a
notebook's cells, the others by bash. A block of `text` right behind a block shows its output. A block that is not run
says why: in its first line, `# Not run: ...`, or by the program that it calls (`ELSEWHERE`).

A Triton server that a page starts (`triton-regressors serve`) listens on free ports instead of 8000 to 8002, and runs
until the page ends. Commands get these ports, and the output is shown with the page's ports.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
LANGUAGES = ("python", "shell")
BESIDE = re.compile(r"\bgallery\b")
"""Names of folders beside the package: blocks of a page with one of them run with the repository on the path."""

ELSEWHERE = {
    "docker": "it needs Docker",
    "git": "it fetches a repository",
    "make": "it is a contributor's command, which has tests of its own",
    "pip": "it fetches packages",
    "rsync": "it needs a second machine",
    "ssh": "it needs a second machine",
}
"""Programs whose blocks are not run, each with the reason."""

SERVER_S = 600
BLOCK_S = 600
"""Limits in seconds that only a defect exceeds, even on a slow or busy machine."""
PORTS = (8001, 8000, 8002)  # gRPC, HTTP, metrics
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|\d+e-\d+")
TIMES = re.compile(r"\b[\d.,]+ ?(?:s|ms|µs)\b|\b\d\d:\d\d:\d\d\b")
SMALL = 1e-5

KERNEL = """
import contextlib, io, json, sys, traceback
names, answers = {"__name__": "__main__"}, sys.stdout
for line in sys.stdin:
    printed, failed = io.StringIO(), False
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            exec(compile(json.loads(line), "<example>", "exec"), names)
        except BaseException:
            failed = True
            traceback.print_exc()
    answers.write(json.dumps([failed, printed.getvalue()]) + "\\n")
    answers.flush()
"""


class ExampleError(Exception):
    """A block of a page fails, or its output differs from the page's."""


@dataclass(frozen=True)
class Block:
    """A block of code: its language, text and first line's number, and the output that is shown, if there is one."""

    language: str
    code: str
    line: int
    shown: str | None

    def reason(self) -> str | None:
        """Return why the block is not run, or None if it is."""
        said = re.match(r"# Not run: (.*)\n", self.code)
        if said:
            return said[1]
        programs = re.findall(r"^(?:\w+=\S+ )*(?:python3? -m )?([a-z-]+)", self.code, re.MULTILINE)
        return next((ELSEWHERE[name] for name in programs if name in ELSEWHERE and self.language == "shell"), None)


def blocks(text: str) -> list[Block]:
    """Return a page's blocks of Python and shell, in order."""
    pattern = r"^```(\w+)\n(.*?)^```\n(?:\s*^```text\n(.*?)^```\n)?"
    found = []
    for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        if match[1] in LANGUAGES:
            found.append(Block(match[1], match[2], text.count("\n", 0, match.start()) + 2, match[3]))
    return found


def same(printed: str, shown: str) -> bool:
    """Return whether an output equals the one that a page shows.

    Words and whole numbers must be the same. Numbers with a point may differ by 1 in 10,000. Errors may be any numbers
    of at most 1e-5, and times may be any numbers.
    """
    parts = [_parts(text) for text in (printed, shown)]
    return len(parts[0]) == len(parts[1]) and all(map(_same_part, *parts))


def _parts(text: str) -> list[str]:
    """Return the numbers with a point and the texts between them, alternately."""
    plain = "\n".join(line.rstrip() for line in text.strip().splitlines())
    plain = re.sub(r"[\d.]+ float32 ulp", "<few> float32 ulp", TIMES.sub("<time>", plain))
    return re.split(f"({NUMBER.pattern})", plain)


def _same_part(one: str, other: str) -> bool:
    if not (NUMBER.fullmatch(one) and NUMBER.fullmatch(other)):
        return one == other
    a, b = float(one), float(other)
    return max(abs(a), abs(b)) <= SMALL or abs(a - b) <= 1e-4 * abs(b)


class Session:
    """One page's run: an empty directory, a Python process, and the servers that it starts."""

    def __init__(self, directory: Path, *, clone: bool = False) -> None:
        self._directory, self._ports = directory / "here", _free_ports(len(PORTS))
        self._directory.mkdir()
        programs = directory / "bin"
        programs.mkdir()
        for name, arguments in (("python", ""), ("triton-regressors", " -m triton_regressors")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n', encoding="utf-8")
            (programs / name).chmod(0o755)
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TRITON_ADMIN_KEY": "a-key",
            "COLUMNS": "100",
        }
        if clone:
            beside = [str(ROOT), self._environment.get("PYTHONPATH", "")]
            self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, beside))
        self._processes: list[subprocess.Popen[Any]] = []
        self._python: subprocess.Popen[str] | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(30)

    def run(self, block: Block) -> str:
        """Run a block and return its output, with stderr. Raise `ExampleError` if it fails."""
        code = block.code
        for port, free in zip(PORTS, self._ports, strict=True):
            code = re.sub(rf"(?<=[:=]){port}\b", str(free), code)
        code = re.sub(
            r"(triton-regressors (?:predict|explain|verify))(?!.*--url)", rf"\1 --url 127.0.0.1:{self._ports[0]}", code
        )
        if block.language == "python":
            failed, printed = self._ask_python(code)
        elif re.search(r"^triton-regressors serve", code, re.MULTILINE):
            failed, printed = False, self._serve(code)
        else:
            failed, printed = self._ask_bash(code)
        for port, free in zip(PORTS, self._ports, strict=True):
            printed = re.sub(rf"(?<=[:=]){free}\b", str(port), printed)
        if failed:
            raise ExampleError(f"The block at line {block.line} fails:\n{printed}")
        return printed

    def _ask_python(self, code: str) -> tuple[bool, str]:
        if self._python is None:
            self._python = self._start([sys.executable, "-c", KERNEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps(code) + "\n")
        self._python.stdin.flush()
        failed, printed = json.loads(self._python.stdout.readline() or '[true, "Python ended."]')
        return failed, printed

    def _ask_bash(self, code: str) -> tuple[bool, str]:
        done = subprocess.run(
            ["bash", "-c", code],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BLOCK_S,
        )
        # An error that a page shows is an example too.
        return done.returncode != 0 and not done.stdout.startswith("Error: "), done.stdout

    def _serve(self, code: str) -> str:
        """Start a command for a separate terminal, and return when the server says that it serves."""
        ports = zip(("grpc", "http", "metrics"), self._ports, strict=True)
        options = " ".join(f"--{name}-port {port}" for name, port in ports)
        log = self._directory.parent / f"serve-{len(self._processes)}.log"
        with log.open("w", encoding="utf-8") as file:
            code = re.sub(r"^triton-regressors serve", f"exec triton-regressors serve {options}", code)
            server = self._start(["bash", "-c", code], stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        until = time.monotonic() + SERVER_S
        while "Ctrl-C stops" not in log.read_text(encoding="utf-8"):
            if server.poll() is not None or time.monotonic() > until:
                raise ExampleError(f"The server does not start:\n{log.read_text(encoding='utf-8')}")
            time.sleep(0.1)
        return ""

    def _start(self, command: list[str], **options: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, cwd=self._directory, env=self._environment, text=True, **options)
        self._processes.append(process)
        return process


def _free_ports(count: int) -> list[int]:
    """Return ports on which no process listens now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def outputs(text: str) -> Iterator[tuple[Block, str]]:
    """Run a page, and yield each block with a shown output and its real one. Raise `ExampleError` if a block fails."""
    found = blocks(text)
    clone = any(BESIDE.search(block.code) for block in found)
    with (
        tempfile.TemporaryDirectory(prefix="examples-") as directory,
        Session(Path(directory), clone=clone) as session,
    ):
        for block in found:
            if block.reason() is None:
                printed = session.run(block)
                if block.shown is not None:
                    yield block, printed


def renewed(text: str) -> str:
    """Return a page with its differing outputs replaced by the present ones."""
    lines = text.splitlines(keepends=True)
    changed = [(block, printed) for block, printed in outputs(text) if not same(printed, block.shown or "")]
    for block, printed in reversed(changed):
        start = block.line - 1 + block.code.count("\n") + 1
        start = next(i for i in range(start, len(lines)) if lines[i] == "```text\n") + 1
        end = next(i for i in range(start, len(lines)) if lines[i] == "```\n")
        lines[start:end] = [f"{line.rstrip()}\n" for line in printed.strip().splitlines()]
    return "".join(lines)


def main() -> int:
    """Write the examples' outputs into the pages, or only into the named ones."""
    wanted = sys.argv[1:]
    for path in PAGES:
        if not wanted or path.name in wanted:
            before = path.read_text(encoding="utf-8")
            try:
                after = renewed(before)
            except ExampleError as error:
                sys.exit(f"{path.name}: {error}")
            if after != before:
                path.write_text(after, encoding="utf-8")
                print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
