"""The progress of a policy: what is known, prompts that changed, points of the curve, raters."""
