//! Canonical prefix codes: a code is defined by the lengths of its code words, which are part of
//! the format.
//!
//! Code words ascend by length and then by symbol. The first code word is all zeros. The first bit
//! of a code word is written first. All functions run at compile time.

/// Returns the code word of each symbol, with the first bit lowest. The lengths must form a
/// complete code and be at most `length_max`.
const fn codes<const N: usize>(lengths: &[u8; N], length_max: usize) -> [u16; N] {
    let mut codes = [0; N];
    let mut next = 0_u16;
    let mut length = 1;
    while length <= length_max {
        let mut symbol = 0;
        while symbol < N {
            if lengths[symbol] as usize == length {
                codes[symbol] = next.reverse_bits() >> (16 - length);
                next += 1;
            }
            symbol += 1;
        }
        assert!(
            length < length_max || next as usize == 1 << length_max,
            "the code is complete"
        );
        next <<= 1;
        length += 1;
    }
    codes
}

/// Returns the code words of several codes.
pub const fn all_codes<const N: usize, const M: usize>(
    lengths: &[[u8; N]; M],
    length_max: usize,
) -> [[u16; N]; M] {
    let mut all = [[0; N]; M];
    let mut i = 0;
    while i < M {
        all[i] = codes(&lengths[i], length_max);
        i += 1;
    }
    all
}

/// Returns the decoding tables of several codes.
pub const fn all_symbols<const N: usize, const M: usize, const C: usize>(
    lengths: &[[u8; N]; M],
) -> [[(u8, u8); C]; M] {
    let mut all = [[(0, 0); C]; M];
    let mut i = 0;
    while i < M {
        all[i] = symbols(&lengths[i]);
        i += 1;
    }
    all
}

/// Returns the decoding table: the symbol and the length of its code word for each value of the
/// next bits. `C` is 2 to the power of the maximum length.
const fn symbols<const N: usize, const C: usize>(lengths: &[u8; N]) -> [(u8, u8); C] {
    let codes = codes(lengths, C.ilog2() as usize);
    let mut symbols = [(0, 0); C];
    let mut symbol = 0;
    while symbol < N {
        let mut bits = codes[symbol] as usize;
        while bits < C {
            symbols[bits] = (symbol as u8, lengths[symbol]);
            bits += 1 << lengths[symbol];
        }
        symbol += 1;
    }
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_canonical_and_decode() {
        const LENGTHS: [u8; 4] = [2, 1, 3, 3];
        assert_eq!(codes(&LENGTHS, 3), [0b01, 0b0, 0b011, 0b111]);
        let symbols: [_; 8] = symbols(&LENGTHS);
        assert_eq!(
            symbols,
            [
                (1, 1),
                (0, 2),
                (1, 1),
                (2, 3),
                (1, 1),
                (0, 2),
                (1, 1),
                (3, 3)
            ]
        );
    }
}
