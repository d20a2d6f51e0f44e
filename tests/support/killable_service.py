"""``gdn-service serve``, or another command, that kills itself with SIGKILL at a step of the flow.

    python killable_service.py before|after STEP [COMMAND]

"before": the step has not begun. "after": it is done, but not yet recorded.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from gdn_service import cli
from gdn_service.jobs import flow


def main(when: str, fatal: str, command: str = "serve") -> None:
    durable_step = flow._step

    def step(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        def lethal(*values: Any) -> Any:
            if when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*values)
            os.kill(os.getpid(), signal.SIGKILL)
            return result

        return durable_step(name, lethal if name == fatal else function, *arguments)

    flow._step = step
    sys.argv = ["gdn-service", command]
    cli.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
