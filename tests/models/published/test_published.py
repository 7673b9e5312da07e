from agent2.benchmarks import BASE_MODELS
from agent2.models.published import HubRepository, PackageFile, Use, chat_models, model_of, published_models


def test_every_row_of_the_table_is_whole_and_pins_what_it_names():
    for name, model in published_models().items():
        assert model.title and model.licence and model.n_parameters > 1_000_000, name
        if isinstance(model.source, PackageFile):
            assert len(model.source.sha256) == 64 and model.weights_digest, name
        else:
            assert isinstance(model.source, HubRepository)
            assert len(model.source.revision) == 40, name
        assert model_of(model.source) is model


def test_chat_models_are_base_models_by_name_and_embeddings_are_not():
    assert {"smollm2-135m", "qwen3-0.6b"} <= set(chat_models()) <= set(BASE_MODELS)
    assert published_models()["minilm"].use is Use.EMBEDDINGS
    assert "minilm" not in BASE_MODELS
