"""The methods of the service by subject: hosts, windows, spares, health, moves, watches.

Each is a part of the servicer (service.servicer), which has the methods of jobs itself.
Enters: a request and its context. Leaves: a response, or an error of service.errors.
"""
