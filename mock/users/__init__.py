"""Who speaks: scripted turns or a persona model."""
