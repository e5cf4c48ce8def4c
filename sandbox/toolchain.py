from pathlib import Path
def ensure(report):
    return Path("/tmp/bin")
