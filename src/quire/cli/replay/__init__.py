"""Replays of recorded conversations: the messages that quire and other strategies would send at each model call."""
