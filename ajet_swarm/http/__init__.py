"""HTTP without any knowledge of the protocol: `interface` has requests, responses and the
transport, which `transport` implements over aiohttp."""
