"""Advice from measured times, in plain lines: whether a GPU makes sense for one model, and how to serve the model.

Times are µs from host rows to host answers. A GPU is compared with a CPU on one model and one host: this model on this
machine, or, if the machine has no GPU, the most similar model that benchmarks measured. The lines say which.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from triton_regressors import prices
from triton_regressors.advise.measured_models import Measured, Times

TRITON, TORCH, SCIKIT_LEARN, ONNXRUNTIME = "triton", "torch", "scikit-learn", "onnxruntime"
TITLES = {TRITON: "engine triton", TORCH: "engine torch", SCIKIT_LEARN: SCIKIT_LEARN, ONNXRUNTIME: ONNXRUNTIME}
SIZES = (1, 64, 1024, 16384, 65536)
"""The timed numbers of rows."""

ENOUGH = 0.8
"""The share of its best rate that a batch limit should reach."""

LEAST_LIMIT = 64
REQUEST_US = 150
"""The Triton server's time in µs for a request to a Python model that does nothing."""


@dataclass(frozen=True)
class Machine:
    """This machine: its GPU's name, if it has one, its cores, and its hourly price, if known."""

    gpu: str | None
    cores: int
    gpu_usd: float | None = None
    cpu_usd: float | None = None


@dataclass(frozen=True)
class Advice:
    """Advice on one model.

    Args:
        path: the estimator's file as a shell writes it, or None for an entry.
        bytes: the size of the model's weights.
        machine: the machine on which it was timed.
        here: its times there, including those of the engine `torch`.
        like: the measured model that is most similar, if there is one.
    """

    path: str | None
    bytes: int
    machine: Machine
    here: Times
    like: Measured | None

    def text(self, width: int = 80) -> str:
        """Return the advice in lines of up to `width` characters; headings alone are flush left."""
        return "\n".join(self._lines(max(width, 60)))

    @property
    def on_gpu(self) -> Mapping[int, float]:
        """The times of the engine `triton`: this machine's, or else those of the most similar model."""
        if TRITON in self.here:
            return self.here[TRITON]
        return self.like.times[TRITON] if self.like and TRITON in self.like.times else {}

    @property
    def gpu(self) -> str:
        """The name of the GPU of `on_gpu`."""
        return self.machine.gpu or (self.like.device if self.like else "GPU")

    def worth_from(self) -> int | None:
        """Return the number of rows from which on the GPU is faster than every library on the CPU beside it.

        The result is None if it is slower at the largest number, or if there are no times of a GPU.
        """
        found = None
        for rows in sorted(set(self.on_gpu) & set(SIZES) if self.beside else (), reverse=True):
            if self.on_cpu(rows) <= self.on_gpu[rows]:
                break
            found = rows
        return found

    @property
    def beside(self) -> Times:
        """The CPU's times to compare with `on_gpu`: the same model's, on the same host."""
        found = self.like.times if TRITON not in self.here and self.like is not None else self.here
        return {who: times for who, times in found.items() if who != TRITON}

    def on_cpu(self, rows: int) -> float:
        """Return the CPU's shortest time for this many rows, extrapolated from fewer rows if they were not timed."""
        every = list(self.beside.values())
        return min(times[last] * rows / last for times in every for last in [max(n for n in times if n <= rows)])

    def _chosen(self) -> Mapping[int, float]:
        """Return the times of the suggested engine for this machine."""
        return self.here[TRITON if self._uses_gpu() else TORCH]

    def _uses_gpu(self) -> bool:
        return TRITON in self.here and self.worth_from() is not None

    def _lines(self, width: int) -> Iterator[str]:
        """Yield the lines of `text`."""
        where = f"{self.machine.gpu}, " if self.machine.gpu else ""
        yield f"Measured on this machine ({where}{_cores(self.machine.cores)}), µs from host rows to host answers"
        yield from _table(self.here)
        if self.machine.gpu is None and self.like is not None:
            yield ""
            yield f"Measured on another: {self.like.device}, {_cores(self.like.cores)}"
            yield from _table(self.like.times)
            yield from _wrapped(f"The most similar measured model, not yours: {self.like.title}.", width, 2)
        yield ""
        yield "Advice"
        for heading, sentence in self._sentences():
            first, *others = textwrap.wrap(sentence, width - 13, break_on_hyphens=False)
            yield f"  {heading.ljust(9)}  {first}"
            yield from (f"{'':13}{line}" for line in others)
        yield ""
        yield "Set it so" if self.path else "Set it so, in config.pbtxt"
        yield from (f"    {line}" for line in self._commands())

    def _sentences(self) -> Iterator[tuple[str, str]]:
        """Yield headings and sentences."""
        yield "Engine", self._engine()
        times = self._chosen()
        limit, rate = limit_of(times), rate_of(times)
        if self._uses_gpu():
            yield (
                "Instances",
                "1: the server's batches fill the GPU. A second one helps where small requests are so many that one "
                "process cannot take them in; it holds a GPU context and the weights "
                f"({_size(self.bytes)}) again.",
            )
        else:
            yield (
                "Instances",
                f"{self.machine.cores}, one for each core: an instance computes in one thread, and holds the weights "
                f"({_size(self.bytes)}) again.",
            )
        reached = limit / times[limit] * 1e6
        text = (
            f"up to {_rows(limit)}: {reached:,.0f} rows/s in {_time(times[limit])} a batch, {reached / rate:.0%} of "
            "the best rate measured. Preferred sizes: none, so that no request waits for others."
        )
        if self.machine.gpu is None and self.worth_from() is not None:
            text += f" The measured model's best on the GPU: up to {_rows(limit_of(self.on_gpu))}."
        yield "Batches", text
        money = self._money()
        if money:
            yield "Money", money

    def _engine(self) -> str:
        """Return the suggested engine and the reason."""
        found, times = self.worth_from(), self.on_gpu
        if not times:
            why = "a model like this has not been measured on a GPU" if not self.machine.gpu else "it did not run here"
            return f"torch, on the CPU: {why}. Run this on a machine with a GPU to find out."
        largest = max(set(times) & set(SIZES))
        if self.machine.gpu:
            if found is None:
                return f"torch, on the CPU: the GPU is not faster, {self._ratio(largest)} at {_rows(largest)}."
            lead = "triton, on the GPU: "
        else:
            assert self.like is not None
            if not self.beside:
                return (
                    "torch, on this CPU: no CPU was measured beside a GPU. Run this on a machine with a GPU to find "
                    "out."
                )
            lead = f"torch, on this CPU. The most similar model that was measured ({self.like.title}) was on "
            lead += f"{_a(self.gpu)}, against the {_cores(self.like.cores)} of its host, "
            if found is None:
                return f"{lead}not faster: {self._ratio(largest)} at {_rows(largest)}."
        where = "faster at every batch size" if found == min(times) else f"faster from {_rows(found)} in a batch on"
        text = f"{lead}{where}, {self._ratio(largest)} at {_rows(largest)}."
        apart = abs(self.on_cpu(1) - times[1])
        if apart < REQUEST_US and self.machine.gpu:
            text += (
                f" For one row in a request the two differ by {apart:,.0f} µs, and the server takes some {REQUEST_US} "
                "µs for any request: the GPU pays by batches."
            )
        return text

    def _ratio(self, rows: int) -> str:
        """Return how many times faster the GPU is than the CPU beside it."""
        ratio = self.on_cpu(rows) / self.on_gpu[rows]
        return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times"

    def _money(self) -> str | None:
        """Return the cost of a million rows on the GPU and on the CPU, at full load, or None without prices."""
        host = prices.price_of(self.gpu)
        gpu_usd = self.machine.gpu_usd if self.machine.gpu_usd is not None else (host.usd_per_hour if host else None)
        if gpu_usd is None or not self.on_gpu or not self.beside:
            return None
        here = TRITON in self.here or self.like is None
        cores = self.machine.cores if here or self.like is None else self.like.cores
        cpu_usd = self.machine.cpu_usd
        if cpu_usd is None:
            cpu_usd = prices.CPU.usd_per_hour * cores / prices.CPU_CORES
        # The engine torch computes in one thread; each library was timed with all cores.
        fast = rate_of(self.on_gpu)
        slow = max(rate_of(times) * (cores if who == TORCH else 1) for who, times in self.beside.items())
        gpu, cpu = prices.usd_per_million(gpu_usd, fast), prices.usd_per_million(cpu_usd, slow)
        given = self.machine.gpu_usd is not None and self.machine.cpu_usd is not None
        source = "as given" if given else prices.AS_OF
        costs = (
            f"never idle, a million rows cost ${prices.shown(gpu)} on {_a(self.gpu)} at ${gpu_usd:,.2f} an hour, and "
            f"${prices.shown(cpu)} on {_cores(cores)} {'here' if here else 'of its host'} at ${cpu_usd:,.2f} ({source})"
        )
        if not here:
            costs = f"for that similar model, {costs}"
        if gpu >= cpu:
            return f"{costs}: the CPU is cheaper."
        return f"{costs}. With less than {gpu / cpu:.0%} of its full load the GPU is dearer."

    def _commands(self) -> Sequence[str]:
        """Return the commands or lines of config.pbtxt that apply the suggestion."""
        limit = limit_of(self._chosen())
        instances = 1 if self._uses_gpu() else self.machine.cores
        kind = "cpu" if self.machine.gpu and not self._uses_gpu() else "auto"  # "auto" uses a GPU if there is one
        if self.path is None:
            return (
                f"max_batch_size: {limit}",
                f"instance_group [{{ count: {instances} kind: KIND_{kind.upper()} }}]",
            )
        options = f"--max-batch-size {limit} --instances {instances}" + " --instance-kind cpu" * (kind == "cpu")
        return (f"triton-regressors export {self.path} \\", f"    {options}")


def rate_of(times: Mapping[int, float]) -> float:
    """Return the most rows per second at any number of rows."""
    return max(rows / us for rows, us in times.items()) * 1e6


def limit_of(times: Mapping[int, float]) -> int:
    """Return the least number of rows, 64 or more, at which most of the best rate is reached."""
    least = min(LEAST_LIMIT, max(times))
    rates = {rows: rows / us for rows, us in times.items() if rows >= least}
    return min(rows for rows, rate in rates.items() if rate >= ENOUGH * max(rates.values()))


def _table(times: Times) -> Iterator[str]:
    """Yield times as a table: a column for each engine or library, a line for each number of rows."""
    shown = [who for who in TITLES if who in times]
    sizes = sorted({rows for who in shown for rows in times[who]} & set(SIZES))
    yield f"{'rows':>10}" + "".join(f"{TITLES[who]:>17}" for who in shown)
    for rows in sizes:
        cells = (f"{_us(times[who][rows])}" if rows in times[who] else "–" for who in shown)
        yield f"{rows:>10,}" + "".join(f"{cell:>17}" for cell in cells)


def _us(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _time(us: float) -> str:
    """Return a time in a suitable unit."""
    return f"{us:,.0f} µs" if us < 1000 else f"{us / 1000:,.1f} ms" if us < 1e6 else f"{us / 1e6:,.1f} s"


def _a(device: str) -> str:
    """Return a GPU's name with its article."""
    return f"{'an' if device[:1] in 'AEINO' else 'a'} {device}"


def _cores(count: int) -> str:
    return f"{count} core{'s' * (count != 1)}"


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _size(count: int) -> str:
    """Return a number of bytes in a suitable unit."""
    return f"{count:,} bytes" if count < 1000 else f"{count / 1e3:,.0f} kB" if count < 1e6 else f"{count / 1e6:,.0f} MB"


def _wrapped(sentence: str, width: int, indent: int) -> list[str]:
    space = " " * indent
    return textwrap.wrap(sentence, width, initial_indent=space, subsequent_indent=space, break_on_hyphens=False)
