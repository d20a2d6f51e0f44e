"""`python -m gdn_client` is `gdn-client`."""

from gdn_client.cli import main

if __name__ == "__main__":
    main()
