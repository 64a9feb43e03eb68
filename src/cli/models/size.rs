//! Sizes of models, as people read them.

/// Formats a size in decimal units (1 MB = 1 000 000 bytes).
pub(super) fn size(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        mb if mb >= 1_000.0 => format!("{:.1} GB", mb / 1_000.0),
        mb if mb >= 10.0 => format!("{mb:.0} MB"),
        mb => format!("{mb:.1} MB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_as_people_read_them() {
        assert_eq!([1_624_555_275, 147_951_465, 2_327_524].map(size), ["1.6 GB", "148 MB", "2.3 MB"]);
    }
}
