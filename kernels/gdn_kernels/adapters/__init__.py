"""The op behind the switches of serving frameworks."""
