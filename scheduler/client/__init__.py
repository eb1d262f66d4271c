"""The service from Python: one method per call, plain errors, retries that do no harm.

Inside: the client and its parts by subject (hosts, health, windows), credentials, and a
channel over several servers that share a store.
Enters: values of the core. Leaves: messages of scheduler.v1, or ServiceError.
"""

from scheduler.client.client import Client, ServiceError

__all__ = ["Client", "ServiceError"]
