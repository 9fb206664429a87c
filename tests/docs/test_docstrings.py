"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

PACKAGES = ["autolrs.core", "autolrs.run", "autolrs.testing"]


def modules():
    for name in PACKAGES:
        package = importlib.import_module(name)
        yield name
        yield from (module.name for module in pkgutil.walk_packages(package.__path__, f"{name}."))


@pytest.mark.parametrize("name", sorted(modules()))
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples_to_run():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [example for name in modules() for example in finder.find(importlib.import_module(name))]
    assert sum(bool(example.examples) for example in examples) >= 12
