import errno
import struct

import pytest

from agent2.sandbox.limits import ABSENT, ARCHITECTURES, REFUSED, call_filter

ALLOWED, NOT_PERMITTED, NOT_KNOWN = 0x7FFF0000, 0x00050001, 0x00050026
NO_FAMILY, NO_PROTOCOL = 0x00050000 | errno.EAFNOSUPPORT, 0x00050000 | errno.EPROTONOSUPPORT


def _answer(machine: str, number: int | str, *arguments: int, audit: int | None = None) -> int:
    """Run the filter as the kernel would, by the rules of linux/filter.h."""
    compiled = call_filter(machine)
    assert compiled is not None
    program = [struct.unpack_from("=HBBI", compiled, at) for at in range(0, len(compiled), 8)]
    architecture = ARCHITECTURES[machine].audit if audit is None else audit
    number = ARCHITECTURES[machine].calls[number] if isinstance(number, str) else number
    call = struct.pack("=iIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
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


@pytest.fixture(params=ARCHITECTURES)
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def test_ordinary_calls_pass(machine):
    named = set(ARCHITECTURES[machine].calls.values())
    assert {_answer(machine, number, 0x10000000) for number in set(range(470)) - named} == {ALLOWED}
    assert _answer(machine, "clone", 0x3D0F00) == ALLOWED  # a thread
    assert _answer(machine, "clone", 17) == ALLOWED  # a fork; 17 is its signal
    assert _answer(machine, "unshare", 0x200) == ALLOWED


def test_new_namespaces_of_any_kind_are_refused(machine):
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert _answer(machine, "clone", flag | 17) == NOT_PERMITTED
        assert _answer(machine, "unshare", flag) == NOT_PERMITTED
    assert _answer(machine, "unshare", 0x80) == NOT_PERMITTED
    assert _answer(machine, "setns") == NOT_PERMITTED
    assert _answer(machine, "clone3") == NOT_KNOWN


def test_what_no_namespace_covers_is_refused(machine):
    assert {_answer(machine, name) for name in REFUSED} == {NOT_PERMITTED}
    assert {_answer(machine, name) for name in ABSENT} == {NOT_KNOWN}


def test_sockets_are_of_the_few_families_and_protocols_that_programs_need(machine):
    for family in range(64):
        expected = {1: ALLOWED, 2: ALLOWED, 10: ALLOWED, 16: ALLOWED}.get(family, NO_FAMILY)
        assert _answer(machine, "socket", family, 1, 0) == expected
        assert _answer(machine, "socketpair", family, 1, 0) == (ALLOWED if family == 1 else NO_FAMILY)
    for protocol in range(300):
        assert _answer(machine, "socket", 2, 1, protocol) == (ALLOWED if protocol in {0, 1, 6, 17, 58} else NO_PROTOCOL)
        assert _answer(machine, "socket", 16, 3, protocol) == (NO_PROTOCOL if protocol else ALLOWED)


def test_memory_files_are_refused_where_nobody_counts_them():
    assert _answer("x86_64", "memfd_create") == ALLOWED
    assert call_filter("x86_64", memory_files=False) != call_filter("x86_64")


def test_foreign_calls_are_not_known():
    assert _answer("x86_64", 1, audit=0x40000003) == NOT_KNOWN
    assert _answer("x86_64", 0x40000001) == NOT_KNOWN


def test_other_architectures_have_no_filter():
    assert call_filter("riscv64") is None
