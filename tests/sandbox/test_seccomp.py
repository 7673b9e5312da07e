import struct

from agent2.sandbox.seccomp import MACHINES, user_namespace_filter

ALLOWED, NOT_PERMITTED, NOT_KNOWN = 0x7FFF0000, 0x00050001, 0x00050026


def _answer(machine: str, number: int, flags: int = 0, audit: int | None = None) -> int:
    """Run the filter as the kernel would, by the rules of linux/filter.h."""
    compiled = user_namespace_filter(machine)
    assert compiled is not None
    program = [struct.unpack_from("=HBBI", compiled, at) for at in range(0, len(compiled), 8)]
    architecture = MACHINES[machine].audit if audit is None else audit
    call = struct.pack("=iIQ6Q", number, architecture, 0, flags, 0, 0, 0, 0, 0)
    at, value = 0, 0
    while True:
        code, when_true, when_false, operand = program[at]
        if code == 0x06:
            return operand
        if code == 0x20:
            (value,) = struct.unpack_from("=I", call, operand)
            at += 1
            continue
        claim = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
        at += 1 + (when_true if claim else when_false)


def test_ordinary_calls_pass_on_both_architectures():
    for machine, numbers in MACHINES.items():
        for number in (0, 1, 59, 100):
            if number not in {numbers.clone, numbers.unshare}:
                assert _answer(machine, number, flags=0x10000000) == ALLOWED
        assert _answer(machine, numbers.clone, flags=0x3D0F00) == ALLOWED
        assert _answer(machine, numbers.unshare, flags=0x20000) == ALLOWED


def test_new_user_namespaces_are_refused():
    for machine, numbers in MACHINES.items():
        assert _answer(machine, numbers.clone, flags=0x10000011) == NOT_PERMITTED
        assert _answer(machine, numbers.unshare, flags=0x10020000) == NOT_PERMITTED
        assert _answer(machine, numbers.setns) == NOT_PERMITTED
        assert _answer(machine, numbers.clone3) == NOT_KNOWN


def test_foreign_calls_are_not_known():
    assert _answer("x86_64", 1, audit=0x40000003) == NOT_KNOWN
    assert _answer("x86_64", 0x40000001) == NOT_KNOWN


def test_other_architectures_have_no_filter():
    assert user_namespace_filter("riscv64") is None
