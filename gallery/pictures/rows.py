"""Pictures of the steps that reduce many numbers to few: sums, rows, and training on them."""

from __future__ import annotations

from math import exp

from gallery.pictures.shapes import Picture

ONLINE_ROW = (1.0, 3.0, 2.0, 5.0, 4.0, 0.0)
ONLINE_BLOCK = 2


def dot() -> Picture:
    """Two stages, and atomic additions."""
    picture = Picture(322, "Programs sum blocks in turns; partial sums are added in one order, atomic ones in any.")
    picture.text(480, 34, "x · y, in blocks: program p takes block p, then every third", 15, bold=True)
    picture.cells(150, 48, 1, 9, 73.33, lambda _, j: str(j % 3), lambda _, j: f"block {j}", height=36)
    for program in range(3):
        for left, text in ((70, f"s{program}"), (560, f"s{program}")):
            picture.box(left + 118 * program, 136, 90, 40, f"{program} now", text)
    picture.brace(70, 122, 326, "two stages: each program sums its blocks, then")
    picture.brace(560, 122, 326, "atomics: each program sums its blocks, then")
    for program in range(3):
        picture.arrow(115 + 118 * program, 180, 233 + 50 * (program - 1), 216, str(program))
        picture.arrow(605 + 118 * program, 180, 723 + 26 * (program - 1), 216, str(program), dashed=True)
    picture.box(120, 220, 226, 40, "plain", "(s0 + s1) + s2", bold=True)
    picture.box(610, 220, 226, 40, "plain", "d += whoever comes", bold=True)
    picture.note(233, 286, "a second kernel adds in one order:", "the same bits each time", anchor="middle")
    picture.note(723, 286, "one kernel, added in the order of arrival:", "the last bits may differ", anchor="middle")
    return picture


def online_states() -> list[tuple[float, float]]:
    """Return maximum and sum after every block of the picture's row, as the online kernel computes them."""
    states, largest, total = [], float("-inf"), 0.0
    for start in range(0, len(ONLINE_ROW), ONLINE_BLOCK):
        block = ONLINE_ROW[start : start + ONLINE_BLOCK]
        larger = max(largest, *block)
        total = total * exp(largest - larger) + sum(exp(value - larger) for value in block)
        largest = larger
        states.append((largest, total))
    return states


def softmax() -> Picture:
    """A row in registers, and a row in blocks."""
    picture = Picture(384, "A row that fits is read and written once; a longer one is read in blocks that rescale.")
    picture.text(60, 38, "a row that fits: one block, one reading, one writing", 15, "start", bold=True)
    picture.cells(60, 54, 1, 6, 34, "0")
    picture.box(330, 48, 300, 46, "0 now", "max → exp(x − max) → Σ → quotient", round=8)
    picture.cells(696, 54, 1, 6, 34, "0")
    picture.arrow(268, 71, 326, 71)
    picture.arrow(634, 71, 692, 71)
    picture.note(
        480, 116, "in registers: five operations of torch would go through the memory five times", anchor="middle"
    )
    picture.text(
        60,
        166,
        "a row that does not: block by block, with the largest so far and the sum so far",
        15,
        "start",
        bold=True,
    )
    for place, (largest, total) in enumerate(online_states()):
        left = 60 + 300 * place
        picture.cells(
            left + 62, 184, 1, ONLINE_BLOCK, 58, "0",
            [f"{v:g}" for v in ONLINE_ROW[place * ONLINE_BLOCK : (place + 1) * ONLINE_BLOCK]], height=40,
        )  # fmt: skip
        picture.arrow(left + 120, 228, left + 120, 254)
        picture.box(left + 20, 258, 200, 58, "plain", f"m = {largest:g}", f"s = {total:.4f}", round=8, bold=True)
        if place:
            raised = largest > online_states()[place - 1][0]
            picture.arrow(left - 76, 287, left + 16, 287)
            picture.text(left - 30, 277, "s · e⁻²" if raised else "s", 13, bold=raised)
    note = "A larger maximum only rescales the sum: s · exp(old m − new m). The second reading writes exp(x − m) / s."
    picture.note(480, 350, note, anchor="middle")
    return picture


def layer_norm() -> Picture:
    """Rows forward, rows and columns backward."""
    picture = Picture(356, "Forward a program owns rows; backward it owns rows and adds up columns in parts.")
    picture.text(60, 38, "forward: a row is read once", 15, "start", bold=True)
    picture.cells(60, 54, 4, 8, 26, lambda i, _: str(i % 2))
    picture.cells(292, 54, 4, 1, 34, lambda i, _: f"{i % 2} now", lambda i, _: f"μ{i}", height=26)
    picture.cells(326, 54, 4, 1, 34, lambda i, _: f"{i % 2} now", lambda i, _: f"r{i}", height=26)
    picture.note(60, 184, "In registers: mean, differences, variance,", "answer. Of each row two numbers are kept.")
    picture.text(60, 250, "four operations of torch instead", 15, "start", bold=True)
    picture.note(60, 276, "read x three times and write twice:", "what lies between goes to memory", "and comes back.")
    picture.text(430, 38, "backward: sums along rows, and along columns", 15, "start", bold=True)
    picture.cells(430, 54, 6, 8, 26, lambda i, _: str(i % 3))
    picture.note(430, 236, "dy, x: program p takes row p, then", "every third; it writes their dx,")
    picture.note(430, 274, "and adds up in registers what they", "give to dw and db.")
    picture.arrow(644, 132, 690, 132)
    picture.cells(694, 93, 3, 8, 26, lambda i, _: f"{i} now")
    picture.note(694, 82, "parts, one for each program")
    picture.arrow(798, 175, 798, 226)
    picture.cells(694, 230, 1, 8, 26, "plain")
    picture.text(798, 280, "dw: the parts added in one order", 13)
    picture.note(798, 312, "two stages, as the dot product:", "the same bits each time", anchor="middle")
    return picture


def weighted_sum() -> Picture:
    """Three products with one matrix."""
    picture = Picture(332, "Forward sums along rows, the gradient of w along columns, that of x sums nothing.")
    size, top = 26, 100
    for left, title in ((60, "y = x w"), (370, "dx = dy wᵀ"), (690, "dw = xᵀ dy")):
        picture.text(left, 38, title, 16, "start", bold=True)
    picture.cells(60, 60, 1, 6, size, "plain", [f"w{j}" for j in range(6)])
    picture.cells(60, top, 6, 6, size, lambda i, _: str(i // 2))
    picture.cells(250, top, 6, 1, size, lambda i, _: f"{i // 2} now")
    for i in range(6):
        picture.arrow(220, top + (i + 0.5) * size, 247, top + (i + 0.5) * size, str(i // 2))
    picture.note(60, 286, "A program owns rows and goes", "along the columns.")
    picture.cells(408, 60, 1, 6, size, lambda _, j: "1" if j >= 3 else "plain")
    picture.cells(370, top, 6, 1, size, lambda i, _: "1" if i < 3 else "plain")
    picture.cells(408, top, 6, 6, size, lambda i, j: f"{i // 3 * 2 + j // 3}")
    picture.outline(408 + 3 * size, top, 3 * size, 3 * size, "1")
    picture.note(370, 286, "A broadcast: a tile of dx from a", "piece of dy and a piece of w.")
    picture.cells(690, 56, 2, 6, size, lambda i, j: f"{i * 2 + j // 3} now", height=20)
    picture.cells(690, top + 26, 4, 6, size, lambda i, j: f"{i // 2 * 2 + j // 3}")
    picture.arrow(730, top + 24, 730, top + 2)
    picture.arrow(807, top + 24, 807, top + 2)
    picture.note(862, 72, "two parts,", "added next")
    picture.note(690, 286, "A program owns columns of some", "rows, and leaves part of the sum.")
    return picture


def linear_regression() -> Picture:
    """The operator and its gradients."""
    picture = Picture(300, "One operator forward, its gradients backward; torch chains them and steps.")
    for x, y, text in ((60, 30, "x"), (60, 80, "w"), (60, 130, "b"), (60, 180, "y")):
        picture.box(x, y, 70, 40, "2" if text in "wb" else "plain", text, round=8, bold=True)
        picture.arrow(134, y + 20, 296, 84 + (y - 30) // 6)
    picture.box(300, 64, 320, 76, "0", "squared_loss", "off = x w + b − y,  L = Σ off² / n", round=8, bold=True)
    picture.box(840, 80, 70, 44, "plain", "L", round=8, bold=True)
    picture.arrow(624, 102, 836, 102)
    picture.box(300, 190, 320, 60, "1", "its gradients", "dp = 2 off / n,  dw = xᵀ dp,  db = Σ dp", round=8, bold=True)
    picture.arrow(460, 142, 460, 186, dashed=True)
    picture.text(482, 170, "off", 14)
    picture.arrow(875, 128, 624, 220, "1")
    picture.text(800, 194, "dL = 1", 14)
    picture.arrow(296, 210, 139, 108, "1")
    picture.text(214, 178, "dw", 14)
    picture.arrow(296, 226, 139, 158, "1")
    picture.text(214, 212, "db", 14)
    note = "blue: forward kernels; orange: backward kernels; green: what an optimiser of torch steps, given dw and db"
    picture.note(480, 280, note, anchor="middle")
    return picture
