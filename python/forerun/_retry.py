"""Errors of a server or a network that go away: a fetch that meets one is made again.

Clients are not imported here, and so their errors are told apart by what they have: a status, a base
class, or a name.
"""

from __future__ import annotations

_STATUSES = frozenset({429, 500, 502, 503, 504})
# aiohttp, requests, urllib3, httpx and botocore name them so.
_NAMES = frozenset(
    {
        "ChunkedEncodingError",
        "ClientConnectionError",
        "ClientPayloadError",
        "ConnectionError",
        "EndpointConnectionError",
        "IncompleteReadError",
        "ProtocolError",
        "RemoteProtocolError",
        "TimeoutError",
        "TimeoutException",
        "TransportError",
    }
)

WAITS = (0.1, 0.4)
"""Seconds before the second and the third attempt."""


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    if not isinstance(error, Exception):
        return False
    status = _status(error)
    if status is not None:
        return status in _STATUSES
    return any(base.__name__ in _NAMES for base in type(error).__mro__)


def _status(error: Exception) -> int | None:
    """The status of an HTTP answer, where the error is one."""
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):  # botocore's
        told = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        holder = error if answer is None else answer
        told = getattr(holder, "status", None) or getattr(holder, "status_code", None)
    return told if isinstance(told, int) else None
