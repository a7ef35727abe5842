"""Pictures of the steps that compute each element of the answer separately, and of copies."""

from __future__ import annotations

from gallery.pictures.shapes import Picture


def map_() -> Picture:
    """Ten elements, blocks of four."""
    picture = Picture(268, "Three programs take four elements each; the last has two lanes without an element.")
    n, block, size, left = 10, 4, 53, 64
    for y, name in ((64, "x"), (160, "y")):
        picture.text(40, y + 35, name, 17, bold=True)
        picture.cells(
            left, y, 1, 12, size,
            lambda _, j: str(j // block) if j < n else "mask",
            lambda _, j, name=name: f"{name}{j}" if j < n else "",
        )  # fmt: skip
    for program in range(3):
        picture.brace(left + program * block * size, 50, block * size, f"program {program}", str(program))
    for j in range(n):
        picture.arrow(left + (j + 0.5) * size, 123, left + (j + 0.5) * size, 157, str(j // block))
    picture.text(left + 11 * size, 145, "masked", 13)
    picture.note(728, 84, "at = program · BLOCK + lane", "inside = at < n")
    picture.note(728, 150, "y = x + c, where inside:", "lanes beyond the end", "neither read nor write")
    picture.text(480, 248, "n = 10, BLOCK = 4: three programs, in any order and at the same time", 14)
    return picture


def zip_() -> Picture:
    """Two arrays in, one out."""
    picture = Picture(262, "Two arrays are read and one is written; each program has the same block of all three.")
    size, left = 46, 90
    for y, name, what in ((54, "x", "read 4 bytes"), (110, "y", "read 4 bytes"), (188, "z", "write 4 bytes")):
        picture.text(60, y + 30, name, 17, bold=True)
        picture.cells(left, y, 1, 12, size, lambda _, j: str(j // 4) if j < 10 else "mask")
        picture.note(668, y + 28, what)
    for program in range(3):
        picture.brace(left + program * 4 * size, 40, 4 * size, f"program {program}", str(program))
    for j in range(10):
        picture.arrow(left + (j + 0.5) * size, 158, left + (j + 0.5) * size, 185, str(j // 4))
    picture.brace(800, 110, 130, "float32", below=False)
    picture.text(865, 142, "12 bytes", 17, bold=True)
    picture.text(865, 164, "for one addition", 13)
    return picture


def map_2d() -> Picture:
    """Tiles, and the places of their elements in memory."""
    rows, columns, tile_rows, tile_columns = 6, 7, 3, 4
    picture = Picture(372, "A matrix in tiles, and where a tile's elements lie in memory: in rows, or in columns.")

    def tile(i: int, j: int) -> str:
        return str(i // tile_rows * 2 + j // tile_columns) if j < columns else "mask"

    picture.text(172, 36, "x [6, 7], tiles of 3 × 4", 15, bold=True)
    picture.cells(60, 52, rows, 8, 28, tile)
    picture.note(310, 78, "Four programs, a tile each.", "Each has its rows i and its columns j:")
    picture.text(310, 132, "address of x[i, j] = i · row stride + j · column stride", 15, "start", bold=True)
    picture.note(310, 166, "The mask is one of both directions: (i < rows) & (j < columns).")
    for y, strides, place, run in (
        (256, "rows lie together: strides 7, 1", lambda at: divmod(at, columns), "runs of 4 neighbours"),
        (
            324,
            "columns lie together (a transposed view): strides 1, 6",
            lambda at: (at % rows, at // rows),
            "runs of 3",
        ),
    ):
        picture.note(60, y - 10, f"memory, {strides}")
        picture.text(900, y - 10, run, 13, "end", colour="#2563eb", bold=True)
        picture.cells(
            60, y, 1, rows * columns, 20,
            lambda _, at, place=place: tile(*place(at)) if tile(*place(at)) == "0" else "plain",
        )  # fmt: skip
    return picture


def broadcast() -> Picture:
    """A column and a row make a tile."""
    picture = Picture(318, "A column and a row make a matrix; a program reads 3 + 4 numbers and writes 12.")
    left, top, size = 150, 90, 34

    def tile(i: int, j: int) -> str:
        return str(i // 3 * 2 + j // 4)

    picture.text(left + 4 * size, 36, "b [1, columns]", 15, bold=True)
    picture.text(66, 70, "a [rows, 1]", 15, bold=True)
    picture.cells(left, 46, 1, 8, size, lambda _, j: "1 now" if j >= 4 else "plain", lambda _, j: f"b{j}")
    picture.cells(84, top, 6, 1, size, lambda i, _: "1 now" if i < 3 else "plain", lambda i, _: f"a{i}")
    picture.cells(left, top, 6, 8, size, tile)
    picture.outline(left + 4 * size, top, 4 * size, 3 * size, "1")
    picture.arrow(121, top + 1.5 * size, left + 4 * size - 3, top + 1.5 * size, "1")
    picture.note(480, 100, "One program, one tile:")
    picture.text(480, 132, "reads 3 numbers of a and 4 of b,", 16, "start", bold=True)
    picture.text(480, 156, "writes 12 numbers of z.", 16, "start", bold=True)
    picture.note(
        480,
        200,
        "a[:, None] + b[None, :] happens in registers.",
        "With tiles of 32 × 128 it is 160 read for 4,096 written:",
        "the memory does little but write.",
    )
    return picture


def pooling() -> Picture:
    """Windows of three by three, down a strip."""
    picture = Picture(344, "Windows overlap; a program goes down a strip and holds what rows share in registers.")
    size, top = 32, 66
    picture.text(172, 40, "x: windows of 3 × 3", 15, bold=True)
    picture.cells(60, top, 6, 7, size, lambda i, j: "0" if 1 <= i < 4 and 2 <= j < 5 else "plain")
    picture.outline(60 + 2 * size, top + size, 3 * size, 3 * size, "0")
    picture.outline(60 + 2 * size + 4, top + 2 * size - 2, 3 * size, 3 * size, "1")
    picture.note(60, 286, "The next window below shares two of its", "three rows; all loads of them are shared.")
    picture.text(485, 40, "rows reduced across, held in registers", 15, bold=True)
    for row in range(6):
        y = top + row * size
        paint = "0" if row == 1 else "2" if row in (2, 3) else "1" if row == 4 else "plain"
        picture.box(370, y, 230, size - 5, paint, f"row {row}: loaded, reduced")
        picture.arrow(290, y + 13, 366, y + 13)
    picture.note(370, 286, "Each row is so once, not three times.", "Green: held for both windows.")
    picture.text(790, 40, "y", 15, bold=True)
    picture.box(720, top + 1.5 * size, 140, 40, "0", "rows 1, 2, 3")
    picture.box(720, top + 3.4 * size, 140, 40, "1", "rows 2, 3, 4")
    for row, target in ((1, 1.9), (2, 2.1), (3, 2.3)):
        picture.arrow(604, top + row * size + 13, 716, top + target * size, "0")
    for row, target in ((2, 3.8), (3, 4.0), (4, 4.2)):
        picture.arrow(604, top + row * size + 13, 716, top + target * size, "1")
    return picture


def copy() -> Picture:
    """Three ways to address a tile."""
    picture = Picture(
        322, "Pointers: an address each. Block pointers: shape, strides, place. Descriptors: the GPU's own."
    )
    size, top = 28, 58
    for left, paint, title in ((50, "0", "pointers"), (350, "1", "block pointers"), (620, "2", "tensor descriptors")):
        picture.text(left, 38, title, 16, "start", bold=True)
        picture.cells(left, top, 5, 6, size, lambda i, j, paint=paint: paint if 1 <= i < 4 and j >= 3 else "plain")
    picture.cells(
        50 + 3 * size, top + size, 3, 4, size,
        lambda _, j: "0" if j < 3 else "mask", lambda i, j: (i + 1) * 6 + j + 3 if j < 3 else "",
    )  # fmt: skip
    picture.outline(350 + 3 * size, top + size, 4 * size, 3 * size, "1")
    picture.outline(620 + 3 * size, top + size, 4 * size, 3 * size, "2")
    picture.arrow(620 + 7 * size + 3, top + 1.5 * size, 834, top + 1.5 * size, "2")
    picture.box(838, top + 8, 100, 56, "2 now", "the GPU's", "copy engine", round=8)
    picture.arrow(888, top + 67, 888, top + 92, "2")
    picture.box(838, top + 96, 100, 62, "2", "tile in", "shared", "memory", round=8)
    picture.note(
        50, 232, "An address for every element, and", "a mask: the program makes both.", "They reach anything."
    )
    picture.note(
        350, 232, "Base, shape, strides, and the", "tile's place (1, 3): the compiler", "makes addresses and masks."
    )
    picture.note(
        620,
        232,
        "One thread asks, the engine brings the",
        "tile while the others compute, with zeros",
        "for what lies outside.",
    )
    picture.note(
        480,
        304,
        "a tile of 3 × 4 at row 1, column 3 of a matrix of 5 × 6: one of its columns lies outside",
        anchor="middle",
    )
    return picture
