//! Declaration of protobuf messages.

/// Declares messages: each field with its type and, in brackets, its protobuf type and number. A
/// `oneof` is an enum.
#[macro_export]
macro_rules! messages {
    ($($(#[$doc:meta])* $message:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = [$($prost:tt)*],)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, prost::Message)]
        pub struct $message {
            $($(#[$field_doc])* #[prost($($prost)*)] pub(crate) $field: $type,)*
        }
    )*};
}
