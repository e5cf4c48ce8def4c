"""The one table of error codes that the endpoint answers with.

`source` says where a code is documented; `invented=True` marks codes for which no public document was found
(the real services have some code there too, but nobody outside knows which). docs/sandbox-cloud.md lists them, by test.
"""

from __future__ import annotations

from dataclasses import dataclass

COMMON = "common error codes of the OpenAPI gateway"
RAM = "RAM error messages (help page of the RAM API)"
ECS = "ECS API reference"
STS = "STS API reference"
TERRAFORM = "terraform-provider-alicloud"
VENDOR = "data-on-ack, gpu-sharing-with-cgpu"


@dataclass(frozen=True)
class Code:
    status: int
    message: str
    source: str = ""
    invented: bool = False


def _invented(status: int, message: str) -> Code:
    return Code(status, message, invented=True)


CODES: dict[str, Code] = {
    # who calls, and whether the request is what it claims to be
    "IncompleteSignature": Code(400, "The request signature does not conform to Aliyun standards. {why}", COMMON),
    "InvalidSignatureMethod": Code(400, "Specified signature method is not valid.", COMMON),
    "SignatureDoesNotMatch": Code(
        400, "Specified signature is not matched with our calculation. server string to sign is:{string}", COMMON
    ),
    "SignatureNonceUsed": Code(400, "Specified signature nonce was used already.", COMMON),
    "InvalidTimeStamp.Format": Code(400, "Specified time stamp or date value is not well formatted.", COMMON),
    "InvalidTimeStamp.Expired": Code(400, "Specified time stamp or date value is expired.", COMMON),
    "InvalidAccessKeyId.NotFound": Code(404, "Specified access key is not found.", COMMON),
    "InvalidAccessKeyId.Inactive": Code(400, "Specified access key is disabled.", COMMON),
    "MissingSecurityToken": Code(400, "SecurityToken is mandatory for this action.", COMMON),
    "InvalidSecurityToken.MismatchWithAccessKey": Code(
        400, "Specified SecurityToken mismatch with the AccessKey.", COMMON
    ),
    "InvalidSecurityToken.Expired": Code(400, "Specified SecurityToken is expired.", COMMON),
    "InvalidVersion": Code(400, "Specified parameter Version is not valid.", COMMON),
    "InvalidAction.NotFound": Code(404, "Specified api is not found, please check your url and method.", COMMON),
    "UnsupportedHTTPMethod": Code(400, "This http method is not supported.", COMMON),
    "Missing*": Code(400, "{name} is mandatory for this action.", COMMON),
    "Throttling.User": Code(400, "Request was denied due to user flow control.", COMMON),
    "ServiceUnavailable": Code(503, "The request has failed due to a temporary failure of the server.", COMMON),
    "InternalError": Code(500, "The request processing has failed due to some unknown error.", COMMON),
    "InvalidParameter.Unknown": _invented(400, "The field {name} is not known to {action}."),
    "InvalidParameter.Type": _invented(400, "The field {name} of {action} must be {expected}."),
    "InvalidParameter.Body": _invented(400, "The body of {action} is not valid: {why}"),
    # RAM
    "InvalidParameter.PolicyName.InvalidChars": Code(400, 'The parameter - "PolicyName" contains invalid chars.', RAM),
    "InvalidParameter.PolicyName.Length": Code(400, 'The parameter - "PolicyName" beyond the length limit.', RAM),
    "InvalidParameter.PolicyDocument.Length": Code(
        400, 'The parameter - "PolicyDocument" beyond the length limit.', RAM
    ),
    "InvalidParameter.Description.Length": Code(400, 'The parameter - "Description" beyond the length limit.', RAM),
    "InvalidParameter.PolicyType": Code(400, 'The parameter - "PolicyType" is incorrect.', RAM),
    "InvalidParameter.VersionId.Format": Code(400, 'The format of the parameter - "VersionId" is incorrect.', RAM),
    "InvalidParameter.RoleName.InvalidChars": Code(400, 'The parameter - "RoleName" contains invalid chars.', RAM),
    "InvalidParameter.RoleName.Length": Code(400, 'The parameter - "RoleName" beyond the length limit.', RAM),
    "InvalidParameter.RotateStrategy": _invented(400, 'The parameter - "RotateStrategy" is incorrect.'),
    "InvalidParameter.MaxItems": _invented(400, 'The parameter - "MaxItems" must be 1 to 1000.'),
    "InvalidParameter.Marker": _invented(400, 'The parameter - "Marker" is not one that was given out.'),
    "MalformedPolicyDocument": Code(400, "{why}", RAM),
    "NoPermission": Code(403, "You are not authorized to do this action.", RAM),
    "EntityNotExist.Policy": Code(404, "The policy does not exist.", RAM),
    "EntityNotExist.Policy.Version": Code(404, "The policy version does not exist.", RAM),
    "EntityNotExist.Role": Code(404, "The role does not exist.", RAM),
    "EntityNotExist.Role.Policy": Code(404, "The indicate policy attached to the role does not exist.", TERRAFORM),
    "EntityAlreadyExists.Policy": Code(409, "The policy does already EXIST.", RAM),
    "EntityAlreadyExists.Role.Policy": Code(409, "The role has already been attached this policy.", RAM),
    "DeleteConflict.Policy.Role": _invented(
        409, "The policy CAN NOT been attached to any role while deleting the policy."
    ),
    "DeleteConflict.Policy.Version": Code(409, "The policy CAN NOT has any version except the default version.", RAM),
    "DeleteConflict.Policy.Version.Default": Code(
        409, "The default policy version CAN NOT been deleted directly.", RAM
    ),
    "LimitExceeded.Policy": Code(409, "The count of policy beyond the current limits.", RAM),
    "LimitExceeded.Policy.Version": Code(409, "The count of policy version beyond the current limits.", RAM),
    "LimitExceeded.Role.Policy": Code(409, "The policy count of the role beyond the current limits.", RAM),
    # CS
    "ErrorClusterNotFound": Code(404, "cluster ({id}) not found in our records", TERRAFORM),
    "ErrorNodePoolNotFound": Code(404, "node pool ({id}) not found in our records", TERRAFORM),
    "AddonNotFound": Code(404, "addon ({name}) not found", VENDOR),
    "AddonAlreadyInstalled": _invented(409, "addon ({name}) is installed already"),
    "AddonVersionNotFound": _invented(404, "addon ({name}) has no version {version}"),
    "AddonNotUpgradable": _invented(400, "addon ({name}) can't go from {version} to {next_version}"),
    "ErrorTaskNotFound": _invented(404, "task ({id}) not found in our records"),
    "TaskStateConflict": _invented(409, "task ({id}) is {state} and can't be {verb}"),
    "NodePoolNameConflict": _invented(409, "the cluster has a node pool named {name} already"),
    "NodePoolStateConflict": _invented(409, "node pool ({id}) is {state}: wait until it is active"),
    "NodePoolNotEmpty": _invented(400, "node pool ({id}) has nodes: remove them or set force"),
    "NodePoolAutoScaling": _invented(400, "node pool ({id}) scales by itself: desired_size and count do not apply"),
    "InvalidParameter.NodePool": _invented(400, "{name}: {why}"),
    "InstanceNotInNodePool": _invented(404, "instance ({id}) is not in node pool ({pool})"),
    "InstanceInUse": _invented(409, "instance ({id}) is in node pool ({pool}) already"),
    "InvalidParameter.TemporaryDurationMinutes": _invented(400, "TemporaryDurationMinutes must be 15 to 4320"),
    "InvalidParameter.Paging": _invented(400, "{name} must be {expected}"),
    # ECS
    "InvalidInstanceId.NotFound": Code(404, "The specified InstanceId does not exist.", ECS),
    "IncorrectInstanceStatus": Code(403, "The current status of the resource does not support this operation.", ECS),
    "InvalidDiskId.NotFound": Code(404, "The specified disk does not exist.", ECS),
    "InvalidRegionId.NotFound": Code(404, "The specified RegionId does not exist.", ECS),
    "CmdContent.DecodeError": Code(400, "The CommandContent can not be base64 decoded.", ECS),
    "CmdContent.ExceedLimit": Code(403, "The length of the CommandContent exceeds the upper limit.", ECS),
    "InvalidCmdType.NotFound": Code(403, "The specified command type does not exist.", ECS),
    "InvalidParameter.Value": _invented(400, "{name}: {why}"),
    # STS
    "InvalidParameter.RoleArn": Code(400, "The parameter RoleArn is wrongly formed.", STS),
    "InvalidParameter.RoleSessionName": Code(400, "The parameter RoleSessionName is wrongly formed.", STS),
    "InvalidParameter.DurationSeconds": Code(400, "The Min/Max value of DurationSeconds is 15min/1hr.", STS),
}


class CloudError(Exception):
    """A refused call: `code`, `message` and `status` go into the answer; `retry_after` (seconds) into a header."""

    def __init__(self, code: str, message: str, status: int, retry_after: float = 0.0) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status, self.retry_after = code, message, status, retry_after


def error(code: str, **words: object) -> CloudError:
    """The error of a code in the table; `words` fill its message."""
    known = CODES[code]
    return CloudError(code, known.message.format(**words), known.status)


def missing(name: str) -> CloudError:
    """A mandatory parameter that was not sent: the gateway names the code after it, e.g. `MissingRoleSessionName`."""
    pattern = CODES["Missing*"]
    return CloudError(f"Missing{name}", pattern.message.format(name=name), pattern.status)
