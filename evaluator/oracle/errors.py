"""The one error type of the oracle process and its exit status."""

import json
from typing import Any


class OracleError(Exception):
    """Bad input or an impossible request; printed as one JSON line, exit status 2.

    Args:
      where: the file, option or class at fault.
      found: what was there.
      expected: what would have been right.
      do: what the user can do about it.
    """

    def __init__(self, where: str, found: str, expected: str, do: str) -> None:
        super().__init__(f"{where}: found {found}; expected {expected}; {do}")
        self.where, self.found, self.expected, self.do = where, found, expected, do

    def to_json(self) -> str:
        record: dict[str, Any] = {
            "error": type(self).__name__,
            "where": self.where,
            "found": self.found,
            "expected": self.expected,
            "do": self.do,
        }
        return json.dumps(record, ensure_ascii=False)
