"""The loop of a run: which round of which point is measured when, how long it takes, and what fits
into a limit.

`hpml run`, `asv run` and the fixture of pytest hand it their points and a function that measures
one round. It may import the host and what is below it; what it does is told to a Follower, who
prints. Start reading in `loop.py`.
"""

from hpml_plugins.run.loop import CAUTION, Follower, Pass, Task, measure_rounds, rounds_of
from hpml_plugins.run.times import (
    LIMIT_VARIABLE,
    OutOfTime,
    PastRound,
    Round,
    RoundTimes,
    TimeLeft,
    TimeLimit,
    limit_of_environment,
    parse_limit,
    read_past_rounds,
)
