"""What others publish, as data with a source: the peaks of GPU types, and figures to hold ours against."""

from hpml_plugins.published.data import use_published
from hpml_plugins.published.figures import PublishedFigure, published_figures
from hpml_plugins.published.gpus import GpuType, find_gpu, gpu_types

__all__ = ["GpuType", "PublishedFigure", "find_gpu", "gpu_types", "published_figures", "use_published"]
