"""The gateway as processes: sockets, workers, the door for boxes."""
