"""The real packages that problems are made from: their source distributions, and where code and tests lie in them.

Packages of the `eval` split are in no training problem.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from lakehouse.records import Split


@dataclass(frozen=True)
class Package:
    """A package's layout. Patterns match whole paths relative to the distribution's root; `*` also crosses folders."""

    name: str
    licence: str  # SPDX
    split: Split
    version: str  # procedural bugs are made in this one
    sha256: dict[str, str]  # of each version's source distribution
    sources: Sequence[str]  # may be repaired; new modules that match may be added
    tests: Sequence[str]  # test files to run
    support: Sequence[str] = ()  # what the tests need besides
    without: Sequence[str] = ()  # neither shipped nor run
    paths: Sequence[str] = (".",)  # put on sys.path
    bugs_in: Sequence[str] = ("*",)  # sources that procedural bugs are made in
    image: str | None = None  # root file system to run in; none: ours

    def _matches(self, path: str, patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(path, pattern) for pattern in patterns) and not self._excluded(path)

    def _excluded(self, path: str) -> bool:
        return any(fnmatchcase(path, pattern) for pattern in self.without)

    def is_test(self, path: str) -> bool:
        return self._matches(path, self.tests)

    def is_source(self, path: str) -> bool:
        """Whether a patch may touch it."""
        return self._matches(path, self.sources) and not self._matches(path, (*self.tests, *self.support))

    def may_break(self, path: str) -> bool:
        """Whether procedural bugs may be put into it."""
        return path.endswith(".py") and self.is_source(path) and self._matches(path, self.bugs_in)

    def ships(self, path: str) -> bool:
        """Whether it belongs to the work tree. Metadata and changelogs do not: they leak versions and fixes."""
        return self._matches(path, (*self.sources, *self.tests, *self.support))


PACKAGES: dict[str, Package] = {
    package.name: package
    for package in (
        Package(
            name="parse",
            licence="MIT",
            split="train",
            version="1.21.0",
            sha256={
                "1.20.0": "bd28bae37714b45d5894d77160a16e2be36b64a3b618c81168b3684676aa498b",
                "1.20.1": "09002ca350ad42e76629995f71f7b518670bcf93548bdde3684fd55d2be51975",
                "1.20.2": "b41d604d16503c79d81af5165155c0b20f6c8d6c559efa66b4b695c3e5a0a0ce",
                "1.21.0": "937725d51330ffec9c7a26fdb5623baa135d8ba8ed78817ea9523538844e3ce4",
            },
            sources=("parse.py",),
            tests=("tests/test_*.py",),
        ),
        Package(
            name="semver",
            licence="BSD-3-Clause",
            split="train",
            version="3.0.4",
            sha256={
                "3.0.2": "6253adb39c70f6e51afed2fa7152bcd414c411286088fb4b9effb133885ab4cc",
                "3.0.4": "afc7d8c584a5ed0a11033af086e8af226a9c0b206f313e0301f8dd7b6b589602",
            },
            sources=("src/semver/*.py",),
            tests=("tests/test_*.py",),
            support=("tests/*.py",),
            without=("tests/test_docstrings.py",),
            paths=("src", "tests"),
        ),
        Package(
            name="cachetools",
            licence="MIT",
            split="train",
            version="7.2.8",
            sha256={
                "7.2.7": "e2154c809ce9e1247120258c36821467597b5663d44c3255a9790785f23c2b1e",
                "7.2.8": "3f9b146b2160975da273e7c23ec882f3996b65df608150d52083c07de0682075",
            },
            sources=("src/cachetools/*.py",),
            tests=("tests/test_*.py",),
            support=("tests/__init__.py",),
            without=("tests/test_threading.py",),
            paths=("src", "."),
        ),
        Package(
            name="boltons",
            licence="BSD-3-Clause",
            split="train",
            version="25.0.0",
            sha256={"25.0.0": "e110fbdc30b7b9868cb604e3f71d4722dd8f4dcb4a5ddd06028ba8f1ab0b5ace"},
            sources=("boltons/*.py",),
            tests=("tests/test_*.py",),
            support=("tests/*.txt", "tests/__init__.py"),
            without=(
                "tests/test_socketutils.py",
                "tests/test_gcutils.py",
                "tests/test_queueutils.py",
                "tests/test_funcutils_fb_py3.py",
                "tests/test_ecoutils.py",
            ),
        ),
        Package(
            name="mistune",
            licence="BSD-3-Clause",
            split="train",
            version="3.1.1",
            sha256={
                "3.1.0": "dbcac2f78292b9dc066cd03b7a3a26b62d85f8159f2ea5fd28e55df79908d667",
                "3.1.1": "e0740d635f515119f7d1feb6f9b192ee60f0cc649f80a8f944f905706a21654c",
            },
            sources=("src/mistune/*.py",),
            tests=("tests/test_*.py",),
            support=("tests/__init__.py", "tests/fixtures/*"),
            paths=("src", "."),
        ),
        Package(
            name="toolz",
            licence="BSD-3-Clause",
            split="train",
            version="1.2.0",
            sha256={
                "1.1.0": "27a5c770d068c110d9ed9323f24f1543e83b2f300a687b7891c1a6d56b697b5b",
                "1.2.0": "9667a038e9d6ecba37995e26cb2f59ec6420b6ad8dd9677de59db9b956b08490",
            },
            sources=("toolz/*.py", "tlz/*.py"),
            tests=("toolz/tests/test_*.py",),
            support=("toolz/tests/__init__.py",),
            without=("toolz/sandbox/tests/*", "toolz/tests/test_serialization.py", "toolz/tests/test_inspect_args.py"),
            bugs_in=("toolz/itertoolz.py", "toolz/functoolz.py", "toolz/dicttoolz.py", "toolz/recipes.py"),
        ),
        Package(
            name="tabulate",
            licence="MIT",
            split="train",
            version="0.9.0",
            sha256={"0.9.0": "0095b12bf5966de529c0feb1fa08671671b3368eec77d7ef7ab114be2c068b3c"},
            sources=("tabulate/*.py",),
            tests=("test/test_*.py",),
            support=("test/common.py",),
            without=("test/test_cli.py",),
            paths=(".", "test"),
        ),
        Package(
            name="click",
            licence="BSD-3-Clause",
            split="train",
            version="8.5.1",
            sha256={"8.5.1": "9bbfada76703fd1d784b83eea012e3e8c6a001a876543ef104fa56aaaeb072b4"},
            sources=("src/click/*.py",),
            # Not all of them: together they have 3,400 tests and run for many seconds.
            tests=(
                "tests/test_arguments.py",
                "tests/test_basic.py",
                "tests/test_commands.py",
                "tests/test_formatting.py",
                "tests/test_parser.py",
                "tests/test_types/test_*.py",
            ),
            support=("tests/conftest.py", "tests/test_types/__init__.py"),
            paths=("src",),
            bugs_in=("src/click/core.py", "src/click/formatting.py", "src/click/parser.py", "src/click/types.py"),
        ),
        Package(
            name="schema",
            licence="MIT",
            split="train",
            version="0.7.8",
            sha256={"0.7.8": "e86cc08edd6fe6e2522648f4e47e3a31920a76e82cce8937535422e310862ab5"},
            sources=("schema/*.py",),
            tests=("test_schema.py",),
        ),
        Package(
            name="simpleeval",
            licence="MIT",
            split="train",
            version="1.0.8",
            sha256={"1.0.8": "b417f869c11f2de034eb919820a825f35d12ce99f63a43971947ce73679eb9ba"},
            sources=("simpleeval.py",),
            tests=("tests/test_*.py",),
            support=("tests/__init__.py", "tests/base.py"),
        ),
        Package(
            name="xmltodict",
            licence="MIT",
            split="train",
            version="1.0.4",
            sha256={"1.0.4": "6d94c9f834dd9e44514162799d344d815a3a4faec913717a9ecbfa5be1bb8e61"},
            sources=("xmltodict.py",),
            tests=("tests/test_*.py",),
            support=("tests/__init__.py",),
        ),
        Package(
            name="inflection",
            licence="MIT",
            split="eval",
            version="0.5.1",
            sha256={"0.5.1": "1a29730d366e996aaacffb2f1f1cb9593dc38e2ddd30c91250c6dde09ea9b417"},
            sources=("inflection/*.py",),
            tests=("test_inflection.py",),
        ),
        Package(
            name="isodate",
            licence="BSD-3-Clause",
            split="eval",
            version="0.7.2",
            sha256={"0.7.2": "4cd1aa0f43ca76f4a6c6c0292a85f40b35ec2e43e315b59f06e6d32171a953e6"},
            sources=("src/isodate/*.py",),
            tests=("tests/test_*.py",),
            paths=("src",),
        ),
        Package(
            name="sqlparse",
            licence="BSD-3-Clause",
            split="eval",
            version="0.5.3",
            sha256={"0.5.3": "09f67787f56a0b16ecdbde1bfc7f5d9c3371ca683cfeaa8e6ff60b4807ec9272"},
            sources=("sqlparse/*.py",),
            tests=("tests/test_*.py",),
            support=("tests/conftest.py", "tests/files/*", "tests/__init__.py"),
            without=("tests/test_cli.py",),
        ),
        Package(
            name="ordered-set",
            licence="MIT",
            split="eval",
            version="4.1.0",
            sha256={"4.1.0": "694a8e44c87657c59292ede72891eb91d34131f6531463aab3009191c77364a8"},
            sources=("ordered_set/*.py",),
            tests=("test/test_*.py",),
        ),
        Package(
            name="idna",
            licence="BSD-3-Clause",
            split="eval",
            version="3.20",
            sha256={"3.20": "a7db850025b95ded1eae8a46181a1a6c56c92c96f0e2b005d9ff8dc0210cab44"},
            sources=("idna/*.py",),
            tests=("tests/test_*.py",),
            support=("tests/__init__.py",),
            without=(
                "tests/test_idna_cli.py",
                "tests/test_idna_concurrency.py",
                "tests/test_idna_fuzz_targets.py",
                "tests/test_idna_properties.py",
                "tests/test_idna_uts46.py",
            ),
        ),
        Package(
            name="webcolors",
            licence="BSD-3-Clause",
            split="eval",
            version="25.10.0",
            sha256={"25.10.0": "62abae86504f66d0f6364c2a8520de4a0c47b80c03fc3a5f1815fedbef7c19bf"},
            sources=("src/webcolors/*.py",),
            tests=("tests/test_*.py",),
            support=("tests/__init__.py",),
            paths=("src", "."),
        ),
    )
}
