"""Processes of their own for what may crash, hang or multiply, and none of them left behind."""

from hpml_plugins.isolation.leftovers import end_leftovers
from hpml_plugins.isolation.parent_death import end_with_parent
from hpml_plugins.isolation.process import Fault, ProcessOutcome, Send, describe_exit, run_isolated
from hpml_plugins.isolation.stack import describe_stack, write_stack_before
