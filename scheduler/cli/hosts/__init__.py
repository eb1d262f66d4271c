"""Commands about hosts, links and spares, which ask a server.

`hosts` lists, drains and reports, `bulk` reports from files of health monitors, `links` is about
uplinks, `spares` about spare hosts, `windows` about maintenance, `status` is one screen of all.
In: arguments and files. Out: RPCs by `scheduler.client`, printed by `cli.render`.
"""
