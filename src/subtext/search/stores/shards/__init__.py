"""An index in shards: folders that each hold a share of the items, searched side by side and answered as one.

Each shard is an ordinary index folder, and `INDEX/shards.json` names them. Workers of a Ray cluster keep them open;
importing what connects to it needs the extra "ray", and `cluster` says so where it is missing.
"""
