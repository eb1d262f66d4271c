"""Ids of requests: the id that a caller gave, whose it is, and a digest of what was asked.

All of it is one text, which commands and events carry as `request_id`:

    @TENANT/DIGEST/LENGTH:CALLER:ID         LENGTH: characters of CALLER

made where a call comes in and taken apart here. What is not of this form is an id alone, of
nobody in particular.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FORM = re.compile(r"@([^/]*)/([0-9a-f]*)/(\d+):")


class RequestId(NamedTuple):
    """`tenant`: against whose allowance it is remembered."""

    id: str
    tenant: str = ""
    caller: str = ""
    digest: str = ""

    @property
    def text(self) -> str:
        caller = f"{len(self.caller)}:{self.caller}"
        return f"@{self.tenant}/{self.digest}/{caller}:{self.id}"

    @property
    def key(self) -> str:
        """The same for every request with this id of this caller, whatever it asks."""
        return self._replace(digest="").text


def parse_request_id(text: str) -> RequestId:
    match = _FORM.match(text)
    if match is None:
        return RequestId(text)
    tenant, digest, length = match.groups()
    caller = text[match.end() : match.end() + int(length)]
    return RequestId(text[match.end() + len(caller) + 1 :], tenant, caller, digest)
