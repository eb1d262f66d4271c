"""Readers of files that other programs write, beside the scheduler, which imports none of them.

Inside: jobs of Megatron-LM, TorchTitan and DeepSpeed; topology files; ports of switches; health
tables; measured steps and collectives. Entry points name them (pyproject.toml):
`muster.importers` one for each command that reads, `muster.fabric-formats` one for each format; a
package of somebody else's adds its own.
Enters: a path. Leaves: a value of scheduler/files, or an InputError with file, line and field.
"""
