"""One workflow, two models on two servers, each with its own reward."""
