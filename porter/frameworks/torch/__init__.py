"""PyTorch: how its code names tensors, what runs its modules, and its ports."""

import os

# Read once, when torch is loaded. torch's threads share their cores with the processes that decode photos,
# and with whatever else runs. Threads that spin while they wait leave these nothing: on a busy machine, a
# third of the photos were measured.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
