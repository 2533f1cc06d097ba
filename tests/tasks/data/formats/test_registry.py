"""Every reader module is a ``Format``, and its optional parts have the declared parameters."""

import inspect
from typing import get_args

import pytest

from models.settings.section import Section
from tasks.data.formats import FORMATS, Format, HasTreeRoot, Kind, ReportsNearMisses, load_format


def parameters(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_reader_is_a_format(name):
    reader = load_format(name)
    assert isinstance(reader, Format)
    assert reader.KIND in get_args(Kind)
    assert reader.LAYOUT
    assert issubclass(reader.Settings, Section)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("protocol", [Format, ReportsNearMisses, HasTreeRoot])
def test_readers_take_the_declared_parameters(name, protocol):
    reader = load_format(name)
    for function, declared in inspect.getmembers(protocol, inspect.isfunction):
        if not function.startswith("_") and hasattr(reader, function):
            assert parameters(getattr(reader, function)) == parameters(declared), function
