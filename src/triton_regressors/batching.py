"""The batching fields of a model's configuration: one record that checks and sets them, for export and compare."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from triton_regressors.errors import TritonRegressorsError

INT32 = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Batching:
    """A Triton server's settings for batches of requests; None leaves the value of the model's configuration.

    Args:
        dynamic_batching: whether requests are gathered into batches.
        max_queue_delay_us: how long a request may wait for others, in microseconds.
        preferred_batch_sizes: batch sizes in rows that the server should try to make; if empty, the largest possible.
        instances: how many copies run side by side in each instance group; on a GPU group, on each of its GPUs.

    A wrong value raises the error that `refusal` returns for the message.
    """

    dynamic_batching: bool | None = None
    max_queue_delay_us: int | None = None
    preferred_batch_sizes: tuple[int, ...] | None = None
    instances: int | None = None

    whole_numbers = MappingProxyType({"max_queue_delay_us": (0, 2**64 - 1), "instances": (1, INT32)})
    """The least and the most of each field that is a whole number, as the protobuf holds it."""

    def __post_init__(self) -> None:
        for name, (least, most) in self.whole_numbers.items():
            value = getattr(self, name)
            if value is not None and not _whole(value, least, most):
                limit = f" and at most {most}" if _whole(value, least) else ""
                raise self.refusal(f"{name} must be a whole number of at least {least}{limit}, not {value!r}.")
        if self.dynamic_batching is not None and not isinstance(self.dynamic_batching, bool):
            raise self.refusal(f"dynamic_batching must be true or false, not {self.dynamic_batching!r}.")
        sizes = self.preferred_batch_sizes
        if sizes is not None:
            if not isinstance(sizes, tuple | list) or not all(_whole(size, 1) for size in sizes):
                shown = list(sizes) if isinstance(sizes, tuple) else sizes
                raise self.refusal(f"preferred_batch_sizes must be whole numbers of at least 1, not {shown!r}.")
            object.__setattr__(self, "preferred_batch_sizes", tuple(sizes))
        if self.dynamic_batching is False and (self.max_queue_delay_us or sizes):
            raise self.refusal("max_queue_delay_us and preferred_batch_sizes need dynamic_batching.")

    def refusal(self, reason: str) -> TritonRegressorsError:
        """Return the error that says why this record is invalid or cannot be applied."""
        return TritonRegressorsError(reason)

    def apply(self, config: Any) -> Any:
        """Return a copy of a `ModelConfig` with these fields set and everything else unchanged.

        A configuration without an instance group gets one if `instances` is given.
        """
        changed = copy.deepcopy(config)
        batched = (self.dynamic_batching, self.max_queue_delay_us, self.preferred_batch_sizes) != (None, None, None)
        scheduler = config.WhichOneof("scheduling_choice")
        if batched and scheduler not in (None, "dynamic_batching"):
            raise self.refusal(f"dynamic_batching cannot be set for {config.name!r}, which uses {scheduler}.")
        stated = self.preferred_batch_sizes
        sizes = config.dynamic_batching.preferred_batch_size if stated is None else stated
        if self.dynamic_batching is False:
            changed.ClearField("dynamic_batching")
        elif max(sizes, default=0) > config.max_batch_size:
            raise self.refusal(
                f"preferred_batch_sizes holds {max(sizes)}, which is more than max_batch_size {config.max_batch_size}."
            )
        elif batched:
            changed.dynamic_batching.preferred_batch_size[:] = sizes
            if self.max_queue_delay_us is not None:
                changed.dynamic_batching.max_queue_delay_microseconds = self.max_queue_delay_us
            changed.dynamic_batching.SetInParent()
        if self.instances is not None:
            for group in changed.instance_group or [changed.instance_group.add()]:
                group.count = self.instances
        return changed


def _whole(value: Any, least: int, most: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
