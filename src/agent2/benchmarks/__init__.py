"""Benchmarks: where items come from, the world they are played in, and how they are scored.

`BENCHMARKS` is the one table of what ships: name -> "module:Class".
"""

import importlib
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

from agent2.errors import ConfigError, unknown_name
from agent2.installation import guard_private, with_entry
from agent2.records import Benchmark, Item, Split

BenchmarkT = TypeVar("BenchmarkT", bound=Benchmark)

BENCHMARKS: MappingProxyType[str, str] = MappingProxyType(
    {
        "arithmetic": "agent2.benchmarks.arithmetic.benchmark:Arithmetic",
        "household": "agent2.benchmarks.household.benchmark:Household",
        "household_small": "agent2.benchmarks.household.benchmark:HouseholdSmall",
        "household_full": "agent2.benchmarks.household.benchmark:HouseholdFull",
        "household_faulty": "agent2.benchmarks.household.benchmark:HouseholdFaulty",
        "household_listed": "agent2.benchmarks.household.benchmark:HouseholdListed",
        "alfworld": "agent2.benchmarks.alfworld.benchmark:Alfworld",
        "alfworld_chat": "agent2.benchmarks.alfworld.benchmark:AlfworldChat",
        "mini_ifeval": "agent2.benchmarks.mini_ifeval.benchmark:MiniIfeval",
        "mini_knowledge": "agent2.benchmarks.mini_knowledge.benchmark:MiniKnowledge",
        "mini_math": "agent2.benchmarks.mini_math.benchmark:MiniMath",
        "mini_functions": "agent2.benchmarks.mini_functions.benchmark:MiniFunctions",
        "mini_apis": "agent2.benchmarks.mini_apis.benchmark:MiniApis",
        "mini_repo": "agent2.benchmarks.mini_repo.benchmark:MiniRepo",
    }
)


READS_FILES = frozenset({"alfworld", "alfworld_chat"})
"""Benchmarks whose items come from a folder of the user's; each takes `data`, and without one looks where it lies."""


def load_benchmark(name: str, data: Path | None = None) -> Benchmark:
    """A fresh benchmark by name; its private items are guarded (`guarded`).

    data: folder of its official data, for one that reads files; None: where its own downloader puts them.
    Raises ConfigError, with the nearest name, for one that is not in the table, and for data that it does not take.
    """
    if name not in BENCHMARKS:
        raise unknown_name("benchmark", name, BENCHMARKS, "benchmark")
    if data is not None and name not in READS_FILES:
        raise ConfigError(
            f"benchmark {name} makes its own items and reads no data folder ({data}); leave out --data, which is for "
            f"{', '.join(sorted(READS_FILES))}"
        )
    module, _, attribute = BENCHMARKS[name].partition(":")
    factory = getattr(importlib.import_module(module), attribute)
    return guarded(cast(Benchmark, factory(data=data) if name in READS_FILES else factory()))


def guarded(benchmark: BenchmarkT) -> BenchmarkT:
    """The same benchmark; whoever asks it for private items leaves an entry in the access log first.

    For a benchmark that did not come from `load_benchmark`. The evaluations and trials of this package make entries of
    their own, and none comes twice. Raises ConfigError for an object whose class cannot be extended.
    """
    kind = type(benchmark)
    if not getattr(kind, "is_guarded", False):
        try:
            object.__setattr__(benchmark, "__class__", _guarded_class(kind))  # frozen ones too
        except TypeError as error:
            raise ConfigError(f"benchmark {benchmark.name}: {error}; make it an ordinary Python class") from error
    return benchmark


@cache
def _guarded_class(kind: type[Any]) -> type[Any]:
    """A subclass, so that a benchmark stays what it is to isinstance and in every attribute."""

    def items(self: Any, split: Split, n: int, secret: bytes | None) -> list[Item]:
        if split is Split.TEST_PRIVATE:
            guard_private(self.name, n, secret)
        with with_entry():
            found: list[Item] = kind.items(self, split, n, secret)
            return found

    items.__doc__ = kind.items.__doc__
    names = {
        "items": items,
        "is_guarded": True,
        "__slots__": (),
        "__module__": kind.__module__,
        "__doc__": kind.__doc__,
    }
    made = type(kind.__name__, (kind,), names)
    return made
