"""Devices, meshes and processes: where arrays live and who works on them."""

from loca.devices.placement import AXES as AXES
from loca.devices.placement import FUNCTIONS as FUNCTIONS
from loca.devices.placement import NODES as NODES
from loca.devices.placement import QUERIES as QUERIES
from loca.devices.placement import ShardingRule as ShardingRule
from loca.devices.placement import complete as complete
from loca.devices.placement import constrain as constrain
from loca.devices.placement import from_process_rows as from_process_rows
from loca.devices.placement import local_copy as local_copy
from loca.devices.placement import pad_to_multiple as pad_to_multiple
from loca.devices.placement import place as place
from loca.devices.placement import process_part as process_part
from loca.devices.placement import replicated as replicated
from loca.devices.placement import shard_functions as shard_functions
from loca.devices.placement import shard_large as shard_large
from loca.devices.processes import SINGLE_PROCESS as SINGLE_PROCESS
from loca.devices.processes import ProcessGroup as ProcessGroup

__all__ = [
    "AXES",
    "FUNCTIONS",
    "NODES",
    "QUERIES",
    "SINGLE_PROCESS",
    "ProcessGroup",
    "ShardingRule",
    "complete",
    "constrain",
    "from_process_rows",
    "local_copy",
    "pad_to_multiple",
    "place",
    "process_part",
    "replicated",
    "shard_functions",
    "shard_large",
]
