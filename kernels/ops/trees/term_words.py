"""Words of terms: a bit for each of 32 rows says whether the row does not meet a term. Patterns are made of words.

Many parts of trees ask the same terms. Each term is asked once of each row, and a part then takes the answers of 32
rows at a time.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ...plan.devices import early_launch
from ...plan.plan import Parameters
from .feature_major import feature_major
from .terms import add_unmet

TILE, FEW_TILE = (128, 8), (64, 4)
"""The terms that a program asks, one with each lane, and the words of each that it makes; fewer to fill a GPU."""

FEW_ANSWERS = 2**23
"""The most terms times rows of which programs make few words."""

LANES = 256
"""The parts of a program of patterns, times the words that it takes of each term."""

ROWS = 128
"""The rows whose numbers of a feature follow each other."""

MOST_BITS = 32
"""The most conditions that are turned together."""


@triton.jit(do_not_specialize=["blocks"])
def words_kernel(
    x,  # float32 or float64 [blocks of rows, FEATURES, ROWS]
    feature,  # int32 [terms], ascending
    lower,  # float32 or float64 [terms]
    upper,  # float32 or float64 [terms]
    flags,  # uint8 [terms]
    sets,  # int32 [sets, WORDS]
    words,  # int32 [terms, blocks of rows, ROWS / 32]
    blocks,
    COUNT: tl.constexpr,  # of terms
    FEATURES: tl.constexpr,
    WORDS: tl.constexpr,  # of a set; 0 if no term asks for a category
    FLOOR: tl.constexpr,  # whether a number is rounded down to a category instead of towards 0
    MISSING: tl.constexpr,  # whether NaN meets a term
    ROWS: tl.constexpr,
    BITS: tl.constexpr,
    BLOCK_TERMS: tl.constexpr,
    BLOCK_WORDS: tl.constexpr,
    EARLY: tl.constexpr,  # see `early_launch`
):
    """Write which rows do not meet terms: bit `BITS · (row % (32 / BITS)) + row // (32 / BITS)` of a word of 32 rows.

    A program makes `BLOCK_WORDS` words of `BLOCK_TERMS` terms. A lane has all rows of a term, of which it reads four at
    a time. Its neighbours mostly have the same feature, and read the same numbers.
    """
    term = tl.program_id(0) * BLOCK_TERMS + tl.arange(0, BLOCK_TERMS)
    known = term < COUNT
    number = tl.load(feature + term, mask=known, other=0).to(tl.int64)[:, None]
    least = tl.load(lower + term, mask=known, other=0.0)[:, None]
    most = tl.load(upper + term, mask=known, other=0.0)[:, None]
    flag = tl.load(flags + term, mask=known, other=0).to(tl.int32)[:, None]
    if EARLY:
        gdc_wait()
    together: tl.constexpr = 32 // BITS
    made = ()
    for word in tl.static_range(BLOCK_WORDS):
        block = tl.program_id(1) * (BLOCK_WORDS * 32 // ROWS) + word * 32 // ROWS
        at = x + (block * FEATURES + number) * ROWS + word * 32 % ROWS
        unmet = tl.zeros([BLOCK_TERMS, 4], tl.int32)
        for step in tl.static_range(0, 32, 4):
            row = step + tl.arange(0, 4)[None, :]
            bit = 1 << (row % together * BITS + row // together)
            unmet = add_unmet(
                unmet, bit, tl.load(at + row), least, most, flag, sets, WORDS=WORDS, FLOOR=FLOOR, MISSING=MISSING
            )
        made = made + (tl.sum(unmet, axis=1),)
    place = tl.program_id(1) * BLOCK_WORDS + tl.arange(0, BLOCK_WORDS)[None, :]
    at = words + term.to(tl.int64)[:, None] * (blocks * (ROWS // 32)) + place
    if EARLY:
        gdc_launch_dependents()
    tl.store(at, side_by_side(made, BLOCK_WORDS), mask=known[:, None])


@triton.jit(do_not_specialize=["blocks", "used"])
def patterns_of_words_kernel(
    words,  # int32 [terms, blocks of rows, ROWS / 32]
    asked,  # int32 [BITS · GROUPS, PARTS], −1 past a part's last condition
    first_other,  # int32 [PARTS + 1], of each part's further terms, then their number
    other_terms,  # int32
    other_conditions,  # int32
    patterns,  # int32 [rows / TOGETHER, PARTS, TOGETHER / 32, BITS, GROUPS]
    blocks,
    used,  # words of a term, those of the patterns' rows
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
    TOGETHER: tl.constexpr,
    BITS: tl.constexpr,
    GROUPS: tl.constexpr,
    OTHERS: tl.constexpr,  # whether a condition has several terms
    BLOCK_PARTS: tl.constexpr,
    BLOCK_WORDS: tl.constexpr,
    EARLY: tl.constexpr,  # see `early_launch`
):
    """Write patterns of `BITS · GROUPS` bits, those of 32 rows at a time."""
    part = tl.program_id(0) * BLOCK_PARTS + tl.arange(0, BLOCK_PARTS)[:, None]
    word = tl.program_id(1) * BLOCK_WORDS + tl.arange(0, BLOCK_WORDS)[None, :]
    known, inside = part < PARTS, word < used
    count = blocks * (ROWS // 32)
    in_block: tl.constexpr = TOGETHER // 32
    into = ((word // in_block).to(tl.int64) * PARTS + part) * in_block + word % in_block
    into = (into * (BITS * GROUPS))[:, :, None] + tl.arange(0, BITS)[None, None, :] * GROUPS
    for group in tl.static_range(GROUPS):
        terms, unmet = (), ()
        for condition in tl.static_range(BITS):
            terms = terms + (tl.load(asked + (group * BITS + condition) * PARTS + part, mask=known, other=-1),)
        if EARLY and group == 0:
            gdc_wait()
        for condition in tl.static_range(BITS):
            at = words + terms[condition].to(tl.int64) * count + word
            unmet = unmet + (tl.load(at, mask=(terms[condition] >= 0) & inside, other=0),)
        if OTHERS:
            first = tl.load(first_other + part, mask=known, other=0)
            end = tl.load(first_other + part + 1, mask=known, other=0)
            for step in tl.range(0, tl.max(end - first)):
                there = first + step < end
                other = tl.load(other_terms + first + step, mask=there, other=0)
                place = tl.load(other_conditions + first + step, mask=there, other=-1) - group * BITS
                more = tl.load(words + other.to(tl.int64) * count + word, mask=there & inside, other=0)
                unmet = with_more(unmet, more, place, BITS)
        tl.store(patterns + into + group, side_by_side(turned(unmet, BITS), BITS), mask=(known & inside)[:, :, None])


@triton.jit
def with_more(words, more, number, COUNT: tl.constexpr):
    """Return words, where the one of a number has the bits of `more` too; no word has another number."""
    found = ()
    for each in tl.static_range(COUNT):
        found = found + (words[each] | tl.where(number == each, more, 0),)
    return found


@triton.jit
def turned(words, BITS: tl.constexpr):
    """Return the patterns of 32 rows, `32 / BITS` in each word, from `BITS` words with a bit for each row.

    Bit `BITS · j + k` of word c becomes bit `BITS · j + c` of word k: each stage swaps one binary digit of k with that
    of c, in a few instructions for all rows.
    """
    for stage in tl.static_range(5):
        if BITS >> stage > 1:
            words = _swapped(words, BITS >> (stage + 1), BITS)
    return words


@triton.jit
def _swapped(words, DIGIT: tl.constexpr, BITS: tl.constexpr):
    low: tl.constexpr = 0xFFFFFFFF // ((1 << DIGIT) + 1)  # the bits whose places lack the digit
    found = ()
    for number in tl.static_range(BITS):
        if number & DIGIT == 0:
            found = found + ((words[number] & low) | ((words[number + DIGIT] & low) << DIGIT),)
        else:
            found = found + (((words[number - DIGIT] >> DIGIT) & low) | (words[number] & ~low),)
    return found


@triton.jit
def side_by_side(tensors, COUNT: tl.constexpr):
    """Return tensors of one shape as one, whose last axis is their number."""
    joined = tensors
    for stage in tl.static_range(5):
        if COUNT >> stage > 1:
            joined = _joined(joined, COUNT >> (stage + 1))
    return tl.reshape(joined[0], tensors[0].shape + (COUNT,))


@triton.jit
def _joined(tensors, HALF: tl.constexpr):
    found = ()
    for number in tl.static_range(HALF):
        found = found + (tl.join(tensors[number], tensors[number + HALF]),)
    return found


def launch_words(
    parameters: Parameters, x: torch.Tensor, rows: int, patterns: torch.Tensor, constants: dict[str, Any]
) -> None:
    """Launch the kernels that write the patterns of the first `rows` rows.

    Args:
        parameters: the parameters that `LeafPatterns.word_parameters` returns, `upper` and `sets`.
        x: `[rows, features]`.
        rows: the number of rows.
        patterns: `[blocks of rows, parts, rows of a block]`, the last a multiple of 32.
        constants: those of terms, by their names in the kernel.
    """
    features, terms = x.shape[1], len(parameters["term_feature"])
    block_terms, block_words = FEW_TILE if terms * rows <= FEW_ANSWERS else TILE
    x = feature_major(x, rows, ROWS, parameters["upper"], multiple=block_words * 32 // ROWS)
    count = len(x) * ROWS // 32
    bits = 8 * patterns.itemsize
    blocks, parts, together = patterns.shape
    early = early_launch(patterns.device)
    words = parameters["asked"].new_empty(terms, count)
    words_kernel[(max(triton.cdiv(terms, block_terms), 1), count // block_words)](
        x=x,
        **{name: parameters[f"term_{name}"] for name in ("feature", "lower", "upper", "flags")},
        sets=parameters["sets"],
        words=words,
        blocks=len(x),
        COUNT=terms,
        FEATURES=features,
        ROWS=ROWS,
        BITS=min(bits, MOST_BITS),
        BLOCK_TERMS=block_terms,
        BLOCK_WORDS=block_words,
        **constants,
        **early,
        num_warps=block_terms // 32,
    )
    used = blocks * together // 32
    taken = min(triton.next_power_of_2(used), 32)
    block_parts = LANES // taken
    patterns_of_words_kernel[(triton.cdiv(parts, block_parts), triton.cdiv(used, taken))](
        words=words,
        **{name: parameters[name] for name in ("asked", "first_other", "other_terms", "other_conditions")},
        patterns=patterns.view(torch.int32),
        blocks=len(x),
        used=used,
        ROWS=ROWS,
        PARTS=parts,
        TOGETHER=together,
        BITS=min(bits, MOST_BITS),
        GROUPS=triton.cdiv(bits, MOST_BITS),
        OTHERS=len(parameters["other_terms"]) > 0,
        BLOCK_PARTS=block_parts,
        BLOCK_WORDS=taken,
        **early,
        num_warps=4,
    )
