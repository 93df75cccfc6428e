import pytest

from sandboxes.backends import prepare
from sandboxes.backends.base import BackendUnavailable


@pytest.fixture(scope="session")
def backend():
    """A real way to get boxes; the conformance tests show that one is like the other."""
    try:
        return prepare("auto")
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
