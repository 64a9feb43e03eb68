//! Settings as data: what a key of the configuration may hold, and what it means, beside the field that holds it.
//!
//! [`settings!`](crate::settings) defines the struct of a section of the configuration. Each crate calls it for what it
//! configures; `src/config` of the program gathers the sections, checks values by their [`Rule`]s and writes
//! `configs/default.toml`. This module checks nothing.

/// A section of the configuration.
#[derive(Debug)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// What it is about, in lines of running text.
    pub text: &'static [&'static str],
    /// Its keys, in the order of its struct's fields.
    pub keys: &'static [Key],
}

/// A key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// Its section.
    pub section: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its valid values.
    pub rule: Rule,
    /// What it means, in lines of running text; without the range of [`Rule::Whole`] and [`Rule::Number`].
    pub text: &'static [&'static str],
}

/// The valid values of a key.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// `true` or `false`.
    Switch,
    /// An integer: minimum and maximum, both inclusive, and the unit.
    Whole(i64, i64, &'static str),
    /// A number: minimum and maximum, both inclusive.
    Number(f64, f64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// The name of an engine of the section's stage, or `auto` where the stage has that.
    Engine,
    /// Any text.
    Text,
    /// Any non-empty text.
    Name,
    /// The value of an HTTP header: visible ASCII characters and spaces, or empty.
    Header,
    /// The name of an environment variable, or empty.
    Variable,
    /// Two lower-case letters, `auto`, or empty.
    Language,
    /// A URL: `http://` or `https://`, a host, an optional path, no `?` and no `#`.
    Url,
    /// A URL, or empty.
    UrlOrNone,
    /// An address and a port to listen on.
    Listen,
    /// An address and a port to listen on, or empty.
    ListenOrNone,
    /// A list of IP addresses and networks in CIDR notation.
    Networks,
    /// A list of IP addresses.
    Addresses,
    /// An IP address, or empty.
    AddressOrNone,
    /// A list of web origins: scheme, host and optional port.
    Origins,
    /// One web origin, or empty.
    OriginOrNone,
    /// A list of URLs.
    Urls,
    /// A list of host names, without scheme and port.
    Hosts,
    /// A list of model names.
    Names,
    /// A list of texts: the most of them, and the most characters of one.
    Texts(usize, usize),
    /// A list of these words, not empty.
    Words(&'static [&'static str]),
    /// A list of addresses of NATS servers: `nats://` or `tls://`, a host, an optional port.
    NatsServers,
    /// A list of integers: minimum and maximum, both inclusive, and what they are.
    Wholes(i64, i64, &'static str),
    /// A table of any keys and values.
    Fields,
    /// A table of texts by the two letters of their language: the most characters of one, and an example.
    ByLanguage(usize, &'static str),
    /// A table of texts by a name of the operator's: the most of them, the most characters of one, and an example.
    TextsByName(usize, usize, &'static str),
    /// A table of tables: settings of calls by the number called or another name.
    Routes,
    /// A table of tables: the accounts by which calls are made, by a name of the operator's.
    Accounts,
    /// A table of tables: who may call by SIP, by a name of the operator's.
    Trunks,
    /// A table of the keys of its section, for another engine of its stage; empty: none.
    Fallback,
}

/// Maximum of the timeouts, in milliseconds: one hour.
pub const HOUR_MS: i64 = 3_600_000;

/// Defines the struct of a section: for each field its meaning, type, default and [`Rule`].
///
/// The struct has `Default` and a constant `SECTION`, and is read and written by serde, which refuses unknown keys.
///
/// ```ignore
/// antiphon_types::settings! {
///     /// What the section is about.
///     pub struct TurnConfig in "turn" {
///         /// Silence that ends a turn.
///         pub silence_duration_ms: u32 = 500, Rule::Whole(50, 10_000, "milliseconds");
///     }
/// }
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        $(#[derive($($derived:ident),+)])?
        pub struct $Config:ident in $section:literal {
            $(
                $(#[doc = $text:literal])+
                $(#[serde($($serde:tt)+)])?
                pub $field:ident: $Type:ty = $default:expr, $rule:expr;
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, ::serde::Deserialize, ::serde::Serialize)]
        $(#[derive($($derived),+)])?
        #[serde(deny_unknown_fields, default)]
        pub struct $Config {
            $(
                $(#[doc = $text])+
                $(#[serde($($serde)+)])?
                pub $field: $Type,
            )+
        }

        impl Default for $Config {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $Config {
            /// The section with its keys.
            pub const SECTION: $crate::setting::Section = $crate::setting::Section {
                name: $section,
                text: &[$($about),+],
                keys: &[
                    $($crate::setting::Key {
                        section: $section,
                        name: stringify!($field),
                        rule: $rule,
                        text: &[$($text),+],
                    },)+
                ],
            };
        }
    };
}
