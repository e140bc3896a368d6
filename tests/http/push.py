"""Pushes with Python's client library: push.py GATEWAY"""

import sys

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client import delete_from_gateway, instance_ip_grouping_key, push_to_gateway, pushadd_to_gateway

gateway = sys.argv[1]
registry = CollectorRegistry()
Gauge("last_success", "When the job succeeded.", registry=registry).set(1.5)
Counter("items", "Items.", ["kind"], registry=registry).labels("a/b").inc(3)
Histogram("duration", "Durations.", buckets=(1, 2), registry=registry).observe(1.5)
Info("build", "The build.", registry=registry).info({"version": "1"})

push_to_gateway(gateway, job="batch", registry=registry)
push_to_gateway(gateway, job="batch/nightly", registry=registry, grouping_key={"path": "/var/tmp", "empty": ""})
pushadd_to_gateway(gateway, job="added", registry=registry, grouping_key=instance_ip_grouping_key())
pushadd_to_gateway(gateway, job="compressed", registry=registry, compression="gzip")
delete_from_gateway(gateway, job="batch", grouping_key={"path": "/var/tmp"})
