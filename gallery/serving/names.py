"""The names of served exhibits, for commands; the entries only carry `services.py`."""

from __future__ import annotations

from gallery.errors import GalleryError
from gallery.serving.services import SERVICES, Service


def service_of(name: str) -> Service:
    """Return an exhibit's service; raise `GalleryError` if it is not served."""
    if name not in SERVICES:
        raise GalleryError(f"The gallery serves no exhibit {name}; it serves {', '.join(SERVICES)}.")
    return SERVICES[name]
