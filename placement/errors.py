"""Bad input, named by field. The rooms that read files add the file and the line."""

from __future__ import annotations


class BadInput(ValueError):
    """A value that no fabric or job can have.

    `field` is a dotted path into the input ("parallelism.tp", "tiers.1.count").
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message
