from collections.abc import Iterator

import pytest

from gateway_fakes import FakeProvider


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    fake = FakeProvider()
    fake.start()
    yield fake
    fake.stop()
