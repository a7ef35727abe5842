"""Pictures of the steps that multiply matrices: tiles, their order, and the epilogue of a product."""

from __future__ import annotations

from gallery.pictures.shapes import Picture

NOW = 1
"""The block of K that the product's picture shows at work."""


def grouped(tile: int, high: int, wide: int, group: int) -> tuple[int, int]:
    """Return row and column of a tile, as `grouped` in `gallery/kernels/matmul.py`."""
    first = tile // (group * wide) * group
    rows = min(high - first, group)
    return first + tile % (group * wide) % rows, tile % (group * wide) // rows


def needed(places: list[tuple[int, int]]) -> int:
    """Return how many strips of A and B these tiles of C read: one of A for each row, one of B for each column."""
    return len({i for i, _ in places}) + len({j for _, j in places})


def matmul() -> Picture:
    """A tile of C goes along K; and the order of tiles."""
    picture = Picture(424, "A program owns a tile of C and goes along K; tiles in groups share what they read.")
    size, cx, cy = 30, 260, 196

    def in_a(i: int, k: int) -> str:
        return ("0 now" if k // 2 == NOW else "0") if 2 <= i < 4 else "plain"

    def in_b(k: int, j: int) -> str:
        return ("1 now" if k // 2 == NOW else "1") if 2 <= j < 4 else "plain"

    picture.cells(cx - 210, cy, 6, 6, size, in_a)
    picture.cells(cx, cy - 160, 6, 6, size, in_b, height=25)
    picture.cells(cx, cy, 6, 6, size, lambda i, j: "2" if 2 <= i < 4 and 2 <= j < 4 else "plain")
    picture.outline(cx + 2 * size, cy + 2 * size, 2 * size, 2 * size, "2")
    picture.text(cx - 210, cy - 12, "A [M, K]", 15, "start", bold=True)
    picture.text(cx + 192, 52, "B [K, N]", 15, "start", bold=True)
    picture.text(cx + 192, cy + 18, "C [M, N]", 15, "start", bold=True)
    picture.note(50, 58, "Dark: the blocks of K that", "are multiplied now; the next", "are on their way.")
    picture.text(
        480, 408, "every number of a block meets a whole row or column of the other: loaded once, used many times", 14
    )
    top, side = 84, 24
    for left, title, group in ((570, "row after row", 1), (766, "in groups of 3", 3)):
        running = [grouped(tile, 6, 6, group) for tile in range(9)]
        numbers = {grouped(tile, 6, 6, group): tile for tile in range(36)}
        picture.text(left + 3 * side, top - 18, title, 15, bold=True)
        picture.cells(
            left, top, 6, 6, side,
            lambda i, j, running=running: "2" if (i, j) in running else "plain",
            lambda i, j, numbers=numbers: numbers[i, j],
        )  # fmt: skip
        strips = needed(running)
        picture.text(left + 3 * side, top + 6 * side + 26, f"{strips} strips for 9 tiles", 14, bold=True)
    picture.text(735, 40, "the order of tiles of C", 15, bold=True)
    picture.note(
        570,
        300,
        "Programs that run at once share a cache.",
        "Green: the nine that run first. Each row of tiles",
        "needs a strip of A, each column one of B.",
    )
    return picture


def matmul_relu() -> Picture:
    """Three operations, or one with an epilogue."""
    picture = Picture(314, "Three operations go through memory five times with M · N numbers, one kernel once.")
    picture.text(60, 38, "three operations", 15, "start", bold=True)
    picture.box(60, 120, 840, 34, "plain", "memory", bold=True)
    for left, text in ((150, "product"), (430, "+ bias"), (710, "max(·, 0)")):
        picture.box(left, 52, 120, 38, "1", text, round=8)
    for x in (240, 520, 800):
        picture.arrow(x, 92, x, 117, "1")
    for x in (460, 740):
        picture.arrow(x, 118, x, 93, "1")
    picture.arrow(180, 118, 180, 93, "1")
    for x, text in ((158, "A, B"), (258, "C"), (444, "C"), (538, "C"), (724, "C"), (818, "Y")):
        picture.text(x, 110, text, 12)
    picture.text(60, 200, "one kernel", 15, "start", bold=True)
    picture.box(60, 266, 840, 30, "plain", "memory", bold=True)
    picture.box(230, 186, 500, 48, "2", "", round=8)
    picture.box(250, 192, 150, 36, "2 now", "product", round=8)
    picture.box(420, 192, 130, 36, "2 now", "+ bias", round=8)
    picture.box(570, 192, 140, 36, "2 now", "max(·, 0)", round=8)
    picture.arrow(300, 264, 300, 237, "2")
    picture.arrow(660, 236, 660, 263, "2")
    picture.text(276, 256, "A, B", 12)
    picture.text(676, 256, "Y", 12)
    picture.note(750, 206, "the tile stays", "in registers")
    return picture


def convolution() -> Picture:
    """The matrix that is never written."""
    picture = Picture(362, "Each pixel of y is a row of nine taps; the matrix of these rows is never written.")
    size, left, top = 28, 50, 72
    picture.text(left + 3.5 * size, 40, "x [5, 5], padded by 1", 15, bold=True)
    picture.cells(left, top, 7, 7, size, lambda i, j: "plain" if 1 <= i < 6 and 1 <= j < 6 else "mask")
    picture.outline(left + 2, top + 2, 3 * size - 2, 3 * size - 2, "0")
    picture.outline(left + size + 2, top + size + 2, 3 * size - 2, 3 * size - 2, "1")
    picture.note(50, 294, "Zeros lie beyond the edge: the mask", "gives them, nobody stores them.")
    picture.text(530, 40, "the implicit matrix: pixels × taps", 15, bold=True)
    picture.box(386, 56, 288, 10 * 22 + 16, "blank", dashed=True, round=6)
    taps, high = 9, 22
    paints = {0: "0", 6: "1"}

    def tap(row: int, column: int) -> str:
        if row == 0 and (column < 3 or column % 3 == 0):
            return "mask"
        return paints.get(row, "blank")

    picture.cells(
        404, 64, 10, taps, 28, tap,
        lambda i, j: f"{j // 3},{j % 3}" if i in paints and tap(i, j) != "mask" else "", height=high,
    )  # fmt: skip
    picture.arrow(left + 3 * size + 2, top + 14, 400, 75, "0")
    picture.arrow(left + 4 * size + 3, top + 3 * size, 400, 64 + 6.5 * high, "1")
    picture.note(
        530,
        312,
        "The first ten of 25 rows. A program loads a block",
        "straight from x, which is in memory once.",
        anchor="middle",
    )
    picture.text(712, 170, "·", 26, bold=True)
    picture.text(752, 40, "w", 15, bold=True)
    picture.cells(738, 72, 9, 1, 28, "2", height=high)
    picture.text(800, 170, "=", 22, bold=True)
    picture.text(850, 40, "y", 15, bold=True)
    picture.cells(836, 64, 10, 1, 28, lambda i, _: f"{paints[i]} now" if i in paints else "plain", height=high)
    picture.note(712, 292, "one column")
    picture.note(712, 311, "for each filter")
    picture.note(836, 311, "25 pixels")
    return picture


def attention() -> Picture:
    """Blocks of queries over blocks of keys, under the diagonal."""
    picture = Picture(400, "A program keeps a block of queries and goes along the keys; s is never written.")
    size, left, top, blocks = 54, 170, 104, 4
    picture.text(left + 2 * size, 36, "blocks of keys and values", 15, bold=True)
    picture.text(90, 88, "queries", 15, bold=True)
    for j in range(blocks):
        picture.box(left + j * size, 50, size - 6, 40, "2 now" if j == 1 else "2", f"k{j}, v{j}")
    for i in range(blocks):
        picture.box(66, top + i * size, 70, size - 6, f"{i}" if i < 3 else "3", f"q{i}", bold=True)
        picture.arrow(138, top + i * size + 24, left - 4, top + i * size + 24, str(i))
        for j in range(blocks):
            x, y = left + j * size, top + i * size
            if j < i:
                picture.box(x, y, size - 6, size - 6, f"{i} now" if (i, j) == (3, 1) else str(i), "all")
            elif j == i:
                small = (size - 6) / 4
                picture.cells(x, y, 4, 4, small, lambda r, c, i=i: str(i) if c <= r else "mask")
            else:
                picture.box(x, y, size - 6, size - 6, "blank", "–", dashed=True)
    picture.note(
        66,
        346,
        "Causal: blocks beyond the diagonal are left out,",
        "those on it are masked, all others need no mask.",
        "s lives in registers, one block at a time.",
    )
    picture.text(470, 60, "what program 3 does with one block of keys", 15, "start", bold=True)
    picture.box(470, 78, 430, 226, "blank", round=8)
    picture.box(490, 94, 180, 40, "3 now", "s = q3 · k1", round=8)
    picture.note(690, 119, "a block of s, in registers")
    picture.box(490, 146, 180, 40, "3", "higher = max(top, s)", round=8)
    picture.note(690, 171, "the largest so far")
    picture.box(490, 198, 180, 40, "3", "p = 2^(s − higher)", round=8)
    picture.note(690, 223, "never above 1")
    picture.box(490, 250, 180, 40, "3 now", "mean += p · v1", round=8)
    picture.note(690, 266, "mean and total shrink", "before: · 2^(top − higher)")
    for y in (134, 186, 238):
        picture.arrow(580, y, 580, y + 12, "3")
    picture.note(
        470,
        330,
        "As the online softmax: a row of s is as long as there are",
        "tokens, and a program sees it block by block. At the end",
        "o = mean / total is written, once.",
    )
    return picture
