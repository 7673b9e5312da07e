import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "reference_trainer.py"


@pytest.mark.slow
def test_the_reference_trainer_improves_its_small_model():
    before, after = runpy.run_path(str(EXAMPLE))["main"]()
    assert 0.35 < before < 0.7
    assert after > before + 0.15
