//! The data files, embedded in the binary. Each is parsed once, when it is first used.

/// A static that holds a parsed data file. Its first use panics if the file is malformed; the tests use every file.
macro_rules! data_file {
    ($visibility:vis $name:ident: $type:ty = $file:literal) => {
        $visibility static $name: std::sync::LazyLock<$type> = std::sync::LazyLock::new(|| {
            let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/", $file));
            toml::from_str(text).unwrap_or_else(|cause| panic!("{}: {cause}", $file))
        });
    };
}

pub(crate) use data_file;
