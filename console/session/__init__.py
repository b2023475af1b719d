"""The operator's session: state, link, logs, history, filters, facts about a group."""
