"""Queue and flow: what happens to a job between submit and its end."""
