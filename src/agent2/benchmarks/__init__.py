"""Benchmarks: where items come from, the world they are played in, and how they are scored.

`BENCHMARKS` is the one table of what ships: name -> "module:Class".
"""

import importlib
from types import MappingProxyType
from typing import cast

from agent2.errors import unknown_name
from agent2.records import Benchmark

BENCHMARKS: MappingProxyType[str, str] = MappingProxyType(
    {
        "arithmetic": "agent2.benchmarks.arithmetic.benchmark:Arithmetic",
        "mini_ifeval": "agent2.benchmarks.mini_ifeval.benchmark:MiniIfeval",
        "mini_knowledge": "agent2.benchmarks.mini_knowledge.benchmark:MiniKnowledge",
        "mini_math": "agent2.benchmarks.mini_math.benchmark:MiniMath",
        "mini_functions": "agent2.benchmarks.mini_functions.benchmark:MiniFunctions",
        "mini_apis": "agent2.benchmarks.mini_apis.benchmark:MiniApis",
        "mini_repo": "agent2.benchmarks.mini_repo.benchmark:MiniRepo",
    }
)


def load_benchmark(name: str) -> Benchmark:
    """A fresh benchmark by name. Raises ConfigError, with the nearest name, for one that is not in the table."""
    if name not in BENCHMARKS:
        raise unknown_name("benchmark", name, BENCHMARKS, "benchmark")
    module, _, attribute = BENCHMARKS[name].partition(":")
    return cast(Benchmark, getattr(importlib.import_module(module), attribute)())
