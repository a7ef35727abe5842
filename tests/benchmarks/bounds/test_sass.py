"""Machine code is followed as a GPU would, and what rows decide is never guessed."""

import struct

import pytest
import torch

from benchmarks.bounds.sass import SassError, parse
from benchmarks.bounds.sass_execution import Hints, Walk, execute
from benchmarks.bounds.sass_thread import Memory, Program, Thread

LOOP = """
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
        /*0010*/                   S2R R0, SR_CTAID.X ;
        /*0020*/                   IMAD.MOV.U32 R2, RZ, RZ, RZ ;
.L_x_0:
        /*0030*/                   IADD3 R2, R2, 0x3, RZ ;
        /*0040*/                   DFMA R4, R6, R8, R4 ;
        /*0050*/                   ISETP.GE.AND P0, PT, R2, c[0x0][0x160], PT ;
        /*0060*/              @!P0 BRA `(.L_x_0) ;
        /*0070*/               @P1 DADD R4, R4, R6 ;
        /*0080*/                   ISETP.GE.AND P1, PT, R0, 0x5, PT ;
        /*0090*/               @P1 DMUL R4, R4, R6 ;
        /*00a0*/                   EXIT ;
"""

ROWS_DECIDE = """
	//## File "{file}", line 2
        /*0000*/                   DSETP.GT.AND P0, PT, R4, R6, PT ;
        /*0010*/               @P0 BRA `(.L_x_1) ;
.L_x_0:
        /*0020*/                   DADD R4, R4, R8 ;
        /*0030*/                   DSETP.GT.AND P0, PT, R4, R6, PT ;
        /*0040*/              @!P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0050*/                   EXIT ;
"""

DIVISION = """
        /*0000*/                   MUFU.RCP64H R3, R5 ;
        /*0010*/                   FSETP.GT.AND P0, PT, |R3|, 1.469367938527859385e-39, PT ;
        /*0020*/               @P0 BRA `(.L_x_0) ;
        /*0030*/                   CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_rn_f64_full) ;
.L_x_0:
        /*0040*/                   EXIT ;
$__internal_0_$__cuda_sm20_div_rn_f64_full:
        /*0050*/                   DMUL R4, R4, R6 ;
        /*0060*/                   RET.REL.NODEC R2 `(division_kernel) ;
"""

JOINED = """
        /*0000*/                   BRA.CONV ~URZ, `(.L_x_0) ;
        /*0010*/                   CALL.REL.NOINC `($__internal_0_$__cuda_reduxsync_s32_min) ;
        /*0020*/                   BRA `(.L_x_1) ;
.L_x_0:
        /*0030*/                   REDUX.MIN.S32 UR6, R55 ;
.L_x_1:
        /*0040*/                   EXIT ;
$__internal_0_$__cuda_reduxsync_s32_min:
        /*0050*/                   SHFL.DOWN PT, R4, R4, 0x1, 0x1f ;
        /*0060*/                   RET.REL.NODEC R2 `(search_kernel) ;
"""

ENDS_IN_THE_MIDDLE = """
	//## File "{file}", line 2
.L_x_0:
        /*0000*/                   DSETP.GT.AND P0, PT, R4, R6, PT ;
        /*0010*/               @P0 BRA `(.L_x_1) ;
        /*0020*/                   DADD R4, R4, R8 ;
.L_x_1:
        /*0030*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0040*/                   ISETP.GE.AND P1, PT, R2, 0x3, PT ;
        /*0050*/               @P1 EXIT ;
        /*0060*/                   BRA `(.L_x_0) ;
"""


def program(place=(0, 0, 0), warps=1, memory=(), **arguments):
    bank = bytearray(0x400)
    for at, value in arguments.items():
        struct.pack_into("<i" if abs(value) < 2**31 else "<Q", bank, int(at[1:], 16), value)
    return Program(bytes(bank), place, warps, Memory(memory))


def registers(text, **what):
    """Return the registers after straight code, as a function of their numbers."""
    thread = Thread(program(**what), 5)
    code = parse("\n".join(f"/*{16 * n:04x}*/ {line} ;" for n, line in enumerate([*text.splitlines(), "EXIT"]) if line))
    Walk(code, thread, Hints()).run()
    return thread


@pytest.mark.parametrize(("limit", "passes"), [(1, 1), (3, 1), (4, 2), (30, 10)])
def test_a_loop_runs_as_often_as_its_counter_says(limit, passes):
    found = execute(parse(LOOP), program(x160=limit), Hints())
    assert found.executed["DFMA"] == passes
    assert found.executed["DADD"] == 1, "a predicate that is not known counts"
    assert found.executed["DMUL"] == 0, "one that is false does not"
    assert found.issued == 3 + 4 * passes + 4, "but it is issued"


def test_every_warp_and_the_program_s_place_count():
    found = execute(parse(LOOP), program(place=(7, 0, 0), warps=4, x160=3), Hints())
    assert found.executed["DFMA"] == found.executed["DMUL"] == 4


def test_what_rows_decide_needs_a_hint(tmp_path):
    source = tmp_path / "kernel.py"
    source.write_text("def search():\n    while more:\n        pass\n", encoding="utf-8")
    code = parse(ROWS_DECIDE.format(file=source))
    with pytest.raises(SassError, match=r"line 2 of .*rows decide where BRA goes"):
        execute(code, program(), Hints())
    for passes in (0, 1, 4):
        assert execute(code, program(), Hints({"search": passes})).executed["DADD"] == passes


def test_a_loop_that_ends_the_program_is_not_what_a_jump_in_it_decides(tmp_path):
    source = tmp_path / "kernel.py"
    source.write_text("def near():\n    if close:\n        pass\n", encoding="utf-8")
    code = parse("/*0000*/ IMAD.MOV.U32 R2, RZ, RZ, RZ ;\n" + ENDS_IN_THE_MIDDLE.format(file=source))
    assert execute(code, program(), Hints()).executed["DADD"] == 3
    assert execute(code, program(), Hints(avoid=("near",))).executed["EXIT"] == 1


def test_functions_of_the_machine_code_are_not_entered():
    assert execute(parse(DIVISION), program(), Hints()).executed["DMUL"] == 0


def test_threads_that_are_joined_jump_over_the_way_of_those_that_are_not():
    found = execute(parse(JOINED), program(), Hints())
    assert found.executed == {"BRA.CONV": 1, "REDUX.MIN.S32": 1, "EXIT": 1}


def test_integers_are_computed_as_a_gpu_does():
    found = registers(
        """
IMAD.MOV.U32 R2, RZ, RZ, -0x2
IADD3 R3, P0, R2, 0x3, RZ
IADD3.X R4, RZ, 0x7, RZ, P0, !PT
IMAD.WIDE R6, R2, 0x10, R2
IMAD.WIDE.U32 R8, R2, 0x10, RZ
LOP3.LUT R10, R2, 0xff, RZ, 0xc0, !PT
SHF.R.S32.HI R11, RZ, 0x1f, R2
SHF.R.U32.HI R12, RZ, 0x1c, R2
LEA R13, P1, R3, R2, 0x2
LEA.HI.X R14, R3, 0x9, RZ, 0x2, P1
ISETP.LT.AND P2, P3, R2, RZ, PT
ISETP.LT.U32.AND P4, PT, R2, RZ, PT
SEL R15, R10, R11, P4
IMNMX R16, R2, 0x5, PT
MUFU.RCP R17, R2
IADD3 R18, R17, 0x1, RZ
LOP3.LUT R19, R17, R2, RZ, 0xc0, !PT
PLOP3.LUT P5, PT, P2, P3, PT, 0x80, 0x0
P2R R20, PR, RZ, 0xc
R2P PR, R20, 0x40
""".strip()
    )
    assert [found.registers[n] for n in (3, 4, 10, 11, 12)] == [1, 8, 0xFE, 0xFFFFFFFF, 0xF]
    assert found.registers[8] == 0xFFFFFFE0
    assert found.registers[9] == 0xF
    assert [found.registers[n] for n in (13, 14)] == [2, 10], "carried over"
    assert [found.registers[n] for n in (15, 16)] == [0xFFFFFFFF, 0xFFFFFFFE]
    assert [found.registers[n] for n in (17, 18, 19)] == [None] * 3
    assert [found.predicates[n] for n in (2, 3, 4, 5, 6)] == [True, False, False, False, False]
    assert found.registers[20] == 0b100, "predicates are packed"


def test_loads_read_what_the_model_holds_and_the_stack_what_was_stored():
    depths = torch.tensor([3, 5, 7], dtype=torch.int32)
    found = registers(
        """
IMAD.MOV.U32 R1, RZ, RZ, 0x100
ULDC.64 UR4, c[0x0][0x160]
IMAD.U32 R2, RZ, RZ, UR4
IMAD.U32 R3, RZ, RZ, UR5
LDG.E R4, [R2.64+0x8]
LDG.E R5, [R2.64+0x10]
LDG.E.SYS R6, [UR4]
STL [R1+0x8], R4
LDL.LU R7, [R1+0x8]
LDL R8, [R1+0xc]
""".strip(),
        memory=[depths],
        x160=depths.data_ptr(),
    )
    assert [found.registers[n] for n in (4, 5, 6, 7, 8)] == [7, None, 3, 7, None]
