"""Benchmarks: where items come from, the world they are played in, and how they are scored.

Each packaged benchmark has a home (the mini benchmarks share one), a folder with all that is particular to it: items,
players, expert, task files (`tasks/*.yaml`). `home` says what a home may provide. Recipes and weights of base models
are in `recipes`. One that is declared, and needs no program, is a file of `catalog`. Outside the homes, benchmarks are
named only in the tables here: `BENCHMARKS` (name -> "module:Class", or the file) and `BASES`. Wherever a benchmark is
named, the name may also be an entry point `agent2.benchmarks` of an installed package, code (`./quiz.py:Quiz`), or data
alone: a folder with `benchmark.yaml` (`agent2.plugins`, `agent2.benchmarks.declared`), or a name of another package
behind a bridge (`reasoning_gym:leg_counting`, `agent2.benchmarks.bridges`).

A packaged benchmark has the variants `NAME-faulty`, `NAME-steady` and `NAME-condensed`. Items, order and scorer are
those of the benchmark, so a model's two scores can be paired item by item: their difference is the price of faults
(`agent2 cards recovery FAULTY --against STEADY`). `-faulty` breaks one of the first three calls of every episode, in
one of the five ways of `environments.faults`, and allows three more calls and turns; `-steady` breaks none, even where
the benchmark itself would. `-condensed` sends less of the past: the rules and the newest turns in full, of earlier
ones the action and a sentence (`drop_observations`, docs/long-episodes.md); compared with the benchmark itself it shows
what a full context is worth.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

from agent2.benchmarks.bridges import BRIDGES, GENERATOR, is_named, require_behind_colon, split_bridged
from agent2.benchmarks.data_files import FORMATS
from agent2.benchmarks.declaration import is_data_file
from agent2.benchmarks.declared import DeclaredBenchmark, OwnFiles, declared_files
from agent2.benchmarks.item_sets import ItemSet, is_item_set, read_item_set
from agent2.benchmarks.named import named_benchmarks
from agent2.environments.faults import ALL_FAULTS, SPARE_CALLS, with_faults
from agent2.environments.tools.world import FaultSettings
from agent2.errors import Agent2Error, ConfigError
from agent2.installation import access_already_logged, log_private_items
from agent2.models.bases import RecipeTable
from agent2.plugins import (
    PluginLocation,
    build,
    find,
    import_root,
    installed,
    is_code,
    is_located,
    is_on_default_path,
    require_members,
    source_digest,
    source_files,
    with_source_version,
)
from agent2.records import Benchmark, Environment, Item, JsonValue, SamplingSettings, Scorer, Split, digest_of
from agent2.scorers import require_scorer

BenchmarkT = TypeVar("BenchmarkT", bound=Benchmark)

BENCHMARKS: MappingProxyType[str, str] = MappingProxyType(
    {
        "arithmetic": "agent2.benchmarks.arithmetic:Arithmetic",
        "household": "agent2.benchmarks.household:Household",
        "household_small": "agent2.benchmarks.household:HouseholdSmall",
        "household_full": "agent2.benchmarks.household:HouseholdFull",
        "household_faulty": "agent2.benchmarks.household:HouseholdFaulty",
        "household_listed": "agent2.benchmarks.household:HouseholdListed",
        "shop": "agent2.benchmarks.shop:Shop",
        "webshop": "agent2.benchmarks.webshop:Webshop",
        "alfworld": "agent2.benchmarks.alfworld:Alfworld",
        "alfworld_chat": "agent2.benchmarks.alfworld:AlfworldChat",
        "deepsearchqa": "agent2.benchmarks.deepsearchqa:DeepSearchQa",
        "search": "agent2.benchmarks.search:Search",
        "search_faulty": "agent2.benchmarks.search:SearchFaulty",
        "search_contradicting": "agent2.benchmarks.search:SearchContradicting",
        "search_contested": "agent2.benchmarks.search:SearchContested",
        "dialogue": "agent2.benchmarks.dialogue:ServiceDialogue",
        "replies": "agent2.benchmarks.replies:Replies",
        "replies_guarded": "agent2.benchmarks.replies:GuardedReplies",
        "instructions": "agent2.benchmarks.instructions:Instructions",
        "alpacaeval": "agent2.benchmarks.alpacaeval:AlpacaEval",
        "mini_ifeval": "agent2.benchmarks.mini.ifeval:MiniIfeval",
        "mini_knowledge": "agent2.benchmarks.mini.knowledge:MiniKnowledge",
        "mini_math": "agent2.benchmarks.mini.math:MiniMath",
        "mini_functions": "agent2.benchmarks.mini.functions:MiniFunctions",
        "mini_apis": "agent2.benchmarks.mini.apis:MiniApis",
        "mini_repo": "agent2.benchmarks.mini.repo:MiniRepo",
        "mini_shapes": "agent2.benchmarks.mini.vision:MiniShapes",
        "mini_charts": "agent2.benchmarks.mini.vision:MiniCharts",
        "mini_documents": "agent2.benchmarks.mini.vision:MiniDocuments",
        "front_end": "agent2.benchmarks.front_end:FrontEnd",
        "bfcl_v3": "agent2.benchmarks.bfcl:BfclV3",
        "bfcl_v4": "agent2.benchmarks.bfcl:BfclV4",
        "humaneval": "agent2.benchmarks.humaneval:HumanEval",
        "mbpp": "agent2.benchmarks.humaneval:Mbpp",
        "gsm8k": "agent2.benchmarks.catalog:gsm8k.yaml",
        "mmlu_pro": "agent2.benchmarks.catalog:mmlu_pro.yaml",
        "ifeval": "agent2.benchmarks.catalog:ifeval.yaml",
        "mmlu": "agent2.benchmarks.knowledge:Mmlu",
        "gpqa": "agent2.benchmarks.knowledge:Gpqa",
        "arc_challenge": "agent2.benchmarks.knowledge:ArcChallenge",
        "arc_easy": "agent2.benchmarks.knowledge:ArcEasy",
        "truthfulqa_mc1": "agent2.benchmarks.knowledge:TruthfulQaMc1",
        "truthfulqa_mc2": "agent2.benchmarks.knowledge:TruthfulQaMc2",
        "bbh": "agent2.benchmarks.knowledge:BigBenchHard",
        "reward_bench": "agent2.benchmarks.preferences:RewardBench",
        "judge_bench": "agent2.benchmarks.preferences:JudgeBench",
        "llmbar": "agent2.benchmarks.preferences:LlmBar",
        "preferences_internal": "agent2.benchmarks.preferences:PreferencesInternal",
        "livecodebench": "agent2.benchmarks.contests:LiveCodeBench",
        "swe_bench": "agent2.benchmarks.repairs:SweBench",
        "swebench_verified": "agent2.benchmarks.repairs:SweBenchVerified",
        "mt_bench": "agent2.benchmarks.two_turns:MtBench",
        "api_bank": "agent2.benchmarks.api_calls:ApiBank",
        "acebench": "agent2.benchmarks.api_calls:AceBench",
        "math": "agent2.benchmarks.mathematics:CompetitionMath",
        "math_500": "agent2.benchmarks.mathematics:CompetitionMath500",
        "aime_private": "agent2.benchmarks.mathematics:AimePrivate",
        "mmmu": "agent2.benchmarks.vision_files:Mmmu",
        "mmbench": "agent2.benchmarks.vision_files:MmBench",
        "mathvista": "agent2.benchmarks.vision_files:MathVista",
        "chartqa": "agent2.benchmarks.vision_files:ChartQa",
        "docvqa": "agent2.benchmarks.vision_files:DocVqa",
        "webarena_verified": "agent2.benchmarks.webarena_verified:WebArenaVerified",
        "pyfunc": "agent2.benchmarks.pyfunc:Pyfunc",
        "arithmetic_pyfunc": "agent2.benchmarks.mixture:ArithmeticPyfunc",
        "pyfunc_hard": "agent2.benchmarks.pyfunc:PyfuncHard",
    }
)

BASES: MappingProxyType[str, str] = MappingProxyType(
    {
        "tiny-arithmetic": "agent2.benchmarks.recipes.arithmetic:BASE",
        "tiny-arithmetic-small": "agent2.benchmarks.recipes.arithmetic:SMALL",
        "tiny-alfworld": "agent2.benchmarks.recipes.alfworld:BASE",
        "tiny-household": "agent2.benchmarks.recipes.household:BASE",
        "tiny-replies": "agent2.benchmarks.recipes.replies:BASE",
        "tiny-replies-guarded": "agent2.benchmarks.recipes.replies:GUARDED",
        "tiny-mini": "agent2.benchmarks.recipes.mini:BASE",
        "tiny-dialogue": "agent2.benchmarks.recipes.dialogue:BASE",
        "tiny-shop": "agent2.benchmarks.recipes.shop:BASE",
        "tiny-pyfunc": "agent2.benchmarks.recipes.pyfunc:BASE",
        "tiny-pyfunc-small": "agent2.benchmarks.recipes.pyfunc:SMALL",
        "tiny-arithmetic-pyfunc": "agent2.benchmarks.recipes.mixture:BASE",
        "tiny-vision": "agent2.benchmarks.recipes.vision:BASE",
        "tiny-search": "agent2.benchmarks.recipes.search:BASE",
    }
)
"""Base models that a home has a recipe for: name -> "module:attribute" of a `BaseModel`."""
BASE_MODELS = RecipeTable(BASES)
"""Every base model that there is a recipe for, those of installed packages included."""
DEMO_TASK = "arithmetic"
"""Run where no task is named; its scripted LLM and its base model have the same name."""

READS_FILES = frozenset(
    {
        *("alfworld", "alfworld_chat", "alpacaeval", "bfcl_v3", "bfcl_v4", "deepsearchqa", "gsm8k", "humaneval"),
        *("ifeval", "mbpp", "mmlu_pro", "webshop", "mmlu", "gpqa", "arc_challenge", "arc_easy", "truthfulqa_mc1"),
        *("truthfulqa_mc2", "bbh", "math", "math_500", "aime_private", "reward_bench", "judge_bench", "llmbar"),
        *("preferences_internal", "api_bank", "acebench", "livecodebench", "swe_bench", "swebench_verified"),
        *("mt_bench", "mmmu", "mmbench", "mathvista", "chartqa", "docvqa", "webarena_verified"),
    }
)
"""Benchmarks whose items come from a folder of the user's; each takes `data`, or looks in the usual place."""

CATALOG = Path(__file__).parent / "catalog"
ATTRIBUTES = ("name", "version", "primary_metric", "max_turns", "sampling", "attempts")
METHODS = ("items", "environment", "scorer", "environment_version")
"""What a plug-in's benchmark must have."""

VARIANTS: Mapping[str, FaultSettings | None] = MappingProxyType(
    {"faulty": ALL_FAULTS, "steady": FaultSettings(), "condensed": None}
)
"""Variant -> its faults; None: those of the benchmark."""
CONDENSED = "drop_observations"
"""The context policy of `-condensed`."""


def load_benchmark(name: str, data: Path | None = None, where: str = "benchmark") -> Benchmark:
    """A fresh benchmark by name; its private items are guarded (`guarded`).

    name: packaged, of an installed package, `BRIDGE:NAME`, `FILE.py:NAME`, `module:NAME`, or a folder with
    `benchmark.yaml`; a packaged name may end in `-faulty`, `-steady` or `-condensed`.
    data: folder of official data, for a benchmark that reads files; None: where its own downloader puts them.
    where: flag, or file and line, that the name came from.
    Raises ConfigError, with the nearest name, for an unknown one, for data that it does not take, and for a plug-in
    that cannot be used.
    """
    if (variant := _variant_of(name)) is not None:
        return guarded(BenchmarkVariant(load_benchmark(variant[0], data, where), variant[1]))
    if data is not None and name not in READS_FILES:
        raise ConfigError(
            f"benchmark {name} makes its own items and reads no data folder ({data}); remove --data, which is for "
            f"{', '.join(sorted(READS_FILES))}"
        )
    if (bridged := split_bridged(name)) is not None:
        bridge, inner_name = bridged
        key = "name" if BRIDGES[bridge].player == GENERATOR else "path"
        plugin = find("benchmark", bridge, {bridge: BRIDGES[bridge].player})
        return guarded(cast(Benchmark, build(plugin, {"bridge": bridge, key: inner_name, "where": where})))
    if is_data_name(name, where):
        benchmark: Benchmark = _data_benchmark(Path(name).expanduser())
        _refuse_taken(benchmark.name, f"{where} {name!r}")
        return guarded(benchmark)
    if not is_code(name) and not is_known(name) and (row := named_benchmarks().get(name)) is not None:
        hint = f"it is called {row.benchmark}" if row.benchmark else "it is not played"
        raise ConfigError(f"{where}: unknown benchmark {name!r}; {hint} here: see agent2 benchmarks show {name}")
    if not is_known(name):
        require_behind_colon(name, "" if where == "benchmark" else where)
    plugin = find("benchmark", name, BENCHMARKS, "" if where == "benchmark" else where)
    if plugin.is_packaged and plugin.attribute.endswith(".yaml"):
        return guarded(DeclaredBenchmark(CATALOG / plugin.attribute, data=data))
    if plugin.is_packaged:
        return guarded(cast(Benchmark, build(plugin, {"data": data} if name in READS_FILES else None)))
    benchmark = build(plugin)
    require_members(plugin, benchmark, ATTRIBUTES, METHODS)
    _check_values(plugin, benchmark)
    return guarded(with_source_version(benchmark, source_digest(plugin)))


def _data_benchmark(path: Path) -> Benchmark:
    """The benchmark of a `benchmark.yaml`. Raises ConfigError."""
    if not is_item_set(path):
        return DeclaredBenchmark(path)
    spec, origin = read_item_set(path)
    if is_code(origin):
        raise ConfigError(f"{path}: {spec.items_of!r} is code, which a set of items does not run; name a benchmark")
    origin_benchmark: Benchmark = load_benchmark(origin, where=f"{path}: items_of")
    return ItemSet(path, spec, origin_benchmark)


def is_known(name: str) -> bool:
    """Whether a benchmark of this name is packaged or installed, or a name behind a bridge (not a file)."""
    is_here = name in BENCHMARKS or name in installed("benchmark")
    return is_here or _variant_of(name) is not None or is_named(name)


def _variant_of(name: str) -> tuple[str, str] | None:
    """Packaged benchmark and variant of a name; None: the name has no variant."""
    parts = split_variant(name)
    return parts if parts is not None and parts[0] in BENCHMARKS and name not in BENCHMARKS else None


def is_data_name(name: str, where: str = "benchmark") -> bool:
    """Whether a name is that of a data benchmark. Raises ConfigError for a path that is not one."""
    path = Path(name).expanduser()
    if split_bridged(name) is not None:
        return False
    refuse_items_file(name, "" if where == "benchmark" else where)
    if is_code(name) or not is_located(name):
        if not is_code(name) and not is_known(name) and is_data_file(path):
            raise ConfigError(f"{where} {name!r}: to use the folder of that name, write ./{name}")
        return False
    if not path.exists():
        raise ConfigError(f"{where} {name!r}: there is no such file or folder; check the path")
    if path.is_dir() and not is_data_file(path):
        raise ConfigError(f"{where} {name!r}: the folder has no benchmark.yaml; make one with agent2 benchmarks new")
    return True


def refuse_items_file(name: str, where: str) -> None:
    """Raise ConfigError, with what to type, for a file of items in place of a benchmark."""
    path = Path(name).expanduser()
    if name.endswith(FORMATS) and path.is_file():
        folder = path.name.partition(".")[0]
        before = f"{where}: " if where else ""
        raise ConfigError(
            f"{before}{name} is a file of items; agent2 benchmarks new {name} makes a benchmark of it, to be named as "
            f"./{folder}"
        )


def code_folders(name: str) -> list[Path]:
    """Folders to mount in a sandbox so that the code of a benchmark is found there; empty: none are needed."""
    return list(dict.fromkeys(import_root(plugin) for plugin in _code(name)))


def own_files(name: str) -> OwnFiles:
    """The files of a user's own benchmark: a `benchmark.yaml` with all that it names, or Python files.

    What a program reads by itself is unknown; none for a packaged or installed benchmark, or a set of items, which no
    task plays. Raises ConfigError for a name that leads to none.
    """
    if _variant_of(name) is not None or split_bridged(name) is not None:
        return OwnFiles(())
    if not is_data_name(name):
        return OwnFiles(tuple(source_files(find("benchmark", name, BENCHMARKS))))
    path = Path(name).expanduser()
    return OwnFiles(()) if is_item_set(path) else declared_files(path)


def hidden_files(name: str) -> tuple[Path, ...]:
    """Files of a user's own data with hidden items, which no sandbox of an agent may show."""
    if not is_data_name(name) or is_item_set(path := Path(name).expanduser()):
        return ()
    return DeclaredBenchmark(path).hidden_files


def name_inside(name: str, scratch: Path, path_inside: Callable[[Path], Path]) -> str:
    """The name under which a process in a sandbox, which gets its items from outside, loads a benchmark.

    scratch: where a file may be written for it. path_inside: host path -> its path inside the sandbox.
    Data stay outside: the process gets the file alone, with its digests.
    """
    if _variant_of(name) is not None:
        return name
    if split_bridged(name) is not None:
        raise ConfigError(f"benchmark {name!r}: is behind a bridge, which agent2 eval plays; a trial needs a task")
    if not is_data_name(name):
        plugin = find("benchmark", name, BENCHMARKS)
        return name if plugin.is_packaged else _inside(plugin, path_inside)
    if is_item_set(Path(name).expanduser()):
        raise ConfigError(
            f"benchmark {name!r}: is a set of chosen items, which agent2 eval plays; a trial needs a task"
        )
    sealed = scratch / "benchmark.yaml"
    sealed.write_text(
        DeclaredBenchmark(Path(name).expanduser()).sealed(lambda plugin: _inside(plugin, path_inside)), "utf-8"
    )
    return str(path_inside(sealed))


def _inside(plugin: PluginLocation, path_inside: Callable[[Path], Path]) -> str:
    if plugin.is_packaged:
        return plugin.name
    return f"{plugin.module or path_inside(plugin.file or Path())}:{plugin.attribute}"


def _code(name: str) -> list[PluginLocation]:
    """The plug-ins of a benchmark whose code a sandboxed Python cannot import without a mount."""
    if _variant_of(name) is not None or split_bridged(name) is not None:
        return []
    if is_data_name(name):
        if is_item_set(Path(name).expanduser()):
            return []
        data = DeclaredBenchmark(Path(name).expanduser())
        plugins = [data.scorer_location, data.environment_location]
    else:
        plugins = [find("benchmark", name, BENCHMARKS)]
    return [
        plugin
        for plugin in plugins
        if not plugin.is_packaged and (plugin.file is not None or not is_on_default_path(import_root(plugin)))
    ]


def _check_values(plugin: PluginLocation, benchmark: Benchmark) -> None:
    """Raises ConfigError unless a plug-in's benchmark has the values that the engine needs and makes its objects."""
    if not isinstance(benchmark.sampling, SamplingSettings):
        raise ConfigError(f"{plugin}: sampling is {benchmark.sampling!r}; make it an agent2.records.SamplingSettings")
    for name in ("max_turns", "attempts"):
        value = getattr(benchmark, name)
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{plugin}: {name} is {value!r}; set it to an integer of at least 1")
    try:
        scorer, world, version = benchmark.scorer(), benchmark.environment(), benchmark.environment_version()
    except Agent2Error:
        raise
    except Exception as error:  # boundary: third-party code can raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(f"{plugin}: scorer(), environment() or environment_version() raised {reason}") from error
    require_scorer(PluginLocation("scorer", f"{plugin.name} scorer()", ""), scorer)
    require_members(
        PluginLocation("environment", f"{plugin.name} environment()", ""), world, (), ("reset", "act", "state")
    )
    if not isinstance(version, str) or "-v" not in version:
        raise ConfigError(f"{plugin}: environment_version() gives {version!r}; give name and version, as question-v1.0")
    if plugin.package and benchmark.name != plugin.name:
        raise ConfigError(
            f"{plugin}: calls itself {benchmark.name!r}; its name and that of its entry point have to agree"
        )
    # code may also name a benchmark that is installed: then the name is its own
    declared = {point.value for point in installed("benchmark").get(benchmark.name, [])}
    if not plugin.package and f"{plugin.module}:{plugin.attribute}" not in declared:
        _refuse_taken(benchmark.name, str(plugin))


def _refuse_taken(name: str, origin: str) -> None:
    """Cards distinguish benchmarks by name, so that of a packaged or installed one is taken."""
    if is_known(name):
        raise ConfigError(f"{origin}: calls itself {name!r}, the name of a benchmark that is installed; rename it")


def task_files() -> dict[str, Path]:
    """Name -> file of every task in a packaged home."""
    homes = Path(str(resources.files(__name__)))
    return {path.stem: path for path in sorted(homes.glob("*/tasks/*.yaml"))}


def guarded(benchmark: BenchmarkT) -> BenchmarkT:
    """The same benchmark; every request for private items first leaves an entry in the access log.

    For a benchmark that did not come from `load_benchmark`. The evaluations and trials of this package make entries of
    their own, and no request is logged twice. Raises ConfigError for an object whose class cannot be extended.
    """
    cls = type(benchmark)
    if not getattr(cls, "is_guarded", False):
        try:
            object.__setattr__(benchmark, "__class__", _guarded_class(cls))  # object's: works on frozen ones too
        except TypeError as error:
            raise ConfigError(f"benchmark {benchmark.name}: {error}; make it an ordinary Python class") from error
    return benchmark


@cache
def _guarded_class(cls: type[Any]) -> type[Any]:
    """A subclass whose `items` logs; a subclass, so that isinstance and every attribute stay as they are."""

    def items(self: Any, split: Split, n: int, secret: bytes | None) -> list[Item]:
        if split is Split.TEST_PRIVATE:
            log_private_items(self.name, n, secret)
        with access_already_logged():
            drawn_items: list[Item] = cls.items(self, split, n, secret)
            return drawn_items

    items.__doc__ = cls.items.__doc__
    names = {
        "items": items,
        "is_guarded": True,
        # without slots of its own the subclass has the layout of its base, which assigning __class__ requires
        "__slots__": (),
        "__module__": cls.__module__,
        "__doc__": cls.__doc__,
    }
    subclass = type(cls.__name__, (cls,), names)
    return subclass


def split_variant(name: str) -> tuple[str, str] | None:
    """Benchmark and variant of a name; None: the name has no variant."""
    base, dash, variant = name.rpartition("-")
    return (base, variant) if dash and base and variant in VARIANTS else None


class BenchmarkVariant:
    """A benchmark with other faults or another context; everything else is delegated to it."""

    def __init__(self, benchmark: Benchmark, variant: str) -> None:
        self._benchmark, self._faults, self._variant = benchmark, VARIANTS[variant], variant
        self.name = f"{benchmark.name}-{variant}"
        self.version = benchmark.version
        self.primary_metric = benchmark.primary_metric
        self.max_turns = benchmark.max_turns + (SPARE_CALLS if self._is_broken else 0)
        self.sampling = benchmark.sampling
        self.attempts = benchmark.attempts
        rules: Mapping[str, JsonValue] = getattr(benchmark, "tool_protocol", {})
        self.tool_protocol = {**rules, **self._fault_rules(rules)} if rules else {}
        self.context: str = CONDENSED if variant == "condensed" else getattr(benchmark, "context", "full")

    @property
    def _is_broken(self) -> bool:
        return self._faults is not None and self._faults.rate > 0

    def __getattr__(self, name: str) -> Any:
        """Optional methods (`home`) are those of the benchmark itself, its players too."""
        # else copying or unpickling, which looks for such names before __init__, would not end
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._benchmark, name)

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The benchmark's own. Raises as it does."""
        return self._benchmark.items(split, n, secret)

    def environment(self) -> Environment:
        """A fresh world, with its faults."""
        world = self._benchmark.environment()
        return world if self._faults is None else with_faults(world, self._faults)

    def scorer(self) -> Scorer:
        """The benchmark's own."""
        return self._benchmark.scorer()

    def environment_version(self) -> str:
        """That of the benchmark; with faults changed, the variant and a digest of them too."""
        if self._faults is None:
            return self._benchmark.environment_version()
        return f"{self._benchmark.environment_version()}+{self._variant}-{digest_of(self._faults)[:8]}"

    def _fault_rules(self, rules: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        if self._faults is None:
            return {}
        changes: dict[str, JsonValue] = {
            "fault_rate": self._faults.rate,
            "fault_kinds": [str(kind) for kind in self._faults.kinds] if self._faults.rate > 0 else [],
        }
        if isinstance(max_tool_calls := rules.get("max_tool_calls"), int) and self._faults.rate > 0:
            changes["max_tool_calls"] = max_tool_calls + SPARE_CALLS
        return changes
