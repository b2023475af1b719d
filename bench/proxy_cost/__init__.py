"""What the proxy costs per request, beside a plain relay."""
