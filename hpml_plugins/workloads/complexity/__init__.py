"""What a model costs, not timed: multiply-adds, parameters, activations and bytes, by layer and operator."""

from hpml_plugins.workloads.complexity.counting import ModelCount, Work, build_model, count_model

__all__ = ["ModelCount", "Work", "build_model", "count_model"]
