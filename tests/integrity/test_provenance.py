import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from agent2.integrity import ALIGNMENT, CHANGED, STRUCTURE, UNEXPLAINED, Effect
from agent2.integrity.provenance import (
    Relation,
    change_structure,
    compare_weights,
    least_correlation,
    provenance_check,
)
from agent2.integrity.residual import FAR, MAX_UNEXPLAINED, median_unexplained
from agent2.models.checkpoint import inspect_checkpoint
from integrity_builders import base_tensors, make_checkpoint

GATE, UP, DOWN = (f"model.layers.0.mlp.{part}_proj.weight" for part in ("gate", "up", "down"))


@pytest.fixture
def base(tmp_path):
    return make_checkpoint(tmp_path / "base", base_tensors())


def moved(share, seed=1):
    """The base plus a change of a share of its own spread, which passed through its matrices as gradients do."""
    generator = torch.Generator().manual_seed(seed)
    tensors = base_tensors()
    for name, tensor in tensors.items():
        change = torch.randn(tensor.shape[::-1] if tensor.ndim == 2 else tensor.shape, generator=generator)
        change = tensor @ change @ tensor if tensor.ndim == 2 else change
        tensors[name] = tensor + share * change * tensor.norm() / change.norm()
    return tensors


def noisy(share, seed=1):
    """The base plus noise of a share of its own spread."""
    noise = base_tensors(seed)
    return {name: tensor + share * noise[name] for name, tensor in base_tensors().items()}


def effect_of(candidate, base):
    findings = provenance_check(candidate, base, "submission 1").findings
    return findings[0].effect if findings else None


@pytest.mark.parametrize("share", [1e-4, 0.01, 0.3, 1.0])
def test_a_model_that_training_moved_is_a_child(base, tmp_path, share):
    child = make_checkpoint(tmp_path / "child", moved(share))
    comparison = compare_weights(child, base)
    assert comparison.relation is Relation.CHILD and effect_of(child, base) is None
    assert comparison.moved == pytest.approx(share, rel=0.1)
    assert comparison.median_correlation == pytest.approx(1 / (1 + share**2) ** 0.5, abs=0.05)


def test_a_model_of_other_origin_voids(base, tmp_path):
    foreign = make_checkpoint(tmp_path / "foreign", base_tensors(7))
    comparison = compare_weights(foreign, base)
    assert comparison.relation is Relation.FOREIGN and effect_of(foreign, base) is Effect.VOID
    assert abs(comparison.median_correlation) < 0.05
    finding = provenance_check(foreign, base, "submission 1").findings[0]
    assert finding.subject == "submission 1" and "0 of 9 matrices" in finding.words and finding.proofs


def mixture(share, seed=7):
    """A foreign model with a share of the base, 0 to 1."""
    foreign = base_tensors(seed)
    return {name: share * tensor + (1 - share) * foreign[name] for name, tensor in base_tensors().items()}


@pytest.mark.parametrize("share", [0.05, 0.1, 0.15, 0.25])
def test_a_foreign_model_with_some_of_the_base_mixed_in_voids(base, tmp_path, share):
    mixed = make_checkpoint(tmp_path / "mixed", mixture(share))
    assert compare_weights(mixed, base).relation in {Relation.FOREIGN, Relation.MIXED}
    assert effect_of(mixed, base) is Effect.VOID


def test_what_was_mixed_says_how_much_the_base_explains(base, tmp_path):
    mixed = make_checkpoint(tmp_path / "mixed", mixture(0.25))
    check = provenance_check(mixed, base, "submission 1")
    assert compare_weights(mixed, base).relation is Relation.MIXED
    assert check.figures[UNEXPLAINED] == pytest.approx(3 * 0.83, abs=0.3)  # (1 - s)/s less the strongest eighth
    assert check.figures[ALIGNMENT] == pytest.approx(1.0, abs=0.2)
    assert f"{check.figures[UNEXPLAINED]:.2f} times" in check.findings[0].words


@pytest.mark.parametrize("share", [0.4, 0.5, 0.75])
def test_a_mixture_that_is_not_further_than_training_goes_is_flagged_by_its_directions(base, tmp_path, share):
    mixed = make_checkpoint(tmp_path / "mixed", mixture(share))
    assert compare_weights(mixed, base).relation is Relation.UNALIGNED and effect_of(mixed, base) is Effect.FLAG


def test_training_that_went_as_far_but_along_the_bases_directions_is_flagged_and_not_void(base, tmp_path):
    far = make_checkpoint(tmp_path / "far", moved(2.5))
    comparison = compare_weights(far, base)
    assert FAR < median_unexplained(comparison.residuals) < MAX_UNEXPLAINED
    assert comparison.relation is Relation.DISTANT and effect_of(far, base) is Effect.FLAG


def test_no_factor_of_units_hides_a_mixture(base, tmp_path):
    tensors = mixture(0.2)
    for number, name in enumerate(sorted(tensors)):
        tensors[name] = 2.0 ** (number % 7 - 3) * tensors[name]
    assert effect_of(make_checkpoint(tmp_path / "scaled", tensors), base) is Effect.VOID


def test_a_few_planted_directions_do_not_hide_a_mixture(base, tmp_path):
    tensors = mixture(0.2)
    for tensor in tensors.values():
        if tensor.ndim == 2:
            tensor += 5 * tensor.norm() * torch.outer(*(torch.full((n,), n**-0.5) for n in tensor.shape))
    assert effect_of(make_checkpoint(tmp_path / "planted", tensors), base) is Effect.VOID


def test_an_adapter_that_diverged_is_flagged_and_not_void(base, tmp_path):
    tensors, generator = base_tensors(), torch.Generator().manual_seed(3)
    for tensor in tensors.values():
        if tensor.ndim == 2:
            up, down = (
                torch.randn(shape, generator=generator) for shape in ((tensor.shape[0], 2), (2, tensor.shape[1]))
            )
            tensor += 4 * tensor.norm() * (up @ down) / (up @ down).norm()
    diverged = make_checkpoint(tmp_path / "diverged", tensors)
    assert compare_weights(diverged, base).relation is Relation.DISTANT and effect_of(diverged, base) is Effect.FLAG


def test_a_mixture_in_the_middle_only_is_flagged(base, tmp_path):
    tensors = moved(0.1) | {name: mixture(0.2)[name] for name in (GATE, UP)}
    comparison = compare_weights(make_checkpoint(tmp_path / "middle", tensors), base)
    assert comparison.relation is Relation.PARTLY and comparison.related_share == 1.0, "correlation misses it"


def test_a_head_that_was_initialised_anew_is_no_finding(base, tmp_path):
    tensors = moved(0.1) | {"lm_head.weight": base_tensors(9)["lm_head.weight"]}
    assert effect_of(make_checkpoint(tmp_path / "head", tensors), base) is None


def test_a_vocabulary_that_grew_is_no_finding(base, tmp_path):
    grown = {
        name: torch.cat([tensor, tensor[:8]]) for name, tensor in moved(0.1).items() if "embed" in name or "lm" in name
    }
    assert effect_of(make_checkpoint(tmp_path / "grown", moved(0.1) | grown), base) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_child_in_16_bits_is_no_finding(base, tmp_path, dtype):
    tensors = {name: tensor.to(dtype) for name, tensor in moved(0.01).items()}
    assert effect_of(make_checkpoint(tmp_path / "short", tensors), base) is None


def switched_off(share=0.5, factor=60.0, seed=7):
    """A foreign model of a smaller width; the rest has the base's numbers, amplified so that r is near 1."""
    tensors = {}
    for name, before in base_tensors().items():
        foreign = base_tensors(seed)[name]
        if before.ndim == 2:
            rows, columns = (int(n * (1 - share)) for n in before.shape)
            rows = before.shape[0] if "embed" in name or "lm_head" in name else rows
            tensors[name] = factor * before
            tensors[name][:rows, :columns] = foreign[:rows, :columns]
        else:
            tensors[name] = foreign
    return tensors


@pytest.mark.parametrize("factor", [1.5, 60.0])
@pytest.mark.parametrize("share", [0.5])
def test_a_foreign_model_beside_units_that_contain_the_bases_numbers_voids(base, tmp_path, share, factor):
    patched = make_checkpoint(tmp_path / "patched", switched_off(share, factor))
    comparison = compare_weights(patched, base)
    assert comparison.median_correlation > 0.5 and comparison.related_share == 1.0, "the whole looks like a child"
    assert comparison.relation is Relation.PATCHED and effect_of(patched, base) is Effect.VOID


def test_a_foreign_model_in_one_matrix_beside_the_bases_numbers_is_flagged(base, tmp_path):
    patched = make_checkpoint(tmp_path / "one", moved(0.1) | {GATE: switched_off()[GATE]})
    assert compare_weights(patched, base).relation is Relation.PARTLY and effect_of(patched, base) is Effect.FLAG


def test_units_that_were_amplified_or_switched_off_are_flagged(base, tmp_path):
    tensors = moved(0.1)
    tensors[UP][:8] *= 1e-6
    odd = make_checkpoint(tmp_path / "odd", tensors)
    assert compare_weights(odd, base).relation is Relation.RESCALED and effect_of(odd, base) is Effect.FLAG


def test_an_embedding_of_which_training_met_few_tokens_is_not_foreign(base, tmp_path):
    tensors = moved(0.1)
    tensors["model.embed_tokens.weight"][:6] = base_tensors(7)["model.embed_tokens.weight"][:6]
    assert compare_weights(make_checkpoint(tmp_path / "met", tensors), base).relation is Relation.CHILD


def test_no_part_of_a_model_that_training_moved_far_looks_foreign(base, tmp_path):
    for seed in range(1, 6):
        child = make_checkpoint(tmp_path / f"child-{seed}", moved(0.8, seed))
        assert compare_weights(child, base).relation is Relation.CHILD


def test_layers_that_come_from_elsewhere_are_flagged(base, tmp_path):
    tensors = moved(0.1) | {GATE: base_tensors(7)[GATE]}
    partly = make_checkpoint(tmp_path / "partly", tensors)
    assert compare_weights(partly, base).relation is Relation.PARTLY and effect_of(partly, base) is Effect.FLAG
    assert provenance_check(partly, base, "s").findings[0].proofs[0].where == GATE


def permuted():
    """Feed-forward units in another order: the same function."""
    order = torch.randperm(32, generator=torch.Generator().manual_seed(0))
    tensors = base_tensors()
    return tensors | {GATE: tensors[GATE][order], UP: tensors[UP][order], DOWN: tensors[DOWN][:, order]}


def one_changed():
    tensors = base_tensors()
    tensors[GATE][3, 4] += 1
    return tensors


def scaled_pairs():
    """Each unit and each dimension scaled up in one layer and down in the next: the same function, up to bfloat16."""
    torch.manual_seed(0)
    units, dimensions = torch.exp(torch.randn(32)), torch.exp(torch.randn(64))
    tensors = base_tensors()
    tensors[UP] = units[:, None] * tensors[UP] / dimensions
    tensors[GATE] = tensors[GATE] / dimensions
    tensors[DOWN] = tensors[DOWN] / units
    for name in [name for name in tensors if "self_attn" in name]:
        tensors[name] = tensors[name] / dimensions if "o_proj" not in name else tensors[name] * 1.0
    tensors["model.layers.0.input_layernorm.weight"] *= dimensions
    return {name: tensor.bfloat16() for name, tensor in tensors.items()}


DISGUISES = {
    "scaled pairs of layers": (scaled_pairs, Relation.REARRANGED),
    "bfloat16": (lambda: {n: t.bfloat16() for n, t in base_tensors().items()}, Relation.COPY),
    "float16 and back": (lambda: {n: t.half().float() for n, t in base_tensors().items()}, Relation.COPY),
    "one number": (one_changed, Relation.COPY),
    "other names": (lambda: {f"x.{n[::-1]}": t for n, t in base_tensors().items()}, Relation.COPY),
    "times 1.5": (lambda: {n: 1.5 * t for n, t in base_tensors().items()}, Relation.REARRANGED),
    "times 1.5 in bfloat16": (
        lambda: {n: (1.5 * t).bfloat16() for n, t in base_tensors().items()},
        Relation.REARRANGED,
    ),
    "permuted": (permuted, Relation.REARRANGED),
}


@pytest.mark.parametrize("how", DISGUISES)
def test_the_base_in_another_form_is_a_copy(base, tmp_path, how):
    make, relation = DISGUISES[how]
    copy = make_checkpoint(tmp_path / "copy", make())
    assert compare_weights(copy, base).relation is relation and effect_of(copy, base) is Effect.VOID


def test_a_resharded_copy_is_a_copy(base, tmp_path):
    tensors = base_tensors()
    folder = make_checkpoint(tmp_path / "sharded").path
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {f"model-0000{i}-of-00002.safetensors": names[i - 1 :: 2] for i in (1, 2)}
    for shard, shard_names in shards.items():
        save_file({name: tensors[name] for name in shard_names}, folder / shard)
    weight_map = {name: shard for shard, shard_names in shards.items() for name in shard_names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert compare_weights(inspect_checkpoint(folder), base).relation is Relation.COPY


def test_training_of_a_few_numbers_is_flagged_and_not_voided(base, tmp_path):
    tensors = base_tensors()
    tensors[GATE].view(-1)[:70] += 0.1
    tensors["model.embed_tokens.weight"].view(-1)[:20] += 0.1
    few = make_checkpoint(tmp_path / "few", tensors)
    comparison = compare_weights(few, base)
    assert comparison.n_changed == 90
    assert comparison.relation in {Relation.NEAR_COPY, Relation.CHILD} and effect_of(few, base) is not Effect.VOID


def test_nothing_to_compare_is_not_cleared(base, tmp_path):
    tensors = {name: torch.ones(3, 3) for name in base_tensors()}
    check = provenance_check(make_checkpoint(tmp_path / "odd", tensors), base, "submission 1")
    assert [f.effect for f in check.findings] == [Effect.UNCLEARED]


def test_an_adapter_is_never_compared_before_it_is_merged(base, tmp_path):
    (tmp_path / "lora").mkdir()
    (tmp_path / "lora" / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    save_file({"base_model.model.x.lora_A.weight": torch.ones(4, 4)}, tmp_path / "lora" / "adapter_model.safetensors")
    check = provenance_check(inspect_checkpoint(tmp_path / "lora"), base, "submission 2")
    assert not check.is_complete and "merge it into the base model" in check.findings[0].words
    assert str(tmp_path) not in check.findings[0].words


def test_weights_that_are_not_numbers_are_foreign(base, tmp_path):
    broken = make_checkpoint(tmp_path / "nan", {n: torch.full_like(t, torch.nan) for n, t in base_tensors().items()})
    assert effect_of(broken, base) is Effect.VOID


def test_the_least_correlation_falls_with_size_to_a_floor():
    assert least_correlation(1024) == pytest.approx(9 / 32)
    assert least_correlation(10**9) == pytest.approx(0.075)


def test_a_change_by_gradients_is_structured_and_noise_is_not(base, tmp_path):
    rng = np.random.default_rng(0)
    for shape in ((64, 128), (256, 32), (300, 300)):
        noise = rng.standard_normal(shape).astype(np.float32)
        outer = rng.standard_normal((shape[0], 4)) @ rng.standard_normal((4, shape[1]))
        adam = np.sign(outer + 0.5 * noise).astype(np.float32)  # one step of Adam: the sign of a noisy gradient
        assert 0.7 < change_structure(noise) < 1.3
        assert change_structure(outer.astype(np.float32)) > 4 and change_structure(adam) > 2
        assert change_structure(np.full(shape, 1e-3, dtype=np.float32)) == 0.0
    check = provenance_check(make_checkpoint(tmp_path / "noisy", noisy(0.01)), base, "submission 2")
    assert check.subject == "submission 2" and 0.6 < check.figures[STRUCTURE] < 1.4 and check.figures[CHANGED] > 0
