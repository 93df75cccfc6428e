"""Flows: one file each; a flow file defines flows and nothing else.

Every command and every run of a deployment is a process that imports three thousand modules, Prefect's and MLflow's above all.
Their objects live as long as the process, and looking for garbage among them again and again was a quarter of the time from
its start to its end: young collections are rare here, and none is made on the way out.
"""

import atexit
import gc

gc.set_threshold(100_000, 10, 10)  # the defaults are 700, 10 and 10
atexit.register(gc.freeze)
