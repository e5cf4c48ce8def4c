"""The sandbox's machines: nodes as ACK makes them, with file trees and root shells. See docs/sandbox-machines.md."""
