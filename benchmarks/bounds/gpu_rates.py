"""What GPUs reach at most, as published, and which of their pipes an instruction takes.

Multiprocessors, clocks (the boost clock that the published float32 rate is made of), float32, float64 and matrix rates
(dense, float32 sums), bandwidths and buses are the data sheets', compared with listings of these that others publish.
They agree but for two: the H200's 4,800 GB/s stood in none, and a listing gives the A10 a float64 unit for 32 float32
units, where GA102's whitepaper has two for 128. Turing, GA102 and Ada have two float64 units a multiprocessor, which
also execute float64 matrix instructions and, as taken here, conversions.

Results per clock and multiprocessor of integers, conversions and special functions are the CUDA C++ Programming
Guide's, "Throughput of Native Arithmetic Instructions", and bytes of shared memory per clock the whitepapers'; these
were compared with nothing else.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

WARP = 32
FLOAT64, FLOAT32, INTEGER, SPECIAL, ISSUE, LOADS = "float64", "float32", "integer", "special", "issue", "load_store"
TENSOR16, TENSOR32 = "tensor_float16", "tensor_tf32"

SHAPE = re.compile(r"\.(\d+)x(\d+)x(\d+)")
PACKED = {"884": 8 * 8 * 4, "1688": 16 * 8 * 8, "16816": 16 * 8 * 16, "16832": 16 * 8 * 32, "1684": 16 * 8 * 4}
BRANCHES = ("BRA", "BSSY", "BSYNC", "BMOV", "BAR", "EXIT", "NOP", "WARPSYNC", "DEPBAR", "YIELD", "CALL", "RET", "BREAK")
FLOAT32_KINDS = ("FADD", "FMUL", "FFMA", "HADD2", "HMUL2", "HFMA2", "FSWZADD")
LOAD_KINDS = (
    "LDG",
    "STG",
    "LDS",
    "STS",
    "LDL",
    "STL",
    "LDSM",
    "STSM",
    "SHFL",
    "LDGSTS",
    "ATOM",
    "ATOMS",
    "ATOMG",
    "RED",
)


@dataclass(frozen=True)
class Gpu:
    """A GPU's published figures.

    Attributes:
        capability: compute capability, 75 for 7.5.
        clock_ghz: boost clock.
        float32, float64: additions, multiplications or both fused in one, per clock and multiprocessor.
        float64_matrix: the same of float64 matrix instructions; equal to `float64` where the same units execute them.
        float64_conversions: conversions from and to 64-bit types per clock and multiprocessor.
        float16_tflops, tf32_tflops: dense matrix products with float32 sums; 0 where there are none.
        load_bytes: of shared memory or L1 cache per clock and multiprocessor.
        memory_gb_s: GPU memory's bandwidth, GB/s.
        pcie_gb_s: the bus's bandwidth in each direction, GB/s.
        source: the data sheet.
    """

    name: str
    capability: int
    multiprocessors: int
    clock_ghz: float
    float32: int
    float64: int
    float64_matrix: int
    float64_conversions: int
    float16_tflops: float
    tf32_tflops: float
    load_bytes: int
    memory_gb_s: float
    pcie_gb_s: float
    shared_memory: int
    source: str

    @property
    def float32_tflops(self) -> float:
        """The published float32 rate."""
        return 2e-3 * self.float32 * self.multiprocessors * self.clock_ghz

    @property
    def float64_tflops(self) -> float:
        """The published float64 rate, matrix instructions left out."""
        return 2e-3 * self.float64 * self.multiprocessors * self.clock_ghz


GPUS = (
    Gpu("T4", 75, 40, 1.59, 64, 2, 2, 2, 65, 0, 64, 320, 16, 65536, "NVIDIA T4 data sheet; Turing whitepaper"),
    Gpu("A10", 86, 72, 1.695, 128, 2, 2, 2, 125, 62.5, 128, 600, 32, 101376, "NVIDIA A10 data sheet; GA102 whitepaper"),
    Gpu("L4", 89, 58, 2.04, 128, 2, 2, 2, 121, 60, 128, 300, 32, 101376, "NVIDIA L4 data sheet; Ada whitepaper"),
    Gpu("L40S", 89, 142, 2.52, 128, 2, 2, 2, 362, 183, 128, 864, 32, 101376, "NVIDIA L40S data sheet; Ada whitepaper"),
    Gpu("A100", 80, 108, 1.41, 64, 32, 64, 16, 312, 156, 128, 2039, 32, 166912, "NVIDIA A100 80GB SXM data sheet"),
    Gpu("H100", 90, 132, 1.98, 128, 64, 128, 16, 989, 494, 128, 3350, 64, 232448, "NVIDIA H100 SXM data sheet"),
    Gpu("H200", 90, 132, 1.98, 128, 64, 128, 16, 989, 494, 128, 4800, 64, 232448, "NVIDIA H200 SXM data sheet"),
)


def float64_instructions(executed: Mapping[str, float]) -> dict[str, float]:
    """Return how many warp instructions are float64 arithmetic, float64 products of matrices, and conversions."""
    found = {"arithmetic": 0.0, "matrix": 0.0, "conversions": 0.0}
    for opcode, count in executed.items():
        if (kind := float64_kind(opcode)) is not None:
            found[kind] += count
    return found


def float64_kind(opcode: str) -> str | None:
    """Return which of `float64_instructions` an opcode is, None if none."""
    kind, *modifiers = opcode.split(".")
    if kind == "DMMA":
        return "matrix"
    if kind in ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX"):
        return "arithmetic"
    if kind in ("F2F", "I2F", "F2I", "FRND") and {"F64", "S64", "U64"} & set(modifiers):
        return "conversions"
    return None


def seconds(executed: Mapping[str, float], issued: float, gpu: Gpu) -> dict[str, float]:
    """Return how long each pipe of a GPU takes at least for so many warp instructions, by the pipe's name."""
    clocks: defaultdict[str, float] = defaultdict(float)
    products: defaultdict[str, float] = defaultdict(float)
    double = float64_instructions(executed)
    for opcode, count in executed.items():
        kind = opcode.split(".")[0]
        if float64_kind(opcode) is not None or kind in BRANCHES or kind.startswith("U"):
            if kind == "DMMA":
                clocks[FLOAT64] += count * multiplications(opcode) / gpu.float64_matrix
            continue
        if kind in ("HMMA", "IMMA", "HGMMA", "IGMMA"):
            ways = 2 if "S8" in opcode else 1  # every GPU here multiplies int8 twice as fast as float16
            products[TENSOR32 if "TF32" in opcode else TENSOR16] += count * multiplications(opcode) / ways
        elif kind in LOAD_KINDS:
            clocks[LOADS] += count * WARP * access_bytes(opcode) / gpu.load_bytes
        elif kind in FLOAT32_KINDS or kind == "IMAD":
            clocks[FLOAT32] += count * WARP / gpu.float32
        elif kind in ("MUFU", "F2F", "F2I", "I2F", "FRND", "POPC", "FLO", "BREV"):
            clocks[SPECIAL] += count * WARP / 16
        else:
            clocks[INTEGER] += count * WARP / 64
    clocks[FLOAT64] += double["arithmetic"] * WARP / gpu.float64
    clocks[FLOAT64] += double["conversions"] * WARP / gpu.float64_conversions
    clocks[ISSUE] += (issued - sum(double.values())) / 4
    found = {pipe: count / (gpu.multiprocessors * gpu.clock_ghz * 1e9) for pipe, count in clocks.items()}
    for pipe, rate in ((TENSOR16, gpu.float16_tflops), (TENSOR32, gpu.tf32_tflops)):
        if products[pipe]:
            found[pipe] = 2 * products[pipe] / (rate * 1e12)
    return found


def multiplications(opcode: str) -> int:
    """Return how many multiplications a warp's matrix instruction makes; of a warp group's, its warp's quarter."""
    if shape := SHAPE.search(opcode):
        return int(shape[1]) * int(shape[2]) * int(shape[3]) // (4 if "GMMA" in opcode else 1)
    return next(PACKED[part] for part in opcode.split(".") if part in PACKED)


def access_bytes(opcode: str) -> int:
    """Return how many bytes a thread reads or writes at least; of a shuffle, which takes the same way, its 4."""
    parts = opcode.split(".")
    if parts[0] == "LDSM":
        return 4 * int(parts[-1]) if parts[-1].isdigit() else 4
    return next((size for name, size in (("128", 16), ("64", 8)) if name in parts), 4)
