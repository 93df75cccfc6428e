"""That the box does not hold the answer: another version of the package, where the fault is mended or never was."""

import json

from sandboxes.backends.base import BoxSpec
from sandboxes.problems.swe.packages import PACKAGES

LOOK = """
import importlib.metadata, importlib.util, json, sys
names = json.loads(sys.argv[1])
installed = {one.metadata["Name"].lower().replace("-", "_") for one in importlib.metadata.distributions()}
print(json.dumps([name for name in names if name in installed or importlib.util.find_spec(name)]))
"""


async def test_no_box_has_a_version_of_a_problems_package(backend):
    """An installed one that is newer is the solution, an `import` away (`__file__` says where)."""
    modules = json.dumps(sorted(name.replace("-", "_") for name in PACKAGES))
    box = await backend.start(BoxSpec())
    try:
        result = await box.exec(["python3", "-c", LOOK, modules], timeout_s=60)
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout) == []
        put = await box.exec(["sh", "-c", "touch semver.py"], timeout_s=20)  # and the look is no blind one
        seen = await box.exec(["python3", "-c", LOOK, modules], timeout_s=60)
        assert (put.exit_code, json.loads(seen.stdout)) == (0, ["semver"])
    finally:
        await box.close()
