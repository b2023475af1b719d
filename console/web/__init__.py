"""The console in a browser: links, cookies, and one console process for each browser window."""
