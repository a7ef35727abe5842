"""Starts a program with arguments that no other user of this machine can read.

Every user may read the command line of every process in /proc/PID/cmdline, also that of a process in a PID namespace
below. The kernel shows there the memory between two addresses. The program itself finds its arguments by the pointers
in `argv`. The program is therefore started with public words in place of the private arguments, and with these in its
environment, which only its own user may read. The kernel stops it between `exec` and its first instruction (ptrace),
and the pointers in `argv` are then set to the strings in the environment. The command line holds no private argument
at any time, and the environment that the program hands on to its own children does not hold one either.

Only the standard library is imported, and nothing of this package: the image of docker/ runs this file by itself, as
`python3 private_arguments.py PROGRAM ARGUMENT...`. An argument that ends with $NAME then ends with the value of that
environment variable.
"""

import contextlib
import ctypes
import os
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_CARRIER = "PRIVATE_ARGUMENT_"  # the environment variables that carry the private arguments to the program
_WAITING = 'read -r go && exec "$@" </dev/null'
_CONT, _DETACH, _SEIZE = 7, 17, 0x4206
_TRACE_EXEC, _EXIT_KILL = 0x10, 0x100000
_AT_EXEC = 5 | 4 << 8  # SIGTRAP with PTRACE_EVENT_EXEC
_VARIABLE = re.compile(r"\$(\w+)$")
_START_STACK, _ARG_START, _ENV_END = 25, 45, 48  # fields 28, 48 and 51 of /proc/PID/stat, counted from the third


class PrivacyError(Exception):
    """The system does not let a process keep an argument of its child from other users."""


def launch(
    command: Sequence[str], private: Mapping[str, str], environment: Mapping[str, str], **options: Any
) -> "subprocess.Popen[str]":
    """Start a program with private arguments.

    Args:
        command: the program and its arguments, as every user may see them.
        private: the argument in `command` → the argument that the program receives in its place.
        environment: the program's.
        options: further ones of `subprocess.Popen`, beside `stdin` and those of text.

    Returns:
        The process, which has begun to run the program, or has ended if the program cannot be executed. Its standard
        input is empty.

    Raises:
        PrivacyError: the system forbids ptrace. No process is left, and no private argument was shown.
        OSError: no process can be started.
    """
    options |= {"text": True, "encoding": "utf-8", "errors": "replace", "bufsize": 1}
    if not private:
        return subprocess.Popen(list(command), stdin=subprocess.DEVNULL, env=dict(environment), **options)
    carriers = {f"{_CARRIER}{number}": real for number, real in enumerate(private.values())}
    process = subprocess.Popen(
        ["/bin/sh", "-c", _WAITING, "sh", *command],
        stdin=subprocess.PIPE,
        env={**environment, **carriers},
        **options,
    )
    assert process.stdin is not None
    try:
        _ptrace(_SEIZE, process.pid, _TRACE_EXEC | _EXIT_KILL)
        process.stdin.write("\n")
        process.stdin.close()
        if _stopped_at_program(process.pid):
            _exchange(process.pid, list(private))
            _ptrace(_DETACH, process.pid)
    except BaseException:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        raise
    process.stdin = None
    return process


def _ptrace(request: int, pid: int, data: int = 0) -> None:
    """Call ptrace(2).

    Raises:
        PrivacyError: the system does not allow it, or has no such call.
    """
    try:
        call = ctypes.CDLL(None, use_errno=True).ptrace
    except (OSError, AttributeError) as error:
        raise PrivacyError(f"there is no ptrace here ({error})") from None
    call.argtypes, call.restype = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p), ctypes.c_long
    if call(request, pid, None, data) == -1:
        raise PrivacyError(f"ptrace is not allowed here ({os.strerror(ctypes.get_errno())})")


def _stopped_at_program(pid: int) -> bool:
    """Wait until a traced process is stopped at the end of its `exec` of the program; False if it has ended instead.

    The waiting shell can still be in its own `exec` when it is traced, and then stops there first. Its arguments must
    not be exchanged: it would hand the private ones to the program as arguments that every user may read.
    """
    while True:
        state = os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        if state is None or state.si_code not in (os.CLD_TRAPPED, os.CLD_STOPPED):
            return False
        os.waitid(os.P_PID, pid, os.WSTOPPED)
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if state.si_status == _AT_EXEC and _WAITING.encode() not in arguments:
            return True
        event = state.si_status >> 8
        _ptrace(_CONT, pid, 0 if event else state.si_status)  # a signal is delivered, any other event passed


def _exchange(pid: int, shown: Sequence[str]) -> None:
    """Set the pointers of a process that is stopped at its `exec`: each shown argument becomes the private one.

    The stack then begins with argc, the pointers of argv, 0, the pointers of the environment and 0. The strings lie
    above. The pointers of the environment to private arguments are set to an empty string.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    stack, strings, end = (int(fields[number]) for number in (_START_STACK, _ARG_START, _ENV_END))
    count = (strings - stack) // struct.calcsize("P")
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(stack)
        pointers = list(struct.unpack(f"@{count}P", memory.read(count * struct.calcsize("P"))))
        memory.seek(strings)
        text = memory.read(end - strings)

        def string(pointer: int) -> bytes:
            return text[pointer - strings : text.index(b"\0", pointer - strings)]

        argv = range(1, 1 + pointers[0])
        environment = range(argv.stop + 1, pointers.index(0, argv.stop + 1))
        carriers = {string(pointers[place]).partition(b"=")[0]: place for place in environment}
        for number, argument in enumerate(shown):
            name = f"{_CARRIER}{number}".encode()
            carrier = carriers[name]
            value = pointers[carrier] + len(name) + 1
            (place,) = (place for place in argv if string(pointers[place]) == os.fsencode(argument))
            pointers[place] = value
            pointers[carrier] = value + len(string(value))
        memory.seek(stack)
        memory.write(struct.pack(f"@{environment.stop}P", *pointers[: environment.stop]))


def main(command: Sequence[str]) -> int:
    """Run a program whose arguments may end with environment variables; return its exit code.

    Signals that end a program are passed on to it.
    """
    private = {}
    for argument in command:
        if found := _VARIABLE.search(argument):
            if not os.environ.get(found[1]):
                print(f"${found[1]} is not set; it is a private argument of {command[0]}.", file=sys.stderr)
                return 2
            private[argument] = argument[: found.start()] + os.environ[found[1]]
    try:
        process = launch(command, private, os.environ)
    except PrivacyError as error:
        print(
            f"The arguments of {command[0]} cannot be kept from other users: {error}. Allow ptrace in this container, "
            "or leave out the options that hold a key and set --model-control-mode=none.",
            file=sys.stderr,
        )
        return 1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda received, frame: process.send_signal(received))
    code = process.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
