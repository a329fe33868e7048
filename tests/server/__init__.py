"""The HTTP server, over real sockets."""
