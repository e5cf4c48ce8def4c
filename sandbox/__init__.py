"""The embedded default: a real Kubernetes control plane with pretended nodes, and a local Alibaba Cloud endpoint.

Everything runs as this user, on loopback only, below one folder per sandbox. See ``docs/sandbox.md``.
"""
