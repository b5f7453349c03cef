"""Processes of their own for what may crash, hang or multiply, and none of them left behind."""

from hpml_plugins.isolation.leftovers import end_leftovers, end_with_parent
from hpml_plugins.isolation.process import (
    Fault,
    ProcessOutcome,
    Send,
    describe_exit,
    describe_stack,
    run_isolated,
    write_stack_before,
)
