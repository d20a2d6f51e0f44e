"""Entry of the candidate process: `python -I <folder> SOCKET_FD`.

The folder's own copy of the judge is importable only until `server` is loaded.
"""

import sys
from pathlib import Path


def main() -> None:
    root = str(Path(__file__).resolve().parents[2])
    sys.path.insert(0, root)
    from gdn_judge.agent import server

    sys.path.remove(root)
    server.serve(int(sys.argv[1]))


if __name__ == "__main__":
    main()
