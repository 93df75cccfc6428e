"""Whether a version may be promoted: evaluations, compared pair by pair, judged by a policy, and written down."""
