//! The baseline: values in Prometheus' XOR encoding (Gorilla), without timestamps.

/// Appends bits to bytes, highest bit first.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    n_bits: usize,
}

impl BitWriter {
    fn put(&mut self, bits: u64, n: u32) {
        for i in (0..n).rev() {
            if self.n_bits.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let last = self.bytes.last_mut().expect("a byte was pushed");
            *last |= ((bits >> i & 1) as u8) << (7 - self.n_bits % 8);
            self.n_bits += 1;
        }
    }
}

/// Returns the encoded size of `values` in bytes, in chunks of 120.
pub(crate) fn size(values: &[f64]) -> usize {
    values.chunks(120).map(|chunk| encode(chunk).len()).sum()
}

fn encode(values: &[f64]) -> Vec<u8> {
    let mut bits = BitWriter::default();
    bits.put(values[0].to_bits(), 64);
    let mut window = None;
    for pair in values.windows(2) {
        put_xor(&mut bits, pair[0].to_bits() ^ pair[1].to_bits(), &mut window);
    }
    bits.bytes
}

fn put_xor(bits: &mut BitWriter, xor: u64, window: &mut Option<(u32, u32)>) {
    if xor == 0 {
        return bits.put(0, 1);
    }
    let (leading, trailing) = (xor.leading_zeros().min(31), xor.trailing_zeros());
    let fits =
        |&(window_leading, window_trailing): &(u32, u32)| leading >= window_leading && trailing >= window_trailing;
    if let Some((window_leading, window_trailing)) = window.filter(fits) {
        bits.put(0b10, 2);
        return bits.put(xor >> window_trailing, 64 - window_leading - window_trailing);
    }
    *window = Some((leading, trailing));
    let significant = 64 - leading - trailing;
    bits.put(0b11, 2);
    bits.put(leading.into(), 5);
    // The field has 6 bits: 64 is written as 0, as in Prometheus.
    bits.put(u64::from(significant & 63), 6);
    bits.put(xor >> trailing, significant);
}
