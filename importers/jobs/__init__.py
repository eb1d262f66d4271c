"""Job files from what other tools are started with: options, TOML, JSON.

An importer reads a file, draws what muster's job file has keys for, and says in
sentences what it could not know or does not represent. Nothing is executed. `scripts/`
reads launch scripts. The one entry point is `importers.jobs.load`.
"""
