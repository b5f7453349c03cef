from __future__ import annotations

import inspect

from support import ROOT

from hpml_plugins import hookspecs


def test_every_hook_is_documented_typed_and_on_one_screen() -> None:
    hooks = [
        (name, thing)
        for name, thing in vars(hookspecs).items()
        if hasattr(thing, "hpml_spec")
    ]
    docs = (ROOT / "docs" / "plugins.md").read_text()
    assert hooks
    for name, function in hooks:
        assert name.startswith("hpml_")
        assert inspect.signature(function).return_annotation is not inspect.Signature.empty
        assert "Called" in inspect.getdoc(function), (
            f"{name} does not say when it is called"
        )
        assert f"`{name}`" in docs, f"{name} is not in docs/plugins.md"
    assert len(inspect.getsource(hookspecs).splitlines()) < 80
