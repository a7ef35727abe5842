"""The names of served exhibits, for commands; the entries carry `services.py` alone."""

from __future__ import annotations

from gallery.errors import GalleryError
from gallery.serving.services import SERVICES, Service


def service_of(name: str) -> Service:
    """Return how an exhibit is asked; raise `GalleryError` where it is not served."""
    if name not in SERVICES:
        raise GalleryError(f"The gallery serves no exhibit {name}; it serves {', '.join(SERVICES)}.")
    return SERVICES[name]
