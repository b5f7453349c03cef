"""Run code that may crash, hang or spawn processes in a separate process, and leave no process
behind."""

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
