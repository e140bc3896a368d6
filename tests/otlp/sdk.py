"""Exports the same measurements several times with the OpenTelemetry SDK: sdk.py URL protobuf|json delta|cumulative"""

import sys

from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, UpDownCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

url, protocol, temporality = sys.argv[1:]
if protocol == "json":
    from opentelemetry.exporter.otlp.json.http.metric_exporter import OTLPMetricExporter
else:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

preferred = AggregationTemporality.DELTA if temporality == "delta" else AggregationTemporality.CUMULATIVE
exporter = OTLPMetricExporter(
    endpoint=url, preferred_temporality={kind: preferred for kind in (Counter, Histogram, UpDownCounter)}
)
reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
view = View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation(max_size=40))
resource = Resource({"service.name": "sdk", "service.instance.id": f"{protocol}-{temporality}"})
meter = MeterProvider(metric_readers=[reader], views=[view], resource=resource).get_meter("test")
counter, level = meter.create_counter("requests", unit="1"), meter.create_up_down_counter("level")
explicit, exponential = meter.create_histogram("latency", unit="s"), meter.create_histogram("exponential")
for i in range(5):
    for pod in ("a", "b"):
        counter.add(i + 0.5, {"pod": pod})
        level.add(3 if i % 2 else -2, {"pod": pod})
        for j in range(20):
            explicit.record(0.7 ** (i + j) * 400, {"pod": pod})
            # The same range each time, as the SDK chooses the scale by it.
            exponential.record(1.3**j, {"pod": pod})
    assert reader.force_flush() is not False
reader.shutdown()
