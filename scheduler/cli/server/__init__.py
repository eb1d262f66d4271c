"""Commands of whoever runs a server: they start one, or work on its files.

`serve` starts a server, `agents` an agent on a host, `stores` works on a store, `tokens` on the
auth file, `certs` makes certificates; `audit` reads who changed what, `health` is the health
check for scripts.
In: options and files. Out: processes, files, and exit codes.
"""
