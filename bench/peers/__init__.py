"""What our proxy costs beside gateways and routers that only forward, on the same machine."""
