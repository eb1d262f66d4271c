"""What ran on a cluster, as its programs print it: seconds of steps, and bandwidth of collectives.

Enters: a log of Megatron-LM, TorchTitan or NeMo, or the output of nccl-tests. Leaves: `RunSteps`
and `Sizes`, from which `muster calibrate` fits.
"""
