"""What the operator's seat knows: state, link, logs, history, filters, facts about a group."""
