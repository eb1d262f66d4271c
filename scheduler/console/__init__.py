"""The console: the cluster in a browser, and every method of the service as JSON over HTTP.

Inside: calls of the service's handlers within the process, the Connect protocol over them, the
stream of map changes, the pages (static/, no build step), and the thread that serves it all.
Enters: HTTP requests, with the same tokens as gRPC calls. Leaves: pages, JSON, frames of the map.
"""
