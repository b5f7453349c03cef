"""The published pages: asv's site made complete offline, and the matrix of benchmarks and GPU types.

Importing this package, or its `publisher`, costs nothing: Jinja and asv's results are imported when a page is
written.
"""
