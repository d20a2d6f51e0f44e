"""``python -m gdn_service`` is ``gdn-service``."""

from gdn_service.cli import main

if __name__ == "__main__":
    main()
