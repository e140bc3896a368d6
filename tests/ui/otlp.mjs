// Encodes native histograms as OpenTelemetry sends them: an ExportMetricsServiceRequest in protobuf.

function varint(value) {
  const bytes = [];
  let rest = value;
  while (rest > 127) {
    bytes.push((rest & 127) | 128);
    rest >>>= 7;
  }
  return Buffer.from([...bytes, rest]);
}
const message = (field, body) => Buffer.concat([varint((field << 3) | 2), varint(body.length), body]);
const text = (field, value) => message(field, Buffer.from(value));
const zigzag = (field, value) => Buffer.concat([varint(field << 3), varint((value << 1) ^ (value >> 31))]);
function fixed64(field, write) {
  const bytes = Buffer.alloc(9);
  bytes[0] = (field << 3) | 1;
  write(bytes);
  return bytes;
}
const uint64 = (field, value) => fixed64(field, (bytes) => bytes.writeBigUInt64LE(BigInt(value), 1));
const double = (field, value) => fixed64(field, (bytes) => bytes.writeDoubleLE(value, 1));

/** Returns a request with a cumulative exponential histogram of one series: `points` are `{ timeMs, counts }`. */
export function exponentialHistogram(name, points) {
  const all = points.map(({ timeMs, counts }) => {
    const count = counts.reduce((sum, n) => sum + n, 0);
    const buckets = Buffer.concat([zigzag(1, -2), message(2, Buffer.concat(counts.map(varint)))]);
    const nanos = (ms) => BigInt(ms) * 1_000_000n;
    return message(
      1,
      Buffer.concat([uint64(2, nanos(points[0].timeMs - 1)), uint64(3, nanos(timeMs)), uint64(4, count), double(5, count), zigzag(6, 0), message(8, buckets)]),
    );
  });
  const histogram = Buffer.concat([...all, varint(2 << 3), varint(2)]);
  const metric = Buffer.concat([text(1, name), message(10, histogram)]);
  return message(1, message(2, message(2, metric)));
}
