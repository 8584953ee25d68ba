"""The examples in the modules' docstrings."""

import doctest
import importlib
import pkgutil

import pytest

import phase2_groups

MODULES = [module.name for module in pkgutil.iter_modules(phase2_groups.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(f"phase2_groups.{name}"))
    assert not failed
