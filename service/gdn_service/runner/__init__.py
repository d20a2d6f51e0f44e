"""What touches the host: git checkouts, processes, devices."""
