# SPDX-License-Identifier: Apache-2.0
"""Tests that must do something in the midst of something else, on a machine that may not give them their turn in time.

    def attempt():
        ...                                 begin something
        try:
            ...                             do something in its midst, or raise TooLate("it was over before")
        finally:
            ...                             wait for the end of what was begun, and compare all that it gave
    in_time(attempt)

The rule: compare first, then raise TooLate. What is wrong is never too late, and what fails in `finally` is no TooLate.
The last attempt's TooLate is the test's failure.
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
