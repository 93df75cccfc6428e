"""One model call: the prompt, the sampling, the reply."""
