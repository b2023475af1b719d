"""The forms in which clients ask and are answered, one parser and one encoder each."""
