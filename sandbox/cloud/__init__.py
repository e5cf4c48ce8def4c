"""The sandbox's local Alibaba Cloud endpoint: CS, RAM, ECS and STS on one loopback port. See docs/sandbox-cloud.md."""
