from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.engine import NoEngine, TestEngine, test_engine
from support.service_fixtures import repo

__all__ = ["repo"]


@pytest.fixture(scope="session")
def engine() -> Iterator[TestEngine]:
    """A real engine; skipped with the reason where there is none."""
    try:
        with test_engine() as made:
            yield made
    except NoEngine as error:
        pytest.skip(str(error))
