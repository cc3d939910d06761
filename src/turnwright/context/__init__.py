"""What a model is shown of what is known. Rule: pure functions, so the same knowledge gives the same request."""
