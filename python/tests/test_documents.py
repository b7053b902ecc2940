"""The examples of the documentation, and whether the stubs name what there is."""

import ast
import doctest
import importlib
import inspect
import pathlib
import re

import pytest
import weft
from conftest import make_volume
from weft import _weft
from weft.fsspec import WeftFileSystem

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/python.md"


@pytest.mark.parametrize("module", ["weft", "weft.ec", "weft._files", "weft._volume", "weft.fsspec"])
def test_examples_in_modules(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.failed == 0
    assert found.attempted > 0 or module not in ("weft.ec", "weft._files", "weft.fsspec")


def test_examples_in_the_documentation(tmp_path, monkeypatch):
    make_volume(tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```pycon\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    text = "\n".join(blocks)
    example = doctest.DocTestParser().get_doctest(text, {}, DOCUMENT.name, str(DOCUMENT), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(example)
    assert runner.summarize().failed == 0
    assert runner.tries > 20
    WeftFileSystem.clear_instance_cache()


def test_the_stubs_name_what_there_is():
    stub = pathlib.Path(weft.__file__).with_name("_weft.pyi")
    for node in ast.parse(stub.read_text()).body:
        if not isinstance(node, ast.ClassDef):
            continue
        real = getattr(_weft, node.name)
        named = {method.name for method in node.body if isinstance(method, ast.FunctionDef)}
        there = {name for name in vars(real) if not name.startswith("__")}
        assert there == {name for name in named if not name.startswith("__")}, node.name
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("__") and not method.decorator_list:
                given = list(inspect.signature(getattr(real, method.name)).parameters)
                wanted = [argument.arg for argument in method.args.posonlyargs + method.args.args]
                assert [name.rstrip("_") for name in wanted] == [name.rstrip("_") for name in given], method.name
    assert {node.name for node in ast.parse(stub.read_text()).body if isinstance(node, ast.FunctionDef)} == {
        "close_all",
        "families",
    }
