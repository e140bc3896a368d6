"""Fills the state of delta streams with the OpenTelemetry SDK, then adds to known and to further streams: fill.py URL"""

import sys

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Counter, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

STREAMS_MAX, PER_EXPORT = 100_000, 10_000

exporter = OTLPMetricExporter(
    endpoint=sys.argv[1], timeout=60, preferred_temporality={Counter: AggregationTemporality.DELTA}
)
reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000, export_timeout_millis=60_000)
provider = MeterProvider(metric_readers=[reader], resource=Resource({"service.name": "fill"}))
counter = provider.get_meter("test").create_counter("filled")
streams = iter(range(STREAMS_MAX + 10))
for _ in range(STREAMS_MAX // PER_EXPORT):
    for _ in range(PER_EXPORT):
        counter.add(1, {"stream": str(next(streams))})
    reader.force_flush(60_000)
print("full", file=sys.stderr, flush=True)
for stream in range(1000):
    counter.add(2, {"stream": str(stream)})
for stream in streams:
    counter.add(1, {"stream": str(stream)})
provider.shutdown(60_000)
