"""Run several processes as ranks of a joint measurement: start them, time them together, and name
the one that fails."""
