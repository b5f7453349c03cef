"""What plugins draw: their figures collected, their tables made from Records, and charts rendered from the tables."""

from hpml_plugins.figures.collecting import Drawable, collect, tabulate
from hpml_plugins.figures.rendering import render
from hpml_plugins.figures.spelling import as_csv, as_markdown, as_text, spelled

__all__ = ["Drawable", "as_csv", "as_markdown", "as_text", "collect", "render", "spelled", "tabulate"]
