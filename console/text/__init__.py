"""Text primitives (no Textual widgets): lines, wrap, Markdown, diff, number formats, theme."""
