"""Occupancy of a multiprocessor: how many of a kernel's programs run on it at once, and what keeps more from it.

A program is a block of threads to the GPU. It needs a place for itself, registers, shared memory and places for warps;
the scarcest of these decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

WARP = 32
REGISTERS_AT_ONCE = 256
"""A warp's registers are given in multiples of this number."""

PARTS = 4
"""A multiprocessor's registers and warps are in four equal parts; a warp's are all in one."""

SHARED_AT_ONCE = 128
"""A program's shared memory is given in multiples of so many bytes."""

RESERVED = 1024
"""The bytes of shared memory that a program takes in addition, from capability 8.0 on."""

MOST_PROGRAMS = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24}
"""The places for programs by capability, if they are not 32."""


@dataclass(frozen=True)
class Multiprocessor:
    """What one multiprocessor has."""

    threads: int
    registers: int
    shared_bytes: int
    programs: int
    reserved_bytes: int = RESERVED

    @classmethod
    def of(cls, device: torch.device) -> Multiprocessor:
        """Return that of a GPU."""
        found = torch.cuda.get_device_properties(device)
        capability = (found.major, found.minor)
        return cls(
            found.max_threads_per_multi_processor,
            found.regs_per_multiprocessor,
            found.shared_memory_per_multiprocessor,
            MOST_PROGRAMS.get(capability, 32),
            RESERVED if capability >= (8, 0) else 0,
        )


@dataclass(frozen=True)
class Occupancy:
    """How many programs of a kernel run at once on a multiprocessor."""

    programs: int
    share: float
    """Their warps as a share of all that could run."""

    bound_by: str
    """What keeps more programs from running: "warps", "registers", "shared memory" or "programs"."""


def occupancy(registers: int, shared_bytes: int, threads: int, has: Multiprocessor) -> Occupancy:
    """Return the occupancy of programs with so many registers a thread, bytes of shared memory and threads."""
    warps = -(-threads // WARP)
    most_warps = has.threads // WARP
    of_warp = -(-registers * WARP // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    warps_by_registers = has.registers // PARTS // of_warp * PARTS if of_warp else most_warps
    shared = -(-(shared_bytes + has.reserved_bytes) // SHARED_AT_ONCE) * SHARED_AT_ONCE
    fit = {
        "warps": most_warps // warps,
        "registers": warps_by_registers // warps,
        "shared memory": has.shared_bytes // shared if shared else has.programs,
        "programs": has.programs,
    }
    bound_by = min(fit, key=fit.__getitem__)
    return Occupancy(fit[bound_by], fit[bound_by] * warps / most_warps, bound_by)
