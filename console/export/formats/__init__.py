"""The built-in export formats, one module each with a `FORMAT`."""
