//! Settings as tables: each is written once, and the struct, its options and its description come from there.

use serde::de::{DeserializeOwned, Error, Visitor};
use serde::{Deserializer, Serializer};
use std::fmt;

/// A setting, described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The table that it is in; `group.NAME` for those of a group.
    pub table: &'static str,
    /// Its name.
    pub key: &'static str,
    /// What it is.
    pub meaning: String,
    /// What it may be.
    pub allowed: String,
    /// What it is where nobody says.
    pub default: &'static str,
    /// A value, as TOML.
    pub example: &'static str,
}

/// What a setting may be: it reads, writes and describes itself.
pub trait Value: Sized {
    /// One, as TOML.
    const EXAMPLE: &'static str;

    /// What it may be, in words.
    fn allowed() -> String;

    /// From a file, or from a socket.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;

    /// The same back.
    fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error>;
}

/// Reads what is written as text.
pub fn read_text<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    parse(&from.deserialize_any(Text)?).map_err(D::Error::custom)
}

/// Text, and what to do about anything else.
struct Text;

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text: write it in quotes, with its unit")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

/// A value as the type itself has it.
pub(crate) fn read_plain<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<T, D::Error> {
    T::deserialize(from)
}

impl Value for bool {
    const EXAMPLE: &'static str = "true";

    fn allowed() -> String {
        "true, false".to_owned()
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_plain(from)
    }

    fn write<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.serialize_bool(*self)
    }
}

/// For serde: a setting that may be left out.
pub mod optional {
    use super::Value;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    struct Written<'a, T>(&'a T);

    impl<T: Value> Serialize for Written<'_, T> {
        fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
            self.0.write(into)
        }
    }

    struct Read<T>(T);

    impl<'de, T: Value> Deserialize<'de> for Read<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            T::read(from).map(Self)
        }
    }

    #[allow(clippy::ref_option, reason = "serde has it so")]
    pub fn serialize<T: Value, S: Serializer>(value: &Option<T>, into: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(Written).serialize(into)
    }

    pub fn deserialize<'de, T: Value, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
        Ok(Option::<Read<T>>::deserialize(from)?.map(|read| read.0))
    }
}

/// Defines the settings of a table: what each is, then `key: Type, "what it is where nobody says"`, and its option
/// where the struct is flattened into a command: `, arg(long)`.
#[macro_export]
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $name:ident in $table:literal {
            $(
                $(#[doc = $meaning:literal])+
                $key:ident: $type:ty, $default:literal $(, arg($($arg:tt)*))?;
            )+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $visible struct $name {
            $(
                $(#[doc = $meaning])+
                $(#[arg($($arg)*)])?
                #[serde(with = "gleaner_settings::optional", skip_serializing_if = "Option::is_none")]
                pub $key: Option<$type>,
            )+
        }

        impl $name {
            /// The names of all.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($key)),+];

            /// All of them, described.
            pub fn keys() -> Vec<$crate::Key> {
                vec![$($crate::Key {
                    table: $table,
                    key: stringify!($key),
                    meaning: [$($meaning),+].map(str::trim).join(" "),
                    allowed: <$type as $crate::Value>::allowed(),
                    default: $default,
                    example: <$type as $crate::Value>::EXAMPLE,
                }),+]
            }
        }
    };
}
