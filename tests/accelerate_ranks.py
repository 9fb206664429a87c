"""How processes that Accelerate prepared end in the tests."""

import os
import sys
import time


def leave(accelerator):
    """Without torch's tear-down, which now and then aborts a rank that has done all."""
    accelerator.wait_for_everyone()
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(1)  # the other may still be in that barrier
    os._exit(0)
