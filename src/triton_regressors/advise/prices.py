"""Hourly prices of hosts, and the resulting price of a million rows: the only place with prices.

They are list prices of Amazon EC2, on demand, Linux, us-east-1, from third-party tables published in April 2026; those
of p5 and p5en had no date. Compare them with https://aws.amazon.com/ec2/pricing/on-demand/. All hosts have 16 vCPUs
except the H200's, which is an eighth of p5en.48xlarge: it is not sold alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

AS_OF = "Amazon EC2 on demand, us-east-1, April 2026"


@dataclass(frozen=True)
class Host:
    """A host for hire: the instance, its hardware, and US dollars an hour; `names` are words of its GPU's own name."""

    instance: str
    what: str
    usd_per_hour: float
    names: tuple[str, ...] = ()


CPU = Host("c7i.4xlarge", "16 vCPUs", 0.714)
GPUS = (
    Host("g4dn.4xlarge", "T4", 1.204, ("T4",)),
    Host("g6.4xlarge", "L4", 1.3232, ("L4",)),
    Host("g5.4xlarge", "A10G", 1.624, ("A10", "A10G")),
    Host("p5.4xlarge", "H100", 6.88, ("H100",)),
    Host("p5en.48xlarge / 8", "H200", 7.912, ("H200",)),
)
CPU_CORES = 16


def price_of(device: str) -> Host | None:
    """Return the host of a GPU by the GPU's own name, or None for a GPU without a price here."""
    words = set(device.replace("-", " ").split())
    return next((host for host in GPUS if words & set(host.names)), None)


def usd_per_million(usd_per_hour: float, rows_per_s: float) -> float:
    """Return US dollars for a million rows on a host that answers `rows_per_s` and is never idle."""
    return usd_per_hour / 3600 / rows_per_s * 1e6


def shown(usd: float) -> str:
    """Return an amount with two significant digits."""
    return f"{usd:.{max(1 - math.floor(math.log10(usd)), 0)}f}" if usd > 0 else "0"
