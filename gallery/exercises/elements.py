"""The exercises in which every element of the answer is made by itself."""

from __future__ import annotations

import torch

from gallery.exercises.arguments import ENDS, FORMULA, LARGE, STRIDES, Sample, case, many, nan_case
from gallery.exercises.exercise import Case, Exercise
from gallery.exhibit import Size
from gallery.kernels import broadcast, map, map_2d, zip


def of_arrays(sample: Sample) -> list[Case]:
    """Return the cases of arrays in one dimension."""
    return [
        case("4,096 elements", sample, (4096,), FORMULA),
        *(case(many(n, "element"), sample, (n,), ENDS) for n in (7, 1000, 4097, 1)),
        case("200,003 elements", sample, (200_003,), LARGE, large=True),
        case("elements that lie apart", sample, (1000,), STRIDES, layout="apart", special=True),
        case("float16", sample, (1000,), "float32 is right and float16 is not.", dtype=torch.float16),
        nan_case(sample, (1000,)),
    ]


def of_matrices(sample: Sample) -> list[Case]:
    """Return the cases of matrices."""
    sizes: list[Size] = [(1, 1), (3, 5), (100, 33), (7, 1030)]
    return [
        case("256 × 256", sample, (256, 256), FORMULA),
        *(case(f"{rows} × {columns:,}", sample, (rows, columns), ENDS) for rows, columns in sizes),
        case("700 × 513", sample, (700, 513), LARGE, large=True),
        case("a transposed matrix", sample, (100, 33), STRIDES, layout="transposed", special=True),
        case("the first columns of a wider matrix", sample, (40, 33), STRIDES, layout="slices", special=True),
        case("elements that lie apart", sample, (40, 33), STRIDES, layout="apart", special=True),
        case("float16", sample, (40, 33), "float32 is right and float16 is not.", dtype=torch.float16),
        nan_case(sample, (40, 33)),
    ]


EXERCISES = [
    Exercise(
        name="map",
        formula=map.EXHIBIT.formula,
        reference=map.reference,
        cases=of_arrays(map.sample),
        tolerances=map.EXHIBIT.tolerances,
        hints=(
            "Which elements belong to this program? Program 0 takes the first BLOCK of them, program 1 the next.",
            "`at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)` are their numbers, and `x + at` their addresses.",
            "The last program has lanes from n on: `tl.load(x + at, mask=at < n)`, and the same mask for `tl.store`.",
        ),
        solution=[("gallery/kernels/map.py", ["map_kernel", "map_"])],
        solve=map.map_,
        sweep=lambda dtype, device: map.sample((2**24,), dtype, device),
        traffic=map.EXHIBIT.traffic,
    ),
    *(
        Exercise(
            name=name,
            formula=zip.EXHIBIT.formula,
            reference=zip.reference,
            cases=of_arrays(zip.sample),
            tolerances=zip.EXHIBIT.tolerances,
            hints=hints,
            solution=[("gallery/kernels/zip.py", ["zip_kernel", "zip_"])],
            solve=zip.zip_,
            mistakes={
                "The answer is x alone: y is not added.": lambda x, y: x + 0 * y,
                "The answer is 2 x: both loads read the same array.": lambda x, y: 2 * x + 0 * y,
            },
            sweep=lambda dtype, device: zip.sample((2**24,), dtype, device),
            traffic=zip.EXHIBIT.traffic,
        )
        for name, hints in {
            "zip": (
                "It is the map with two arrays to load: the same lanes, the same mask.",
                "`x + at` and `y + at` are the addresses of elements at the same places.",
                "`tl.store(z + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)`",
            ),
            "vector_addition": (
                "It is the zip, with nothing given: a kernel, its block, and how many programs there are.",
                "`triton.cdiv(n, BLOCK)` programs cover n elements: n / BLOCK, rounded up.",
                "`kernel[(triton.cdiv(n, BLOCK),)](x, y, z, n, BLOCK=BLOCK)` launches a kernel that is decorated with "
                "`@triton.jit` and has `BLOCK: tl.constexpr` among its parameters.",
            ),
        }.items()
    ),
    Exercise(
        name="map_2d",
        formula=map_2d.EXHIBIT.formula,
        reference=map_2d.reference,
        cases=of_matrices(map_2d.sample),
        tolerances=map_2d.EXHIBIT.tolerances,
        hints=(
            "A tile is a column of row numbers, `[:, None]`, and a row of column numbers, `[None, :]`.",
            "xᵢⱼ is at `x + i * row_stride + j * column_stride`; y's rows lie one after the other.",
            "A lane is inside if its row and its column are: `(i < rows) & (j < columns)`.",
        ),
        solution=[("gallery/kernels/map_2d.py", ["map_2d_kernel", "map_2d"])],
        solve=map_2d.map_2d,
        sweep=lambda dtype, device: map_2d.sample((4096, 4096), dtype, device),
        traffic=map_2d.EXHIBIT.traffic,
    ),
    Exercise(
        name="broadcast",
        formula=broadcast.EXHIBIT.formula,
        reference=broadcast.reference,
        cases=of_matrices(broadcast.sample),
        tolerances=broadcast.EXHIBIT.tolerances,
        hints=(
            "Load ROWS numbers of a and COLUMNS numbers of b, each once.",
            "`column[:, None] + row[None, :]` is a tile of sums, ROWS × COLUMNS.",
            "The tile has three masks: `i < rows` for a, `j < columns` for b, and both together for z.",
        ),
        solution=[("gallery/kernels/broadcast.py", ["broadcast_kernel", "broadcast"])],
        solve=broadcast.broadcast,
        mistakes={
            "The answer is a's part alone: b is not added.": lambda a, b: a + 0 * b,
            "The answer is b's part alone: a is not added.": lambda a, b: 0 * a + b,
        },
        sweep=lambda dtype, device: broadcast.sample((4096, 4096), dtype, device),
        traffic=broadcast.EXHIBIT.traffic,
    ),
]
