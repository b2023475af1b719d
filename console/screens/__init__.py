"""The screens: state in, commands out."""
