"""Launch constants of operations on columns; none of them changes a bit."""

BLOCK = 1024
"""Numbers of a program that makes each from one number, or few."""

POWER_BLOCK = 512
"""Numbers of a program that raises each to a power, which takes more registers."""

OUTSIDE_BLOCK, OUTSIDE_COLUMNS = 2048, 64
"""Numbers that a program looks at together, and the most columns of them."""

POOL_ROWS, POOL_MEMBERS = 64, 16
"""Rows of a program that pools, and the most members of a cluster that it compares at a time."""

NORM_BLOCK, NORM_ROWS, NORM_FEATURES = 2048, 64, 512
"""Numbers of a program that normalises rows together, and the most rows and features of them."""

MEDIAN_BLOCK = 512
"""Numbers of whole rows of which a program finds medians."""

SEQUENCE_BLOCK = 1024
"""Numbers of whole rows that a program imputes."""

SUMMED_LOOKUPS = 32
"""The most lookups that a program sums at a time."""

EXPRESSION_BLOCK, EXPRESSION_WARPS = 256, 4
"""Numbers and warps of a program that evaluates an expression: with few for a thread, long code compiles sooner."""

LAUNCH_GROUPS, LAUNCH_INSTRUCTIONS = 32, 200
"""The most groups that one kernel evaluates and the most instructions of these; a longer program has its own kernel.

The time to compile a kernel grows with the square of the groups: 32 take 4 s.
"""
