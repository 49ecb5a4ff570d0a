# SPDX-License-Identifier: Apache-2.0
"""Tests that must do something in the midst of something else, on a machine that may not give them their turn in time.

The rule of an attempt: compare first all that the program gave, then raise TooLate. What is wrong is never too late.
Everything that an attempt began has ended before it raises. The last attempt's TooLate is the test's failure.
"""


class TooLate(AssertionError):
    """What was to be hit was over already: that says nothing about the program."""


def in_time(attempt, tries=3):
    """What attempt() gives; made again when it came too late, as it does when the test itself had no turn."""
    for left in reversed(range(tries)):
        try:
            return attempt()
        except TooLate:
            if not left:
                raise
    return None
