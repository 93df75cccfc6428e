"""`tiny`: a Llama of 2.8 M parameters that learns to use tools in minutes on a laptop, and the recipe that made it.

The weights beside this file come from `python -m tasks.training.tiny.pretrain`; `recipe.json` holds the digest.
"""
