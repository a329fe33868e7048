"""The handlers of the routes: each makes a few library calls and fills a response. `quire.server.routes` calls them."""
