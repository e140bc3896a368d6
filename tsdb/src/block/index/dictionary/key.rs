//! Keys of pages of the dictionary: the beginnings of a name and a value.

/// Maximum size of name and value in a key. Truncated keys that are equal cost a few more reads.
const KEY_PART_SIZE_MAX: usize = 64;

/// Creates the key of a name and a value. Keys have the order of their symbols, except that some
/// are equal.
pub(super) fn key_of(name: &[u8], value: &[u8]) -> Vec<u8> {
    let name = &name[..name.len().min(KEY_PART_SIZE_MAX)];
    let value = &value[..value.len().min(KEY_PART_SIZE_MAX - name.len())];
    [&[name.len() as u8], name, value].concat()
}

/// Splits a key into the beginnings of name and value. Accepts any bytes.
pub(super) fn key_parts(key: &[u8]) -> (&[u8], &[u8]) {
    let Some((&size, texts)) = key.split_first() else {
        return (&[], &[]);
    };
    texts.split_at(usize::from(size).min(texts.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_have_the_order_of_their_symbols(
            texts in proptest::collection::btree_set(("a{0,70}[ab]?", "a{0,70}[ab]?"), 2),
        ) {
            let keys: Vec<_> = texts.iter().map(|(name, value)| key_of(name.as_bytes(), value.as_bytes())).collect();
            prop_assert!(key_parts(&keys[0]) <= key_parts(&keys[1]));
        }
    }
}
