"""The service from Python: one method per call, plain errors, retries that do no harm.

Inside: the client, its connection (deadlines, errors, pages, streams), credentials, and a
channel over several servers that share a store.
Enters: values of the core. Leaves: messages of scheduler.v1, or ServiceError.
"""

from scheduler.client.client import Client
from scheduler.client.connection import ServiceError

__all__ = ["Client", "ServiceError"]
