"""Whether the Python that runs this can be told to be a good one for the workbook: exit status 0.

It is new enough, makes virtual environments, and was built with optimisations. Without them, as
pyenv builds it unless told otherwise, a broker has clearly more to do for a request, and the tests
take longer. A distribution has its own way to ask for them, and always does.
"""

import importlib.util
import sys
import sysconfig

OPTIMISED = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")

if __name__ == "__main__":
    is_new_enough = sys.version_info >= (3, 11)
    has_venv = importlib.util.find_spec("ensurepip") is not None
    is_fast = OPTIMISED or sys.executable.startswith("/usr/bin/")
    sys.exit(not (is_new_enough and has_venv and is_fast))
