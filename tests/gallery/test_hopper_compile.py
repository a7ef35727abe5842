"""The attention kernels for Hopper compile, to code that keeps their promises."""

import os
import subprocess
import sys

from tests.gallery.hopper_compile import written_too_early

PRODUCT = (16, "HGMMA.64x128x16.F32.BF16 R88, R160, gdesc[UR16].tnspB, R88, gsb0")
WAIT = (48, "WARPGROUP.DEPBAR.LE gsb0, 0x0")


def test_they_compile_and_wait_and_write_at_the_right_time() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.gallery.hopper_compile"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_register_that_a_product_reads_is_not_to_be_written_before_the_wait() -> None:
    early, late = (32, "FFMA R161, R54, UR9, -R14"), (64, "FFMA R161, R54, UR9, -R14")
    assert written_too_early([PRODUCT, early, WAIT]) == [f"{early[1]} after {PRODUCT[1]}"]
    assert not written_too_early([PRODUCT, WAIT, late])


def test_nor_in_the_next_round_of_a_loop() -> None:
    code = [(8, "CS2R R162, SRZ"), PRODUCT, (32, "BRA 0x8"), WAIT]
    assert written_too_early(code) == [f"CS2R R162, SRZ after {PRODUCT[1]}"]


def test_a_wait_that_leaves_one_group_under_way_covers_only_those_before_it() -> None:
    other = (32, "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR16], RZ, !UPT, gsb0")
    some, write = (48, "WARPGROUP.DEPBAR.LE gsb0, 0x1"), (64, "MUFU.EX2 R163, R163")
    assert not written_too_early([PRODUCT, other, some, write])
    assert written_too_early([PRODUCT, some, write])
