"""Recipes of base models and the reports of building them, without importing torch.

Kept apart from `agent2.models.tiny` so that a cached model can be looked up by its recipe in a moment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from agent2.records import JsonValue, digest_of

OnProgress = Callable[[str], None]
"""Called with a few words about the step that is running."""
N_SAMPLE_CHATS = 200
"""Chats of a corpus that its sample has, in most homes."""


@dataclass(frozen=True, slots=True)
class TinyRecipe:
    """All that the weights depend on, the corpus and the probe aside."""

    target: float
    """Training stops when the probe reaches this."""
    hidden_size: int = 128
    n_layers: int = 2
    n_heads: int = 8
    feed_forward_size: int = 384
    max_vocabulary: int = 320
    context_tokens: int = 256
    batch_size: int = 128
    adamw_learning_rate: float = 3e-3
    """For embeddings and norms."""
    muon_learning_rate: float = 0.02
    """For the matrices of the layers."""
    warmup_steps: int = 5
    probe_every_steps: int = 20
    max_steps: int = 2000
    """More than this without reaching the target is an error."""
    seed: int = 0
    threads: int = 1


@dataclass(frozen=True, slots=True)
class ProbePoint:
    """One reading of the probe."""

    step: int
    score: float
    loss: float
    """Mean loss in nats a token since the last reading."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """How a build went."""

    n_parameters: int
    steps: int
    score: float
    """The probe's last reading, at or above the target."""
    seconds: float
    history: Sequence[ProbePoint]


@dataclass(frozen=True, slots=True)
class ChatRecipe:
    """All that the weights of a model trained on chats depend on, the corpus aside (`agent2.models.tiny`)."""

    model: TinyRecipe
    """Size, vocabulary, context, learning rates, warm-up, seed and threads; its stopping rule is not used."""
    steps: tuple[int, ...]
    """Of each stage of the corpus."""
    batch_tokens: int = 4096
    """Most tokens of one batch, padding included."""
    pieces: tuple[str, ...] = ()
    """Strings that are one token wherever they occur."""
    report_every_steps: int = 50

    @property
    def seed(self) -> int:
        """Of the initial weights and the order of the chats."""
        return self.model.seed

    @property
    def threads(self) -> int:
        """Of torch."""
        return self.model.threads


@dataclass(frozen=True, slots=True)
class VisionRecipe:
    """All that the weights of a model that sees depend on, the corpus aside (`agent2.models.tiny_vision`)."""

    steps: int
    """On questions."""
    naming_steps: int = 0
    """Before these, in which the encoder learns what each patch shows."""
    side: int = 64
    """Pixels of a picture's sides."""
    patch: int = 16
    """Pixels of the sides of a patch."""
    hidden_size: int = 96
    """Of encoder and Llama."""
    n_encoder_layers: int = 2
    n_layers: int = 3
    n_heads: int = 6
    feed_forward_size: int = 256
    """Of the Llama; the encoder's is twice the hidden size."""
    max_vocabulary: int = 320
    context_tokens: int = 192
    batch_size: int = 32
    adamw_learning_rate: float = 3e-3
    muon_learning_rate: float = 0.02
    warmup_steps: int = 20
    pieces: tuple[str, ...] = ()
    """Strings that are one token wherever they occur."""
    report_every_steps: int = 50
    seed: int = 0
    threads: int = 1


@dataclass(frozen=True, slots=True)
class BaseModel:
    """How one base model is made; the record that a benchmark's home gives its tiny base by."""

    version: str
    """Raise it when the code of the recipe changes what comes out of the same settings."""
    recipe: Any
    """A `TinyRecipe` or `ChatRecipe`; of a model that is fetched, where it comes from (`agent2.models.published`)."""
    corpus: Any
    """Settings of the corpus, a frozen dataclass of the home's."""
    builder: "str | Builder"
    """Trains from the recipe: a function, or "module:function" of one that is loaded only when there is something to
    train."""
    origin: tuple[str, ...] = ()
    """Names of the code and the item pools that the weights depend on, as they were called when the model was first
    made. They stay when the code moves: the digest is in the names of cached folders and in shipped `made.json`."""
    shipped: str = ""
    """"package:folder" of the weights that come with the package and are unpacked; empty: trained on first use."""
    sample: "Callable[[Any], Any] | None" = None
    """Draws the first part of the corpus, of its settings; for shipped weights, so that a test can see whether the code
    of the corpus still is the one that drew what they were trained on."""
    is_fetched: bool = False
    """Others published it: brought here by `agent2 models get` alone, never on the way."""
    from_data: str = ""
    """"module:function" that completes the recipe from a folder of the user's official data (None: the usual place) and
    returns one without this; empty: the recipe is complete. A completed one holds all that it read."""

    @property
    def digest(self) -> str:
        """Names everything that the weights depend on, the machine and torch's version aside."""
        return digest_of([self.version, self.recipe, self.corpus, *self.origin])


Builder = Callable[[BaseModel, Path, OnProgress], dict[str, JsonValue]]
"""Builds into the folder and returns what the manifest says beyond the recipe."""


def named_function(name: "str | Callable[..., Any]") -> Any:
    """By "module:function"; a function is returned as it is."""
    if not isinstance(name, str):
        return name
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
