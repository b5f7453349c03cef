"""The loop of a run: the order of the rounds, their expected duration, and what fits into a time
limit.

`hpml run`, `asv run` and the pytest fixture pass it their points and a function that measures one
round. It may import `host` and the layers below; it reports to a Follower, which prints. Start
reading in `loop.py`.
"""

from hpml_plugins.run.loop import (
    CAUTION,
    MEASURED_NOTHING,
    NOT_WHOLE,
    Follower,
    Pass,
    Task,
    measure_rounds,
    rounds_of,
)
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
