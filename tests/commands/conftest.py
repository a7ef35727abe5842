"""The fixture that the commands' tests share with those of the clients."""

from tests.clients.conftest import write_model

__all__ = ["write_model"]
