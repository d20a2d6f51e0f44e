"""``gdn-service`` and ``python -m gdn_service``; says what to install where it is missing."""

import sys


def main() -> None:
    try:
        from gdn_service import cli
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0].startswith("gdn_"):
            raise
        sys.exit(f"gdn-service: no {error.name}; pip install 'gdn-lab[service]'")
    cli.main()


if __name__ == "__main__":
    main()
