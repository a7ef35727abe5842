"""The language model's one text, seconds of training on it, and the continuation of a beginning."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from gallery.levels.models import LanguageModel
from gallery.levels.parts import IN_TORCH, Parts

TEXT = "Read each number once, keep what you need, write the answer once; then measure."
TOKENS, CONTEXT = 128, 80
STEPS, RATE, SEED = 60, 5e-3, 7


def encoded(text: str) -> torch.Tensor:
    """Return a text's tokens, its ASCII codes, with zeros up to the context: `[1, CONTEXT]`."""
    codes = list(text.encode("ascii"))
    return torch.tensor([codes + [0] * (CONTEXT - len(codes))])


@functools.cache
def weights() -> dict[str, torch.Tensor]:
    """Return the trained weights: a model in torch eager learns the text by heart, from drawn weights, on a CPU."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a model keeps several waiting for each other
    with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = LanguageModel(IN_TORCH, TOKENS, CONTEXT)
        optimiser = torch.optim.AdamW(model.parameters(), RATE)
        tokens, length = encoded(TEXT), len(TEXT)
        for _ in range(STEPS):
            loss = torch.nn.functional.cross_entropy(model(tokens)[0, : length - 1], tokens[0, 1:length])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    torch.set_num_threads(threads)
    return {name: value.detach() for name, value in model.state_dict().items()}


def language_model(parts: Parts) -> LanguageModel:
    """Return the trained model of a level's parts."""
    model = LanguageModel(parts, TOKENS, CONTEXT)
    model.load_state_dict(weights())
    return model.requires_grad_(False)


def continued(model: Callable[[torch.Tensor], torch.Tensor], beginning: str, count: int, device: torch.device) -> str:
    """Return a beginning and the `count` tokens that the model finds likeliest, one after the other.

    Every call takes the whole context: later tokens do not change a token's scores, because the model is causal.
    """
    tokens = encoded(beginning).to(device)
    for place in range(len(beginning), len(beginning) + count):
        tokens[0, place] = model(tokens)[0, place - 1].argmax()
    return bytes(tokens[0, : len(beginning) + count].tolist()).decode("ascii")
