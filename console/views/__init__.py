"""Views: state rendered as lines of text."""
