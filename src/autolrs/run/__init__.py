"""Effects: carrying commands out on a host, snapshots, replayed batches, the journal."""
