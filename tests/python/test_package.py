"""The package as it is installed: what it offers, and that its types tell the truth."""

import ast
import importlib.metadata
import importlib.resources
import re
from pathlib import Path

import forerun
from forerun import _forerun


def test_the_version_is_that_of_cargo() -> None:
    manifest = Path(__file__).parents[2].joinpath("Cargo.toml").read_text()
    found = re.search(r'^version = "(.+)"$', manifest, re.MULTILINE)
    assert found is not None
    assert forerun.version() == forerun.__version__ == found[1]
    assert importlib.metadata.version("forerun") == found[1]


def test_every_public_name_is_there() -> None:
    assert sorted(forerun.__all__) == forerun.__all__
    for name in forerun.__all__:
        assert hasattr(forerun, name), name


def test_the_stub_names_what_the_extension_has() -> None:
    package = importlib.resources.files("forerun")
    stub = ast.parse(package.joinpath("_forerun.pyi").read_text())
    told = {node.name for node in stub.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert told == {name for name in dir(_forerun) if not name.startswith("_")}
    assert package.joinpath("py.typed").is_file()


def test_the_hook_has_a_file_of_its_own_beside_that_of_a_development_install() -> None:
    data = Path(__file__).parents[2] / "python" / "data" / "purelib"
    names = [path.name for path in data.glob("*.pth")]
    # `maturin develop` has the sources found by a file with the package's name.
    assert names, "the hook is installed by a file"
    assert "forerun.pth" not in names
    assert all(name > "forerun.pth" for name in names), "sources are found before the hook runs"
