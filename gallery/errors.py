"""What a command of the gallery cannot do, as a sentence for its user."""

from triton_regressors.errors import TritonRegressorsError


class GalleryError(TritonRegressorsError):
    """A name, a size or a type that the gallery does not have, or something that needs a GPU."""
