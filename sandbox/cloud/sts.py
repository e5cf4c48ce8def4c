"""STS 2015-04-01: who am I, and sessions of roles (an AccessKey with a token that expires)."""

from __future__ import annotations

import re
import secrets
from datetime import timedelta
from typing import Any

from sandbox.cloud.errors import error
from sandbox.cloud.registry import Operation
from sandbox.cloud.world import ACCOUNT_ID, Call, World, stamp


def get_caller_identity(world: World, call: Call) -> dict[str, Any]:
    caller = call.caller
    if not caller.role:
        return {
            "AccountId": ACCOUNT_ID, "Arn": f"acs:ram::{ACCOUNT_ID}:user/{caller.user}", "IdentityType": "RAMUser",
            "PrincipalId": _user_id(caller.user), "UserId": _user_id(caller.user),
        }  # fmt: skip
    role = world.data["ram"]["roles"][caller.role]
    return {
        "AccountId": ACCOUNT_ID, "Arn": f"acs:ram::{ACCOUNT_ID}:assumed-role/{role['name']}/{caller.session}",
        "IdentityType": "AssumedRoleUser", "PrincipalId": f"{role['id']}:{caller.session}", "RoleId": role["id"],
    }  # fmt: skip


def assume_role(world: World, call: Call) -> dict[str, Any]:
    named = re.fullmatch(rf"acs:ram::{ACCOUNT_ID}:role/([A-Za-z0-9.-]+)", call.query["RoleArn"])
    if not named:
        raise error("InvalidParameter.RoleArn")
    session = call.query["RoleSessionName"]
    if not re.fullmatch(r"[A-Za-z0-9.@_-]{2,64}", session):
        raise error("InvalidParameter.RoleSessionName")
    wanted = named[1].lower()
    role = next((each for each in world.data["ram"]["roles"].values() if each["name"].lower() == wanted), None)
    if role is None:
        raise error("EntityNotExist.Role")
    seconds = call.query.get("DurationSeconds", 3600)
    if not 900 <= seconds <= role["max_session_seconds"]:
        raise error("InvalidParameter.DurationSeconds")
    key_id, expires = f"STS.{secrets.token_hex(12)}", world.now() + timedelta(seconds=seconds)
    record = {
        "secret": secrets.token_urlsafe(24), "token": secrets.token_urlsafe(96), "expires": stamp(expires),
        "role": role["name"], "session": session, "user": call.caller.user,
    }  # fmt: skip
    sessions = world.data["sessions"]
    for old in [each for each, known in sessions.items() if known["expires"] < stamp(world.now() - timedelta(days=1))]:
        del sessions[old]
    sessions[key_id] = record
    return {
        "AssumedRoleUser": {
            "Arn": f"acs:ram::{ACCOUNT_ID}:role/{role['name']}/{session}", "AssumedRoleId": f"{role['id']}:{session}",
        },
        "Credentials": {
            "AccessKeyId": key_id, "AccessKeySecret": record["secret"], "SecurityToken": record["token"],
            "Expiration": record["expires"],
        },
    }  # fmt: skip


def _user_id(user: str) -> str:
    return str(200000000000000000 + sum(user.encode()))


OPERATIONS = (
    Operation("STS", "GetCallerIdentity", get_caller_identity, write=False),
    Operation(
        "STS", "AssumeRole", assume_role, write=False, required=("RoleArn", "RoleSessionName"),
        query={"RoleArn": str, "RoleSessionName": str, "DurationSeconds": int},
    ),
)  # fmt: skip
