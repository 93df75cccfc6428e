"""Which engines a gateway may talk to."""

import pytest

from sandboxes.gateway.settings import check_upstream


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://localhost:8000", "http://[::1]:8000"])
def test_engines_on_this_machine_are_fine(url):
    check_upstream(url, [])


@pytest.mark.parametrize(
    "url", ["http://10.0.0.7:8000", "http://169.254.169.254/", "http://0.0.0.0:1", "http://8.8.8.8"]
)
def test_engines_elsewhere_are_refused_unless_listed(url):
    host = url.split("/")[2].split(":")[0]
    with pytest.raises(ValueError, match=f"--allow-upstream {host}"):
        check_upstream(url, ["other.example"])
    check_upstream(url, [host])


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "file:///etc/passwd", "http://", ""])
def test_what_is_no_http_url_is_refused(url):
    with pytest.raises(ValueError, match="http"):
        check_upstream(url, [])
