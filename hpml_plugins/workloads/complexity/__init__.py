"""The cost of a model, without timing: multiply-adds, parameters, activations and bytes, by layer
and operator."""

from hpml_plugins.workloads.complexity.counting import ModelCount, Work, count_model
from hpml_plugins.workloads.complexity.models import build_model, require_classifier

__all__ = ["ModelCount", "Work", "build_model", "count_model", "require_classifier"]
