"""What the audit says to a foreign model into which a share of the base was mixed.

    python benchmarks/mixtures.py [--folder DIR] [--out FILE]

The stranger of `benchmarks/disguises.py` (made in DIR if it is not there), with 5 to 75% of tiny-arithmetic: as it is,
with pairs of layers scaled, with units and dimensions fitted to the base's, with planted directions, in one layer of
two, and as a change of low rank that is added to the base. Exit code 1 if a mixture of all layers with 5 to 25% of the
base is not void, or one with 40 or 50% has no finding.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from scipy.optimize import linear_sum_assignment

from agent2.benchmarks import BASE_MODELS
from agent2.integrity import ALIGNMENT, UNEXPLAINED
from agent2.integrity.provenance import provenance_check
from agent2.models.bases import ensure_base_model
from agent2.models.checkpoint import inspect_checkpoint
from disguises import EMBEDDING, Tensors, _scaled_pairs, _whole
from provenance_models import foreign

SHARES = (0.05, 0.1, 0.15, 0.25, 0.4, 0.5, 0.75)
READERS: Mapping[str, tuple[str, ...]] = {
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
}
"""What reads the output of each norm of a layer."""


@dataclass(frozen=True)
class Row:
    """One mixture."""

    kind: str
    share: float
    """Of the base, 0 to 1; of a change of low rank, its rank over the full one."""
    effect: str
    why: str
    unexplained: float
    alignment: float


def mixed(base: Tensors, stranger: Tensors, share: float) -> Tensors:
    """A share of the base and the rest of the stranger."""
    return {name: share * base[name] + (1 - share) * stranger[name] for name in base}


def fitted(base: Tensors, stranger: Tensors) -> Tensors:
    """The same function as the stranger's, in the basis that fits the base's embedding and units best."""
    out = {name: tensor.double() for name, tensor in stranger.items()}
    n_layers = 1 + max(int(name.split(".")[2]) for name in base if ".layers." in name)
    for layer in range(n_layers):
        for norm, readers in READERS.items():
            weight = out[f"model.layers.{layer}.{norm}.weight"]
            for reader in readers:
                out[f"model.layers.{layer}.{reader}.weight"] = out[f"model.layers.{layer}.{reader}.weight"] * weight
            out[f"model.layers.{layer}.{norm}.weight"] = torch.ones_like(weight)
    left, _, right = torch.linalg.svd(out[EMBEDDING].T @ base[EMBEDDING].double())
    rotation = left @ right
    for name, tensor in out.items():
        if tensor.ndim == 2:
            is_writer = "o_proj" in name or "down_proj" in name
            out[name] = rotation.T @ tensor if is_writer else tensor @ rotation
    for layer in range(n_layers):
        gate, up, down = (f"model.layers.{layer}.mlp.{part}_proj.weight" for part in ("gate", "up", "down"))
        fit = sum(base[name].double() @ out[name].T for name in (gate, up)) + base[down].double().T @ out[down]
        order = linear_sum_assignment(-fit.numpy())[1]
        out |= {gate: out[gate][order], up: out[up][order], down: out[down][:, order]}
    return {name: tensor.float() for name, tensor in out.items()}


def planted(tensors: Tensors) -> Tensors:
    """With one strong direction added to every matrix of a layer."""
    out = dict(tensors)
    for name, tensor in tensors.items():
        if "layers" in name and tensor.ndim == 2:
            direction = torch.outer(torch.randn(tensor.shape[0]), torch.randn(tensor.shape[1]))
            out[name] = tensor + 3 * tensor.norm() * direction / direction.norm()
    return out


def of_low_rank(base: Tensors, stranger: Tensors, share: float) -> Tensors:
    """The base with the strongest directions of its difference to the stranger added in all layers."""
    out = dict(base)
    for name, tensor in base.items():
        if "layers" in name and tensor.ndim == 2:
            left, strengths, right = torch.linalg.svd((stranger[name] - tensor).double(), full_matrices=False)
            rank = max(1, int(share * len(strengths)))
            out[name] = (tensor + (left[:, :rank] * strengths[:rank]) @ right[:rank]).float()
    return out


def mixtures(base: Tensors, stranger: Tensors) -> Mapping[str, Callable[[float], Tensors]]:
    """Kind -> weights by share."""
    fit = fitted(base, stranger)

    def in_one_layer(share: float) -> Tensors:
        mixture = mixed(base, stranger, share)
        return {name: mixture[name] if ".layers.1." in name else tensor for name, tensor in base.items()}

    return {
        "averaged": lambda share: mixed(base, stranger, share),
        "averaged, pairs of layers scaled": lambda share: _scaled_pairs(mixed(base, stranger, share)),
        "averaged after fitting units and dimensions": lambda share: mixed(base, fit, share),
        "averaged, a direction planted": lambda share: planted(mixed(base, stranger, share)),
        "averaged in one layer of two": in_one_layer,
        "change of low rank": lambda share: of_low_rank(base, stranger, share),
    }


def measure(folder: Path) -> list[Row]:
    """Every kind with every share."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    base_path, stranger_path = ensure_base_model("tiny-arithmetic", BASE_MODELS), folder / "foreign" / "seed-1"
    if not (stranger_path / "model.safetensors").exists():
        shutil.rmtree(stranger_path, ignore_errors=True)
        foreign(1)(base_path, stranger_path)
    base, stranger = (load_file(path / "model.safetensors") for path in (base_path, stranger_path))
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for kind, make in mixtures(base, stranger).items():
            for share in SHARES:
                _whole(base_path, Path(scratch) / "own", make(share))
                check = provenance_check(inspect_checkpoint(Path(scratch) / "own"), inspect_checkpoint(base_path), kind)
                shutil.rmtree(Path(scratch) / "own")
                finding = check.findings[0] if check.findings else None
                effect, why = (finding.effect.value, finding.name) if finding else ("", "")
                figures = check.figures
                rows.append(Row(kind, share, effect, why, figures[UNEXPLAINED], figures.get(ALIGNMENT, float("nan"))))
    return rows


def main() -> int:
    """Make, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the stranger is kept; a temporary folder if not given")
    parser.add_argument("--out", type=Path, help="also write the verdicts here, as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        rows = measure(arguments.folder or Path(temporary))
    print(f"{'':<46}{'share':>6}  {'effect':<6}{'unexplained':>12}{'alignment':>10}")
    for row in rows:
        print(
            f"{row.kind:<46}{row.share:>6.0%}  {row.effect or '-':<6}{row.unexplained:>12.2f}{row.alignment:>10.2f}",
            row.why,
        )
    if arguments.out is not None:
        arguments.out.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    whole = [row for row in rows if row.kind.startswith("averaged") and "one layer" not in row.kind]
    missed = [row for row in whole if row.share <= 0.25 and row.effect != "void"]
    missed += [row for row in whole if row.share in (0.4, 0.5) and not row.effect]
    print("missed:", [(row.kind, row.share) for row in missed])
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
