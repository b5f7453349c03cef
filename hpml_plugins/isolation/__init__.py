"""Processes of their own for what may crash, hang or multiply, and none of them left behind."""
