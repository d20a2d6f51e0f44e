"""The commands of `gdn-client`. Bodies import what they need, so that --help stays quick."""
