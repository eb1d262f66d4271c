"""Launch scripts, of Megatron-LM and of any program that torchrun starts.

In: the text of a script, or a line of arguments. `shell` reads its words, `options` those of the
program, `command` what it starts; `megatron` fills the draft of a job file. Nothing is executed.
"""
