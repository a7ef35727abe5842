"""The gallery's error: one sentence that tells the user why a command failed."""

from pathlib import Path

from triton_regressors.errors import TritonRegressorsError


class GalleryError(TritonRegressorsError):
    """A name, a size or a type is unknown to the gallery, or a command needs a GPU."""


def made(directory: Path) -> Path:
    """Return a directory for output, made if it was not there; raise `GalleryError` if it cannot be made."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GalleryError(f"The directory {directory} cannot be written: {error.strerror}.") from error
    return directory
