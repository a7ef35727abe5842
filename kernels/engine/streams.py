"""Runs independent tasks side by side: each task goes to a branch, and each branch has a stream.

A branch is a chain of tasks in the order of their launches. If a task reads a value from another branch, its branch
waits for the task that makes the value. In a captured graph these waits are edges, and the GPU may run the rest in any
order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

MOST_BRANCHES = 4

MOST_ROWS = 1024
"""Above this many rows run the tasks one by one: each kernel fills a GPU, and a second kernel may delay it."""

START = -1
"""The number that stands for the task before the first."""

Launch = Callable[[int], None]
"""Launches the work for that many rows on the current stream."""


class Task(NamedTuple):
    """A launch, the values that it reads and the value that it makes; values made by no earlier task exist already."""

    reads: Sequence[str]
    makes: str
    launch: Launch


class Place(NamedTuple):
    """The place of a task: its branch, and the tasks of other branches, by number, that must come before it."""

    branch: int
    after: tuple[int, ...]


def place(tasks: Sequence[Task]) -> list[Place]:
    """Return a place for each task: the branch that ends with a task whose value it reads, or else a new branch."""
    makers: dict[str, int] = {}
    ends, branch_of = [START], {START: 0}
    places = []
    for number, task in enumerate(tasks):
        sources = {makers.get(value, START) for value in task.reads} or {START}
        branch = next((branch for branch, end in enumerate(ends) if end in sources), len(ends))
        if branch == MOST_BRANCHES:
            branch = ends.index(min(ends))
        elif branch == len(ends):
            ends.append(START)
        places.append(Place(branch, tuple(sorted(source for source in sources if branch_of[source] != branch))))
        ends[branch] = makers[task.makes] = number
        branch_of[number] = branch
    return places


class Branches:
    """Tasks and the streams that they run on; the other streams fork from the first and join it again.

    The tasks run one after the other for many rows and without streams, that is, with the interpreter.
    """

    def __init__(self, tasks: Sequence[Task], streams: Sequence[torch.cuda.Stream]) -> None:
        self._tasks = tasks
        self._streams = streams
        self._places = place(tasks)
        ends = {spot.branch: number for number, spot in enumerate(self._places)}
        self._ends = [end for branch, end in ends.items() if branch > 0]
        self._awaited = {source for spot in self._places for source in spot.after} | set(self._ends)

    def launch(self, rows: int) -> None:
        """Launch the tasks for `rows` rows."""
        if not self._ends or not self._streams or rows > MOST_ROWS:
            with torch.cuda.stream(self._streams[0]) if self._streams else contextlib.nullcontext():
                for task in self._tasks:
                    task.launch(rows)
            return
        first = self._streams[0]
        events = {START: first.record_event()}
        for number, (task, spot) in enumerate(zip(self._tasks, self._places, strict=True)):
            stream = self._streams[spot.branch]
            for source in spot.after:
                stream.wait_event(events[source])
            with torch.cuda.stream(stream):
                task.launch(rows)
            if number in self._awaited:
                events[number] = stream.record_event()
        for end in self._ends:
            first.wait_event(events[end])
