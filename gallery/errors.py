"""The gallery's error: one sentence that tells the user why a command failed."""

from triton_regressors.errors import TritonRegressorsError


class GalleryError(TritonRegressorsError):
    """A name, a size or a type is unknown to the gallery, or a command needs a GPU."""
