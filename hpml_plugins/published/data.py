"""Reading a data file of the package into values, strictly: a missing, unknown or mistyped key is an error."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from hpml_plugins.errors import DefinitionError

T = TypeVar("T")


def read_data(name: str, kind: type[T]) -> T:
    """The file `name` of `hpml_plugins/data` as a `kind`. Raises DefinitionError naming the file and the place."""
    # not at the top: discovery imports this module
    from importlib import resources

    import yaml

    text = resources.files("hpml_plugins").joinpath("data", name).read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's takes a tenth of the time
    try:
        return msgspec.convert(yaml.load(text, loader), kind)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise DefinitionError(str(error), f"hpml_plugins/data/{name}") from None
