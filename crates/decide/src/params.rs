//! A parameter of a policy, defined once: what it is, its default, its range and its unit stand in one place, and the
//! struct, its defaults, the check of its values, `gleaner params` and docs/reference all come from there.

/// A parameter that is out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value} is not allowed: give a value {allowed}")]
pub struct ParamError {
    /// The key as it is written in the file.
    pub key: &'static str,
    /// The value found.
    pub value: String,
    /// What would be right, in words.
    pub allowed: String,
}

/// What a parameter is, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The key in a parameter file.
    pub key: &'static str,
    /// What it belongs to, and the section of the paper.
    pub group: &'static str,
    pub meaning: &'static str,
    /// As a file would have it.
    pub default: String,
    /// The values allowed.
    pub allowed: String,
    /// Of the default and of the range; empty where it is a plain number.
    pub unit: &'static str,
}

/// What a parameter may be.
pub(crate) trait Value {
    /// As a file would have it.
    fn shown(&self) -> String;
    /// To be compared with the ends of a range; `None` for what has none.
    fn number(&self) -> Option<f64>;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Value for $number {
            fn shown(&self) -> String {
                self.to_string()
            }
            #[allow(clippy::cast_lossless, reason = "one of the three types has no lossless way")]
            fn number(&self) -> Option<f64> {
                Some(*self as f64)
            }
        }
    )*};
}

numbers!(f64 u64 u32);

impl Value for bool {
    fn shown(&self) -> String {
        self.to_string()
    }

    fn number(&self) -> Option<f64> {
        None
    }
}

impl Value for Vec<u64> {
    fn shown(&self) -> String {
        format!("{self:?}")
    }

    fn number(&self) -> Option<f64> {
        None
    }
}

/// Whether a value is within its range.
///
/// # Errors
/// It is not.
pub(crate) fn within(key: &'static str, value: &impl Value, low: f64, high: f64) -> Result<(), ParamError> {
    // `contains` is false for NaN, as it has to be.
    if value.number().is_none_or(|number| (low..=high).contains(&number)) {
        return Ok(());
    }
    let allowed = if low < high { format!("from {low} to {high}") } else { format!("exactly {high}") };
    Err(ParamError { key, value: value.shown(), allowed })
}

/// Defines a policy's parameters, in groups: `key: type = default, range, unit;`. A range is `0.5 to 1.0` or `any "in
/// words"`; an end is a number or `{ an expression }`. Behind them a field may follow that is no
/// parameter.
macro_rules! parameters {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $(
                [$group:literal]
                $(
                    $(#[doc = $meaning:literal])+
                    $key:ident: $type:ty = $default:expr, $low:tt $word:ident $high:tt, $unit:literal;
                )+
            )+
        }
        $($other:ident: $other_type:ty)?
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(
                $(#[doc = $meaning])+
                ///
                #[doc = concat!("Default: ", stringify!($default), ". Range: ", stringify!($low $word $high), " ", $unit)]
                pub $key: $type,
            )+)+
            $(
                /// What is no parameter of users.
                pub $other: $other_type,
            )?
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($($key: $default,)+)+ $($other: Default::default())? }
            }
        }

        impl $name {
            /// Every parameter in words, in the order of the file.
            pub fn parameters() -> Vec<$crate::params::Parameter> {
                let defaults = Self::default();
                vec![$($(
                    $crate::params::Parameter {
                        key: stringify!($key),
                        group: $group,
                        meaning: concat!($($meaning),+).trim_ascii(),
                        default: $crate::params::Value::shown(&defaults.$key),
                        allowed: $crate::params::parameters!(@words $low $word $high),
                        unit: $unit,
                    },
                )+)+]
            }

            /// The first value that is outside of its range.
            fn out_of_range(&self) -> Result<(), $crate::params::ParamError> {
                $($(
                    let low = $crate::params::parameters!(@end self $low $word);
                    let high = $crate::params::parameters!(@end self $high $word);
                    $crate::params::within(stringify!($key), &self.$key, low, high)?;
                )+)+
                Ok(())
            }
        }
    };
    (@words any $word:ident $words:literal) => { $words.to_owned() };
    (@words $low:tt to $high:tt) => {
        format!("{} to {}", $crate::params::parameters!(@word $low), $crate::params::parameters!(@word $high))
    };
    (@word $end:tt) => { f64::from($end) };
    (@end $of:ident any $word:ident) => { 0.0 };
    (@end $of:ident $words:tt of) => { 0.0 };
    (@end $of:ident $end:tt $word:ident) => { f64::from($end) };
}

pub(crate) use parameters;

#[cfg(test)]
mod tests {
    use crate::guest::GuestParams;
    use crate::host::HostParams;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_told_of_a_parameter_is_its_definition() {
        let all = GuestParams::parameters();
        let of = |key: &str| all.iter().find(|parameter| parameter.key == key).unwrap();
        let min_time_slice = of("min_time_slice_us");
        assert_eq!(min_time_slice.group, "Consolidation: section 5, conditions (1) and (2)");
        assert_eq!(
            (&*min_time_slice.default, &*min_time_slice.allowed, min_time_slice.unit),
            ("4000", "100 to 100000", "us")
        );
        assert!(min_time_slice.meaning.starts_with("min_time_slice: threads"), "{}", min_time_slice.meaning);
        assert!(min_time_slice.meaning.ends_with("\"a few milliseconds\"."), "{}", min_time_slice.meaning);
        assert_eq!(of("load_factor").allowed, "0.001 to 1");
        assert_eq!((&*of("several_at_once").default, &*of("several_at_once").allowed), ("true", "true or false"));
        let ladder = &HostParams::parameters()[0];
        assert_eq!((ladder.key, &*ladder.default), ("ladder_us", "[30000, 10000, 5000, 1000, 500, 100]"));
    }

    /// A key that is told is one that a file may have, with the default that is told.
    #[test]
    fn a_file_of_all_defaults_changes_nothing() {
        let file = |all: Vec<super::Parameter>| {
            let lines = all.iter().map(|parameter| format!("{} = {}", parameter.key, parameter.default));
            lines.collect::<Vec<_>>().join("\n")
        };
        let guest = file(GuestParams::parameters());
        let keys: BTreeSet<&str> = guest.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(keys.len(), GuestParams::parameters().len(), "a key is there twice");
        assert_eq!(toml::from_str::<GuestParams>(&guest).unwrap(), GuestParams::default());
        assert_eq!(toml::from_str::<HostParams>(&file(HostParams::parameters())).unwrap(), HostParams::default());
    }

    #[test]
    fn units_are_those_of_the_keys() {
        for parameter in GuestParams::parameters().into_iter().chain(HostParams::parameters()) {
            let key = parameter.key;
            for (suffix, unit) in [("_us", "us"), ("_ms", "ms"), ("_share", "share"), ("_windows", "windows")] {
                assert!(!key.ends_with(suffix) || parameter.unit == unit, "{parameter:?}");
            }
            assert!(!key.contains("_per_s") || parameter.unit == "per second", "{parameter:?}");
            assert!(!parameter.meaning.is_empty() && !parameter.allowed.is_empty(), "{parameter:?}");
        }
    }
}
