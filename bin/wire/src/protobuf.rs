//! Declaration of protobuf messages.

/// Declares messages: each field with its type and, in brackets, its protobuf type and number. A
/// `oneof` is an enum.
macro_rules! messages {
    ($($(#[$doc:meta])* $message:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = [$($prost:tt)*],)*
    })*) => {$(
        $(#[$doc])*
        #[allow(missing_docs, reason = "the names are those of the protocol's description")]
        #[derive(Clone, PartialEq, prost::Message)]
        pub struct $message {
            $($(#[$field_doc])* #[prost($($prost)*)] pub $field: $type,)*
        }
    )*};
}
pub(crate) use messages;
