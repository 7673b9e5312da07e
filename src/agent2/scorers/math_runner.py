"""The child process of the scorer `math_answer`: is one mathematical expression equal to another?

Run as a script: a line of JSON `[reference, answer]` on standard input, a line with one of `OUTCOMES` on standard
output. Only LaTeX is parsed, by a grammar; nothing is evaluated as Python. A comparison that takes more processor time
than `CPU_S` or more memory than `MEMORY_BYTES` ends the process, and its caller starts another.

Imports nothing of agent2, so that it starts with what it needs.
"""

import json
import logging
import resource
import sys

EQUAL, DIFFERENT, NO_ANSWER, NO_REFERENCE = OUTCOMES = ("equal", "different", "no answer", "no reference")
CPU_S = 2
MEMORY_BYTES = 2 << 30


def compare(reference: str, answer: str) -> str:
    """One of `OUTCOMES`. Source: `math_verify.verify` (Kydlíček, Gandenberger), exact to 6 decimals."""
    from math_verify import LatexExtractionConfig, parse, verify

    def expressions(text: str) -> list[object]:
        configuration = [LatexExtractionConfig(boxed_match_priority=0)]
        parsed = parse(f"\\boxed{{{text}}}", configuration, fallback_mode="no_fallback", parsing_timeout=None)
        return list(parsed)

    expected = expressions(reference)
    if not expected:
        return NO_REFERENCE
    parsed_answer = expressions(answer)
    if not parsed_answer:
        return NO_ANSWER
    return EQUAL if verify(expected, parsed_answer, timeout_seconds=None) else DIFFERENT


def _reply(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until standard input ends."""
    logging.disable(logging.CRITICAL)
    compare("1", "1")  # imports, before the memory is limited
    sys.set_int_max_str_digits(10_000)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _reply("ready")
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + 1 + CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        try:
            outcome = compare(*json.loads(line))
        except (Exception, RecursionError, MemoryError):
            outcome = NO_ANSWER  # the reference was parsed for its item before
        _reply(outcome)


if __name__ == "__main__":
    main()
