import dataclasses

from agent2.records import EvaluationProtocol, SamplingSettings, Split, canonical_json, derive_seed, digest_of


def protocol(**changes):
    standard = EvaluationProtocol(
        benchmark="arithmetic-v1.0",
        split=Split.DEV,
        items_digest="i",
        sampling=SamplingSettings(),
        attempts=1,
        max_turns=1,
        environment="question-v1.0",
        scorer="rational-v1.0",
        dtype="float32",
        chat_template_digest="c",
    )
    return dataclasses.replace(standard, **changes)


def test_protocol_digest_changes_with_every_field():
    texts = ("benchmark", "items_digest", "environment", "scorer", "dtype", "chat_template_digest")
    changes = dict.fromkeys(texts, "x") | {"attempts": 2, "max_turns": 2}
    changes |= {"split": Split.TRAIN, "sampling": SamplingSettings(temperature=1.0), "tools": {"internet": True}}
    changes |= {"context_length": 64, "max_wall_time_s": 1.0, "retries": 0, "prompt_digest": "p", "judge_digest": "j"}
    changes |= {"context": "drop_admissible", "thinking": "auto"}
    assert set(changes) == {field.name for field in dataclasses.fields(EvaluationProtocol)}
    digests = {protocol(**{name: value}).digest for name, value in changes.items()}
    assert len(digests | {protocol().digest}) == len(changes) + 1


def test_equal_protocols_have_equal_digests():
    assert protocol().digest == protocol().digest


def test_canonical_json_does_not_depend_on_the_order_of_keys():
    assert canonical_json({"b": 1, "a": [1, 2]}) == canonical_json({"a": [1, 2], "b": 1}) == b'{"a":[1,2],"b":1}'
    assert digest_of({"b": 1, "a": 2}) == digest_of({"a": 2, "b": 1})


def test_derived_seeds_differ_by_part_and_are_stable():
    assert derive_seed("a", 1) == derive_seed("a", 1)
    assert len({derive_seed("a", 1), derive_seed("a", 2), derive_seed("a1"), derive_seed("1", "a")}) == 4
    assert 0 <= derive_seed("x") < 2**63
