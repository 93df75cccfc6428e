"""Episodes: the recording gateway, boxes, problems, agents."""
