"""Peers in results of moe-bench-cpu (cpu.schema.json), whichever version of the schema they are of."""

# The second version named none but this one.
SECOND = "ggml"


def peers_of(node):
    """{name: peer} of a document or of one of its results."""
    if "peers" in node:
        return {peer["name"]: peer for peer in node["peers"]}
    return {SECOND: node["peer"]} if node["peer"] else {}
