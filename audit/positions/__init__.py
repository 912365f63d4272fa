"""Encodings of others that only the audit compares: learned positions of digits, and functions of the distance."""
